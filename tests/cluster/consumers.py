"""Consumers with the default options of their client: many at once, a deleted one, and one that reads while NATS is killed."""

import json
import time
import uuid

from builds import dependency
from cluster import TestError

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
    cluster, started = system.cluster, time.monotonic()
    created(system, ["survivor"], "--start", "new")
    pod = start(cluster, "survivor", "survivor", EVENTS=2 * EVENTS)
    opened(cluster, pod)
    send(system)
    killed = cluster.kill(cluster.get("pods", "--selector", "app=nats")["items"][0])
    send(system)
    result = finished(cluster, pod)
    if result != str(2 * EVENTS):
        system.report.fail(f"consumers: {result} of {2 * EVENTS} events were read")
    system.report.step("consumers: NATS killed", started, f"{killed}; {result} of {2 * EVENTS} events read")


def send(system, seconds=90):
    """Sends events until they are acknowledged."""
    ids, started = [str(uuid.uuid4()) for _ in range(EVENTS)], time.monotonic()
    while True:
        try:
            system.client.send(ids)
            break
        except TestError:
            if time.monotonic() - started > seconds:
                raise
    system.acknowledged += ids


def start(cluster, mode, *names, **variables):
    """Starts a pod with clients of consumers. Returns its name."""
    name = f"consumers-{mode}"
    container = {
        "name": "clients",
        "image": dependency("python"),
        "args": ["/consumer_client.py", mode, *names],
        "env": [{"name": key, "value": str(value)} for key, value in variables.items()],
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
        "volumes": [{"name": "logins", "secret": {"secretName": SECRET}}],
    }  # fmt: skip
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    return name


def opened(cluster, pod, seconds=60):
    """Waits until the clients of a pod are connected."""
    started = time.monotonic()
    while "open" not in cluster.kubectl("logs", pod, check=False):
        if time.monotonic() - started > seconds:
            raise TestError(f"{pod}: the client is not connected:\n{cluster.kubectl('logs', pod, check=False)}")
        time.sleep(0.3)


def finished(cluster, pod):
    """Waits for the end of a pod. Returns the last line of its output."""
    cluster.kubectl("wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    return cluster.kubectl("logs", pod).split()[-1]
