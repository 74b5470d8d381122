"""Reads the streams in a pod of the cluster with the official NATS client."""

import time

NAME = "reader"


def check(cluster, image, acknowledged, report, name):
    """Checks that UDM contains every acknowledged event, and that AUDIT contains audit events."""
    started = time.monotonic()
    cluster.kubectl("delete", "pod", NAME, "--ignore-not-found")
    cluster.apply(pod(image))
    cluster.kubectl("wait", f"pod/{NAME}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    *ids, events, audited = cluster.kubectl("logs", NAME).split()
    stored = set(ids)
    lost = [each for each in acknowledged if each not in stored]
    if audited == "0":
        report.fail(f"{name}: AUDIT is empty")
    if lost:
        report.fail(f"{name}: {len(lost)} acknowledged events are not in the stream, for example {lost[:3]}")
    result = f"{events} events, {len(lost)} of {len(acknowledged)} acknowledged ones lost; {audited} in AUDIT"
    report.step(name, started, result)


def pod(image):
    address = {"name": "NATS_URL", "valueFrom": {"secretKeyRef": {"name": "svc-nats", "key": "administrator-url"}}}
    container = {
        "name": NAME,
        "image": image,
        "env": [address],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}
