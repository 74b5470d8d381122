"""A pod sends events for longer than its token is valid. Kubernetes replaces the token in between."""

import json
import time

from cluster import NODE, run
from managed import SVC_PRODUCERS, TENANT, apply, events, in_namespace, operator, pods, producer, sender, service_account, tenant, wait_ready, wait_until

# Kubernetes issues tokens for at least ten minutes, and replaces them after eight. The quota makes the sender take longer.
EVENTS, EVENTS_PER_SECOND = 10_000, 16
TOKEN = "/var/run/secrets/svc/token"


def outlive_token(system):
    if not NODE:
        system.report.step("operator: replaced token", time.monotonic(), "not run: set E2E_NODE_EXEC")
        return
    with operator(system) as apps:
        cluster, kubectl = system.cluster, ("kubectl", "--namespace", apps)
        cluster.apply(tenant(TENANT, quota={"eventsPerSecond": EVENTS_PER_SECOND}))
        for manifest in (service_account(apps), in_namespace(producer(), apps), events(apps, EVENTS)):
            # `kubectl apply` would store the manifest in an annotation, which is too small.
            run("kubectl", "create", "--filename", "-", text=json.dumps(manifest))
        wait_ready(SVC_PRODUCERS, "collector", "--namespace", apps)
        started = time.monotonic()
        apply(pods(apps, {"sender": sender(cluster, "--batch-size=12", "--concurrency=1")}))
        run(*kubectl, "wait", "pod/sender", "--for=condition=Ready", "--timeout=60s")
        pod = json.loads(run(*kubectl, "get", "pod", "sender", "--output", "json"))
        token = cluster.file(pod, TOKEN)
        wait_until("the token is replaced", lambda: cluster.file(pod, TOKEN) not in ("", token), 600, interval=5)
        replaced = time.monotonic() - started
        run(*kubectl, "wait", "pod/sender", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=1500s", seconds=1600)
        if run(*kubectl, "get", "pod", "sender", "--output=jsonpath={.status.containerStatuses[0].restartCount}") != "0":
            system.report.fail("operator: the sender stopped when its token was replaced")
        system.report.step("operator: replaced token", started, f"{EVENTS} events; the token was replaced after {replaced:.0f} s")
