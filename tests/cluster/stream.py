"""Reads the streams in a pod of the cluster with the official NATS client and the credential of a consumer."""

import time

NAME = "reader"


class Stream:
    """The events that the consumer has received so far."""

    def __init__(self, cluster, image, report):
        self.cluster, self.image, self.report = cluster, image, report
        self.stored = set()

    def check(self, acknowledged, name):
        """Checks that the consumer receives every acknowledged event, and that AUDIT contains audit events."""
        started, cluster = time.monotonic(), self.cluster
        cluster.kubectl("delete", "pod", NAME, "--ignore-not-found")
        cluster.apply(pod(self.image))
        cluster.kubectl("wait", f"pod/{NAME}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
        *ids, audited = cluster.kubectl("logs", NAME).split()
        self.stored |= set(ids)
        lost = [each for each in acknowledged if each not in self.stored]
        if audited == "0":
            self.report.fail(f"{name}: AUDIT is empty")
        if lost:
            self.report.fail(f"{name}: {len(lost)} acknowledged events are not in the stream, for example {lost[:3]}")
        result = f"{len(ids)} events, {len(lost)} of {len(acknowledged)} acknowledged ones lost; {audited} in AUDIT"
        self.report.step(name, started, result)


def pod(image):
    addresses = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for name, secret, key in (
            ("CONSUMER_URL", "e2e-consumer", "url"),
            ("AUDIT_ADMINISTRATOR_URL", "svc-nats", "audit-administrator-url"),
        )
    ]
    container = {
        "name": NAME,
        "image": image,
        "args": ["/reader.py"],
        "env": addresses,
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
