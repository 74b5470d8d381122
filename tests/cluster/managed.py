"""The operator: a tenant and a producer as resources (a consumer is in consumers.py), events with the token of a pod, drift, and another installation."""

import contextlib
import http.client
import json
import shutil
import time

from builds import PRESENT, REGISTRY
from cluster import TestError, run
from installation import CHART
from rotation import superuser

TENANT, ACCOUNT = "managed", "collector"
EVENTS = 1000
DEFINITIONS = (SVC_TENANTS, SVC_PRODUCERS, SVC_CONSUMERS) = ("svctenants.svc.internal", "svcproducers.svc.internal", "svcconsumers.svc.internal")
SELECTORS = {"secrets": "svc.internal/invite"}
# A change to a valid resource, and a part of the message that rejects it.
MALFORMED = [
    ("SvcTenant", {"metadata": {"name": "a.b"}}, "metadata.name is the tenant id"),
    ("SvcTenant", {"spec": {"displayName": ""}}, "spec.displayName"),
    ("SvcTenant", {"spec": {"displayName": "x" * 201}}, "spec.displayName"),
    ("SvcTenant", {"spec": {"adminEmail": "nobody"}}, "spec.adminEmail"),
    ("SvcTenant", {"spec": {"state": "Paused"}}, "spec.state"),
    ("SvcTenant", {"spec": {"quota": {"eventsPerSecond": 0}}}, "spec.quota.eventsPerSecond"),
    ("SvcTenant", {"spec": {"deletionPolicy": "Delete"}}, "spec.deletionPolicy"),
    ("SvcTenant", {"spec": {"allowedNamespaces": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}, "values is required"),
    ("SvcTenant", {"spec": {"allowedNamespaces": {}}}, "allowedNamespaces must not be empty"),
    ("SvcProducer", {"spec": {"tenant": "A"}}, "spec.tenant"),
    ("SvcProducer", {"spec": {"serviceAccount": ""}}, "spec.serviceAccount"),
    ("SvcProducer", {"spec": {"sourceIds": []}}, "spec.sourceIds"),
    ("SvcProducer", {"spec": {"sourceIds": ["a", "a"]}}, "Duplicate value"),
    ("SvcConsumer", {"metadata": {"name": "a.b"}}, "metadata.name is the name of the consumer"),
    ("SvcConsumer", {"spec": {"tenant": "A"}}, "spec.tenant"),
    ("SvcConsumer", {"spec": {"start": "old"}}, "spec.start"),
    ("SvcConsumer", {"spec": {"eventTypes": ["login"]}}, "spec.eventTypes"),
    ("SvcConsumer", {"spec": {"ackWaitSeconds": 0}}, "spec.ackWaitSeconds"),
    ("SvcConsumer", {"spec": {"maxAckPending": 10001}}, "spec.maxAckPending"),
]


def manage_tenants(system):
    with operator(system) as apps:
        reject_malformed(system.cluster, system.report)
        create_tenant(system)
        renew_invite(system)
        send_events(system, apps)
        correct_drift(system)
        install_again(system)


def enabled(cluster):
    """Returns the options of Helm that enable the operator with consumers."""
    values = {"enabled": "true", "replicas": 2, "consumers.enabled": "true", "consumers.natsUrl": f"nats://nats.{cluster.namespace}:4222"}
    return [word for name, value in values.items() for word in ("--set", f"operator.{name}={value}")]


@contextlib.contextmanager
def operator(system):
    """Enables the operator. Disables it at the end, and deletes its definitions. The value is the name of a new namespace for producers."""
    cluster, installation = system.cluster, system.installation
    apps = f"{cluster.namespace}-apps"
    started = time.monotonic()
    installation.release("upgrade", PRESENT, *enabled(cluster))
    system.report.step("operator: helm upgrade", started, "ready")
    run("kubectl", "delete", "namespace", apps, "--ignore-not-found", "--timeout=120s")
    labels = {"tenant": TENANT, "pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": apps, "labels": labels}})
    try:
        yield apps
    finally:
        for definition in DEFINITIONS:
            run("kubectl", "delete", definition, "--all", "--all-namespaces", "--ignore-not-found", "--timeout=300s", check=False)
        run("kubectl", "delete", "namespace", apps, "--ignore-not-found", "--wait=false")
    installation.release("upgrade", PRESENT)
    run("kubectl", "delete", "customresourcedefinitions", *DEFINITIONS)


def resource(kind, name, spec):
    return {"apiVersion": "svc.internal/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def tenant(name, **more):
    spec = {"displayName": "Managed", "adoption": "IfUnowned", "adminEmail": f"ada@{name}.example", "allowedNamespaces": {"matchLabels": {"tenant": name}}}
    return resource("SvcTenant", name, spec | more)


def producer():
    return resource("SvcProducer", "collector", {"tenant": TENANT, "serviceAccount": ACCOUNT, "sourceIds": ["managed"]})


def consumer(name, of=TENANT):
    return resource("SvcConsumer", name, {"tenant": of, "start": "new"})


def reject_malformed(cluster, report):
    started = time.monotonic()
    for kind, change, expected in MALFORMED:
        valid = {"SvcTenant": tenant("valid"), "SvcProducer": producer(), "SvcConsumer": consumer("valid")}[kind]
        for field, values in change.items():
            valid[field] = {**valid[field], **values}
        output = run(
            "kubectl", "--namespace", cluster.namespace, "apply", "--dry-run=server", "--filename", "-",
            text=json.dumps(valid), check=False, with_errors=True,
        )  # fmt: skip
        if expected not in output or "dry run" in output:
            raise TestError(f"operator: {kind} with {change} was not rejected because of {expected!r}: {output}")
    report.step("operator: malformed resources", started, f"{len(MALFORMED)} rejected")


def wait_ready(kind, name, *options):
    run("kubectl", "wait", "--for=condition=Ready", f"{kind}/{name}", "--timeout=60s", *options)


def wait_until(what, condition, seconds=60, interval=0.1):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TestError(f"operator: {what}: not within {seconds} s")
        time.sleep(interval)


def create_tenant(system):
    """The first administrator accepts the invite of the Secret, which is then deleted."""
    cluster, started = system.cluster, time.monotonic()
    cluster.apply(tenant(TENANT))
    wait_ready(SVC_TENANTS, TENANT)
    ready = time.monotonic() - started
    accept_invite(system, TENANT)
    accepted = time.monotonic()
    exists = ("get", "secret", f"svc-invite-{TENANT}", "--ignore-not-found", "--output=name")
    wait_until("the Secret of the accepted invite is deleted", lambda: not cluster.kubectl(*exists).strip())
    gone = time.monotonic() - accepted
    system.report.step("operator: tenant", started, f"ready after {ready:.1f} s; Secret deleted {gone:.1f} s after the invite was accepted")


def accept_invite(system, name):
    """Accepts the invite of the Secret of a tenant."""
    token = system.cluster.secret(f"svc-invite-{name}", "token")
    system.client.svc("users", "accept-invite", "-", "--password-stdin", text=f"{token}\ncorrect horse battery managed\n")


def renew_invite(system):
    """The Secret of an expired invite gets another token, which is accepted."""
    cluster, started = system.cluster, time.monotonic()
    cluster.apply(tenant("expired"))
    wait_ready(SVC_TENANTS, "expired")
    token = cluster.secret("svc-invite-expired", "token")
    superuser(
        cluster,
        """begin;
        update identity.invites set expires_at = now() - interval '1 minute' where tenant_id = 'expired';
        update identity.managed_tenants set invite_expires_at = now() - interval '1 minute' where tenant_id = 'expired';
        commit;""",
    )
    wait_until("an expired token is replaced", lambda: cluster.secret("svc-invite-expired", "token") != token)
    accept_invite(system, "expired")
    system.report.step("operator: expired invite", started, "replaced and accepted")


def send_events(system, apps):
    """A pod sends events with the token of its service account, until its producer is deleted."""
    cluster, started = system.cluster, time.monotonic()
    for manifest in [
        service_account(apps),
        events(apps, EVENTS),
        in_namespace(producer(), apps),
        pods(apps, {"sender": sender(cluster), "idle": idle(cluster)}),
    ]:
        apply(manifest)
    wait_ready(SVC_PRODUCERS, "collector", "--namespace", apps)
    kubectl = ("kubectl", "--namespace", apps)
    try:
        run(*kubectl, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/sender", "--timeout=90s")
    except TestError as error:
        raise TestError(f"{error}\n{run(*kubectl, 'logs', 'sender', check=False)}") from None
    system.report.step("operator: producer", started, f"a pod sent {EVENTS} events without a key")

    started = time.monotonic()
    bound = ("--bound-object-kind=Pod", "--bound-object-name=idle")
    token = run(*kubectl, "create", "token", ACCOUNT, "--audience=svc-ingest", *bound).strip()
    rejected = {
        "of another audience": run(*kubectl, "create", "token", ACCOUNT, *bound).strip(),
        "of no pod": run(*kubectl, "create", "token", ACCOUNT, "--audience=svc-ingest").strip(),
        "of another service account": run(*kubectl, "create", "token", "default", "--audience=svc-ingest").strip(),
    }
    if (status := send(system, token)) != 202:
        raise TestError(f"operator: an event with the token of a pod got {status}")
    for what, other in rejected.items():
        if (status := send(system, other)) != 401:
            raise TestError(f"operator: an event with a token {what} got {status}, not 401")
    if (status := send(system, token, "other")) != 403:
        raise TestError(f"operator: an event of another source got {status}, not 403")
    run(*kubectl, "delete", SVC_PRODUCERS, "collector")
    deleted = time.monotonic()
    wait_until("the token of a deleted producer is rejected", lambda: send(system, token) == 401)
    detail = f"{len(rejected) + 1} kinds of requests rejected; deleted producer rejected after {time.monotonic() - deleted:.1f} s"
    system.report.step("operator: rejected tokens", started, detail)


def apply(manifest):
    """Applies a manifest to its own namespace."""
    run("kubectl", "apply", "--filename", "-", text=json.dumps(manifest))


def in_namespace(manifest, namespace):
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def service_account(apps):
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": apps}}


def events(apps, count):
    """Returns a ConfigMap with events, one per line."""
    lines = "\n".join(json.dumps({"source_id": "managed", "event_id": f"{count}-{number}"}) for number in range(count))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "events", "namespace": apps}, "data": {"events": lines}}


def sender(cluster, *options):
    """Returns a pod that sends the events of the ConfigMap with the token of its service account."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    address = f"http://{cluster.release}-ingest.{cluster.namespace}:8080"
    container = {
        "name": "svc", "image": f"{REGISTRY}/svc:{PRESENT}", "args": ["events", "send", "--file", "/events/events", *options],
        "env": [{"name": "SVC_BASE_URL", "value": address}, {"name": "SVC_API_KEY_FILE", "value": "/var/run/secrets/svc/token"}],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/svc"}, {"name": "events", "mountPath": "/events"}],
        "securityContext": security,
    }  # fmt: skip
    token = {"serviceAccountToken": {"path": "token", "audience": "svc-ingest", "expirationSeconds": 600}}
    return {
        "serviceAccountName": ACCOUNT, "restartPolicy": "OnFailure", "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "token", "projected": {"sources": [token]}}, {"name": "events", "configMap": {"name": "events"}}],
    }  # fmt: skip


def token_of_pod(system, apps):
    """Creates a tenant, a producer and a pod. Returns a token of the pod that ingest accepts."""
    system.cluster.apply(tenant(TENANT))
    for manifest in (service_account(apps), in_namespace(producer(), apps), pods(apps, {"idle": idle(system.cluster)})):
        apply(manifest)
    bound = ("--bound-object-kind=Pod", "--bound-object-name=idle")
    token = run("kubectl", "create", "token", ACCOUNT, "--namespace", apps, "--audience=svc-ingest", *bound).strip()
    wait_until("the token of the pod is accepted", lambda: send(system, token) == 202)
    return token


def idle(cluster):
    """Returns a pod that never starts, because its image does not exist. Tokens can be bound to it."""
    spec = sender(cluster)
    return {**spec, "containers": [{**spec["containers"][0], "image": f"{REGISTRY}/none:none"}]}


def pods(apps, specs):
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": apps}, "spec": spec}
        for name, spec in specs.items()
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def send(system, token, source="managed"):
    """Returns the status of an event with this token."""
    return event(system, token, source)[0]


def event(system, token, source="managed"):
    """Sends an event with a token. Returns the status, `None` after a network error, and the header `Retry-After`."""
    entry = system.entries[0]
    body = json.dumps({"source_id": source, "event_id": f"managed-{time.monotonic()}"})
    headers = {"Host": entry.host, "Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    with contextlib.closing(entry.connection()) as connection:
        try:
            connection.request("POST", "/api/v1/events", body, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            return None, None
        return response.status, response.headers["Retry-After"]


def correct_drift(system):
    cluster, client, started = system.cluster, system.client, time.monotonic()
    platform = {"SVC_PLATFORM_TOKEN": cluster.secret("svc-tokens", "platform-token"), "SVC_TENANT": ""}
    client.svc("tenants", "suspend", TENANT, "--yes", **platform)
    is_active = lambda: json.loads(client.svc("tenants", "get", TENANT, **platform))["status"] == "active"  # noqa: E731
    wait_until("a suspended tenant is active again", is_active)
    system.report.step("operator: drift", started, "corrected")


def install_again(system):
    """The resources survive `helm uninstall`. An upgrade changes the definitions. Another installation writes nothing."""
    cluster, installation, started = system.cluster, system.installation, time.monotonic()
    apply(in_namespace(producer(), f"{cluster.namespace}-apps"))
    wait_ready(SVC_PRODUCERS, "collector", "--namespace", f"{cluster.namespace}-apps")
    before = versions(cluster)
    cluster.helm("uninstall", cluster.release, "--wait")
    changed = installation.work / "changed"
    shutil.copytree(CHART, changed, dirs_exist_ok=True)
    definitions = changed / "files/crds.json"
    definitions.write_text(definitions.read_text().replace("Display name", "Changed name", 1))
    installation.release("install", PRESENT, *enabled(cluster))
    installation.release("upgrade", PRESENT, *enabled(cluster), chart=changed)
    if "Changed name" not in run("kubectl", "explain", "svctenants.spec.displayName", "--api-version=svc.internal/v1alpha1"):
        system.report.fail("operator: helm upgrade did not change the definition")
    leader(cluster)
    cluster.apply(tenant("another"))
    for name in ("another", TENANT, "expired"):
        wait_ready(SVC_TENANTS, name)
    wait_ready(SVC_PRODUCERS, "collector", "--namespace", f"{cluster.namespace}-apps")
    after = versions(cluster)
    if rewritten := [(*key, before[key], after.get(key)) for key in before if before[key] != after.get(key)]:
        system.report.fail(f"operator: another installation wrote {rewritten}")
    system.report.step("operator: another installation", started, f"{len(before)} resources and rows as before")


def versions(cluster):
    """Returns the generations of the resources with their states, and the versions of their Secrets and rows. While the services start, the
    status of a resource changes to `IdentityUnavailable` or `SessionUnavailable` and back."""
    resources = [
        item
        for kind in (*DEFINITIONS, "secrets")
        for item in json.loads(run("kubectl", "get", kind, "--all-namespaces", "--output", "json", "--selector", SELECTORS.get(kind, "")))["items"]
    ]
    found = {(each["kind"], each["metadata"]["name"]): state_of(each) for each in resources}
    for table, key in (("identity.managed_tenants", "tenant_id"), ("session.producers", "producer_id")):
        for row in superuser(cluster, f"select {key}, xmin from {table}").split():
            name, _, version = row.partition("|")
            found[table, name] = version
    return found


def state_of(resource):
    metadata = resource["metadata"]
    if resource["kind"] == "Secret":
        return metadata["resourceVersion"]
    conditions = [{**each, "lastTransitionTime": None} for each in resource.get("status", {}).get("conditions", [])]
    return [metadata["generation"], metadata.get("finalizers"), conditions]


def leader(cluster):
    """Waits until a running pod holds the lease. Returns the pod."""
    found = []

    def holds():
        lease = json.loads(cluster.kubectl("get", "lease", f"{cluster.release}-operator", "--ignore-not-found", "--output", "json") or "{}")
        holder = lease.get("spec", {}).get("holderIdentity")
        found[:] = [pod for pod in cluster.pods("operator") if pod["metadata"]["name"] == holder]
        return bool(found)

    wait_until("a pod holds the lease", holds)
    return found[0]
