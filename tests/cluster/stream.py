"""The stream as a consumer in the cluster sees it: a pod reads all of it, with a NATS client that nobody here wrote."""

import time

NAME = "reader"


def check(cluster, image, acknowledged, report, name):
    """Every acknowledged event is in the stream."""
    started = time.monotonic()
    cluster.kubectl("delete", "pod", NAME, "--ignore-not-found")
    cluster.apply(pod(image))
    cluster.kubectl("wait", f"pod/{NAME}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    lines = cluster.kubectl("logs", NAME).split()
    held = set(lines)
    lost = [each for each in acknowledged if each not in held]
    if lost:
        report.complain(f"{name}: {len(lost)} acknowledged events are not in the stream, as {lost[:3]}")
    report.step(name, started, f"{lines[-1]} events, {len(lost)} of {len(acknowledged)} acknowledged ones lost")


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
