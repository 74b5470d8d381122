"""The operator: a tenant and a producer as resources, events with the token of a pod, drift, and another leader."""

import json
import time

from builds import PRESENT, REGISTRY
from cluster import TestError, run

TENANT, ACCOUNT = "managed", "collector"
EVENTS = 1000
DEFINITIONS = ("tenants.svc.internal", "producers.svc.internal")
# A change to a valid resource, and a part of the message that rejects it.
MALFORMED = [
    ("Tenant", {"metadata": {"name": "a.b"}}, "metadata.name is the tenant id"),
    ("Tenant", {"spec": {"displayName": ""}}, "spec.displayName"),
    ("Tenant", {"spec": {"displayName": "x" * 201}}, "spec.displayName"),
    ("Tenant", {"spec": {"adminEmail": "nobody"}}, "spec.adminEmail"),
    ("Tenant", {"spec": {"state": "Paused"}}, "spec.state"),
    ("Tenant", {"spec": {"quota": {"eventsPerSecond": 0}}}, "spec.quota.eventsPerSecond"),
    ("Tenant", {"spec": {"deletionPolicy": "Delete"}}, "spec.deletionPolicy"),
    ("Tenant", {"spec": {"allowedNamespaces": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}, "values is required"),
    ("Producer", {"spec": {"tenant": "A"}}, "spec.tenant"),
    ("Producer", {"spec": {"serviceAccount": ""}}, "spec.serviceAccount"),
    ("Producer", {"spec": {"sourceIds": []}}, "spec.sourceIds"),
    ("Producer", {"spec": {"sourceIds": ["a", "a"]}}, "Duplicate value"),
]


def manage_tenants(system):
    """Enables the operator and uses it. Disables it at the end, and deletes its definitions."""
    cluster, report, installation = system.cluster, system.report, system.installation
    apps = f"{cluster.namespace}-apps"
    started = time.monotonic()
    installation.release("upgrade", PRESENT, "--set", "operator.enabled=true")
    report.step("operator: helm upgrade", started, "ready")
    try:
        run("kubectl", "delete", "namespace", apps, "--ignore-not-found", "--timeout=60s")
        reject_malformed(cluster, report)
        create_tenant(system)
        send_events(system, apps)
        correct_drift(system)
        replace_leader(cluster, report)
    finally:
        for definition in DEFINITIONS:
            run("kubectl", "delete", definition, "--all", "--all-namespaces", "--ignore-not-found", "--timeout=60s", check=False)
        run("kubectl", "delete", "namespace", apps, "--ignore-not-found", "--wait=false")
    installation.release("upgrade", PRESENT)
    run("kubectl", "delete", "crd", *DEFINITIONS)


def resource(kind, name, spec):
    return {"apiVersion": "svc.internal/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def tenant(name):
    spec = {"displayName": "Managed", "adminEmail": f"ada@{name}.example", "allowedNamespaces": {"matchLabels": {"tenant": name}}}
    return resource("Tenant", name, spec)


def producer():
    return resource("Producer", "collector", {"tenant": TENANT, "serviceAccount": ACCOUNT, "sourceIds": ["managed"]})


def reject_malformed(cluster, report):
    started = time.monotonic()
    for kind, change, expected in MALFORMED:
        valid = tenant("valid") if kind == "Tenant" else producer()
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


def wait_until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TestError(f"operator: {what}: not within {seconds} s")
        time.sleep(0.1)


def create_tenant(system):
    """The first administrator accepts the invite of the Secret, which is then deleted."""
    cluster, client, started = system.cluster, system.client, time.monotonic()
    cluster.apply(tenant(TENANT))
    wait_ready("tenant", TENANT)
    ready = time.monotonic() - started
    token = cluster.secret(f"svc-invite-{TENANT}", "token")
    client.svc("users", "accept-invite", "-", "--password-stdin", text=f"{token}\ncorrect horse battery managed\n")
    accepted = time.monotonic()
    exists = ("get", "secret", f"svc-invite-{TENANT}", "--ignore-not-found", "--output=name")
    wait_until("the Secret of the accepted invite is deleted", lambda: not cluster.kubectl(*exists).strip())
    gone = time.monotonic() - accepted
    system.report.step("operator: tenant", started, f"ready after {ready:.1f} s; Secret deleted {gone:.1f} s after the invite was accepted")


def send_events(system, apps):
    """A pod sends events with the token of its service account, until its producer is deleted."""
    cluster, started = system.cluster, time.monotonic()
    labels = {"tenant": TENANT, "pod-security.kubernetes.io/enforce": "restricted"}
    events = "\n".join(json.dumps({"source_id": "managed", "event_id": f"managed-{number}"}) for number in range(EVENTS))
    for manifest in [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": apps, "labels": labels}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": apps}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "events", "namespace": apps}, "data": {"events": events}},
        in_namespace(producer(), apps),
        pod(cluster, apps),
    ]:
        run("kubectl", "apply", "--filename", "-", text=json.dumps(manifest))
    wait_ready("producer", "collector", "--namespace", apps)
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
    run(*kubectl, "delete", "producer", "collector")
    deleted = time.monotonic()
    wait_until("the token of a deleted producer is rejected", lambda: send(system, token) == 401)
    detail = f"{len(rejected) + 1} kinds of requests rejected; deleted producer rejected after {time.monotonic() - deleted:.1f} s"
    system.report.step("operator: rejected tokens", started, detail)


def in_namespace(manifest, namespace):
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def pod(cluster, apps):
    """Returns a pod that sends the events of the ConfigMap, and one that does nothing and owns tokens."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    address = f"http://{cluster.release}-ingest.{cluster.namespace}:8080"
    sender = {
        "name": "svc", "image": f"{REGISTRY}/svc:{PRESENT}", "args": ["events", "send", "--file", "/events/events"],
        "env": [{"name": "SVC_BASE_URL", "value": address}, {"name": "SVC_API_KEY_FILE", "value": "/var/run/secrets/svc/token"}],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/svc"}, {"name": "events", "mountPath": "/events"}],
        "securityContext": security,
    }  # fmt: skip
    token = {"serviceAccountToken": {"path": "token", "audience": "svc-ingest", "expirationSeconds": 600}}
    spec = {
        "serviceAccountName": ACCOUNT, "restartPolicy": "OnFailure", "containers": [sender],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "token", "projected": {"sources": [token]}}, {"name": "events", "configMap": {"name": "events"}}],
    }  # fmt: skip
    # A pod owns tokens also while it waits for its image.
    idle = {**spec, "containers": [{**sender, "image": f"{REGISTRY}/none:none"}]}
    pods = {"sender": spec, "idle": idle}
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": apps}, "spec": each}
        for name, each in pods.items()
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def send(system, token, source="managed"):
    """Returns the status of an event with this token."""
    entry = system.entries[0]
    event = {"source_id": source, "event_id": f"managed-{time.monotonic()}"}
    return entry.request(entry.connection(), "POST", "/events", event, {"Authorization": f"Bearer {token}"})[1]


def correct_drift(system):
    cluster, client, started = system.cluster, system.client, time.monotonic()
    platform = {"SVC_PLATFORM_TOKEN": cluster.secret("svc-tokens", "platform-token"), "SVC_TENANT": ""}
    client.svc("tenants", "suspend", TENANT, "--yes", **platform)
    is_active = lambda: json.loads(client.svc("tenants", "get", TENANT, **platform))["status"] == "active"  # noqa: E731
    wait_until("a suspended tenant is active again", is_active)
    system.report.step("operator: drift", started, "corrected")


def replace_leader(cluster, report):
    started = time.monotonic()
    lease = f"{cluster.release}-operator"
    holder = cluster.get("lease", lease)["spec"]["holderIdentity"]
    cluster.kubectl("delete", "pod", holder, "--wait=false")
    cluster.apply(tenant("second"))
    wait_ready("tenant", "second")
    other = cluster.get("lease", lease)["spec"]["holderIdentity"]
    if other == holder:
        raise TestError("operator: the deleted pod still holds the lease")
    report.step("operator: the leader is deleted", started, "another one made the next tenant ready")
