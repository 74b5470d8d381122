"""Consumers with the default options of their client: many at once, a deleted one, and one that reads while NATS is killed."""

import json
import time
import uuid

import managed
from builds import dependency
from cluster import TestError, run

SECRET, COUNT = "e2e-consumers", 100
# Events before the broker is killed, and as many after it.
EVENTS = 100
# Maximum duration from the deletion of a consumer to the end of its connections, in seconds.
CUT_OFF = 5


def read_with_consumers(system):
    cluster, report = system.cluster, system.report
    created(system, [f"siem-{number}" for number in range(COUNT)])
    started = time.monotonic()
    names = [f"siem-{number}" for number in range(COUNT)]
    result = finished(cluster, start(cluster, "first", *names))
    if result != str(COUNT):
        report.fail(f"consumers: {result} of {COUNT} have read an event")
    report.step(f"consumers: {COUNT} clients", started, f"{result} of {COUNT} have read an event")
    cut_off(system)
    survive(system)
    read_with_secret(system)


def created(system, names, *options):
    """Creates consumers, and keeps their logins in the Secret."""
    started, urls = time.monotonic(), {}
    token = system.cluster.secret("svc-tokens", "platform-token")
    for name in names:
        login = json.loads(system.client.svc("consumers", "create", name, *options, "--output", "json", SVC_PLATFORM_TOKEN=token))["login"]
        urls[name] = f"nats://{login['user']}:{login['password']}@nats:4222"
    system.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": urls})
    system.report.step(f"consumers: {len(names)} created", started, "done")


def cut_off(system):
    """Deletes a consumer with an open connection."""
    cluster, name, started = system.cluster, "siem-0", time.monotonic()
    witness = start(cluster, "witness", name)
    opened(cluster, witness)
    deleted = time.time()
    system.client.svc("consumers", "delete", name, "--yes", SVC_PLATFORM_TOKEN=cluster.secret("svc-tokens", "platform-token"))
    seconds = float(finished(cluster, witness)) - deleted
    if seconds > CUT_OFF:
        system.report.fail(f"consumers: the connection of a deleted consumer was open for {seconds:.1f} s")
    system.report.step("consumers: one deleted", started, f"its connection was closed {seconds:.1f} s after the command started")


def survive(system):
    """Kills the broker while a consumer reads. It gets every event."""
    cluster, started, last = system.cluster, time.monotonic(), str(uuid.uuid4())
    created(system, ["survivor"], "--start", "new")
    pod = start(cluster, "survivor", "survivor", LAST=last)
    opened(cluster, pod)
    send(system)
    killed = cluster.kill(cluster.get("pods", "--selector", "app=nats")["items"][0])
    send(system, last)
    _, _, result = finished(cluster, pod).partition("/")
    if result != str(2 * EVENTS):
        system.report.fail(f"consumers: {result} of {2 * EVENTS} events were read")
    system.report.step("consumers: NATS killed", started, f"{killed}; {result} of {2 * EVENTS} events read")


def read_with_secret(system):
    """A consumer as a resource: a pod reads with the Secret, which is written again after its loss. The deletion of the resource cuts it off."""
    cluster, name, account = system.cluster, "declared", managed.ACCOUNT
    with managed.operator(system) as apps:
        started = time.monotonic()
        # The step of the operator creates the tenant of the namespace.
        cluster.apply(managed.tenant(name, allowedNamespaces={"matchLabels": {"tenant": managed.TENANT}}))
        producer = managed.resource("SvcProducer", name, {"tenant": name, "serviceAccount": account, "sourceIds": ["managed"]})
        for manifest in (producer, managed.consumer(name, name)):
            managed.apply(managed.in_namespace(manifest, apps))
        managed.apply(managed.service_account(apps))
        managed.apply(managed.pods(apps, {"idle": managed.idle(cluster)}))
        for kind in (managed.SVC_PRODUCERS, managed.SVC_CONSUMERS):
            managed.wait_ready(kind, name, "--namespace", apps)
        kubectl, secret = ("kubectl", "--namespace", apps), f"svc-consumer-{name}"
        run(*kubectl, "delete", "secret", secret)
        managed.wait_until("a lost Secret is written again", lambda: run(*kubectl, "get", "secret", secret, "--ignore-not-found").strip())
        pod = start(cluster, name, namespace=apps, secret=secret)
        opened(cluster, pod, namespace=apps)
        bound = ("--bound-object-kind=Pod", "--bound-object-name=idle")
        token = run(*kubectl, "create", "token", account, "--audience=svc-ingest", *bound).strip()
        managed.wait_until("an event is accepted", lambda: managed.send(system, token) == 202)
        opened(cluster, pod, namespace=apps, line="read")
        deleted = time.time()
        run(*kubectl, "delete", managed.SVC_CONSUMERS, name)
        seconds = float(finished(cluster, pod, namespace=apps)) - deleted
        left = run(*kubectl, "get", "secret", secret, "--ignore-not-found").strip()
        if seconds > CUT_OFF or left:
            system.report.fail(f"consumers: a deleted resource left its connection open for {seconds:.1f} s, and {left or 'no Secret'}")
        system.report.step("consumers: resource", started, f"read with its Secret; cut off {seconds:.1f} s after its deletion")


def send(system, *last, seconds=90):
    """Sends events until they are acknowledged. The last ones can have given ids, and are sent after the others are stored."""
    started = time.monotonic()
    for ids in [[str(uuid.uuid4()) for _ in range(EVENTS - len(last))], last]:
        while ids:
            try:
                system.client.send(ids)
                break
            except TestError:
                if time.monotonic() - started > seconds:
                    raise
        system.acknowledged += ids


def start(cluster, mode, *names, namespace=None, secret=SECRET, **variables):
    """Starts a pod with clients of consumers. Returns its name."""
    name = f"consumers-{mode}"
    container = {
        "name": "clients",
        "image": dependency("python"),
        "args": ["/consumer_client.py", mode, *names],
        "env": [{"name": key, "value": str(value)} for key, value in variables.items()],
        # As docs/operator.md describes for the Secret of a resource.
        "envFrom": [{"secretRef": {"name": secret}}] if namespace else [],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "logins", "mountPath": "/logins"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "logins", "secret": {"secretName": secret}}],
    }  # fmt: skip
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    managed.apply(managed.in_namespace(manifest, namespace or cluster.namespace))
    return name


def opened(cluster, pod, seconds=60, namespace=None, line="open"):
    """Waits until the clients of a pod have printed a line."""
    logs, started = ("kubectl", "--namespace", namespace or cluster.namespace, "logs", pod), time.monotonic()
    while line not in run(*logs, check=False):
        if time.monotonic() - started > seconds:
            raise TestError(f"{pod}: the client has not printed `{line}`:\n{run(*logs, check=False)}")
        time.sleep(0.3)


def finished(cluster, pod, namespace=None):
    """Waits for the end of a pod. Returns the last line of its output."""
    kubectl = ("kubectl", "--namespace", namespace or cluster.namespace)
    run(*kubectl, "wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    return run(*kubectl, "logs", pod).split()[-1]
