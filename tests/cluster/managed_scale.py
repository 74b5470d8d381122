"""Figures of the operator: how fast resources are ready, how fast a removed producer is rejected, and a thousand tenants."""

import json
import statistics
import time

from cluster import NODE, is_of, run
from managed import (
    SVC_PRODUCERS, SVC_TENANTS, apply, in_namespace, leader, operator, producer, resource, send, tenant, token_of_pod, wait_ready, wait_until,
)  # fmt: skip

TRIES = 50
TENANTS, PRODUCERS = 1000, 5000


def measure_operator(system):
    with operator(system) as apps:
        measure_tenants(system)
        measure_rejections(system, apps)
        measure_many(system, apps)


def measure_tenants(system):
    cluster, started, seconds = system.cluster, time.monotonic(), []
    for number in range(TRIES):
        applied = time.monotonic()
        cluster.apply(tenant(f"fast-{number}"))
        wait_ready(SVC_TENANTS, f"fast-{number}")
        seconds.append(time.monotonic() - applied)
    system.report.step("operator: tenants", started, f"{TRIES} tenants, ready after {summary(seconds)}")


def measure_rejections(system, apps):
    """Under load, the producer is deleted again and again."""
    started, seconds, token = time.monotonic(), [], token_of_pod(system, apps)

    def remove_again_and_again():
        for _ in range(TRIES):
            apply(in_namespace(producer(), apps))
            wait_until("the token of the pod is accepted", lambda: send(system, token) == 202)
            run("kubectl", "delete", SVC_PRODUCERS, "collector", "--namespace", apps, "--wait=false")
            deleted = time.monotonic()
            wait_until("the token of the pod is rejected", lambda: send(system, token) == 401)
            seconds.append(time.monotonic() - deleted)

    system.disturb("operator: deleted producers", remove_again_and_again)
    system.report.step("operator: deleted producers", started, f"{TRIES} times, rejected after {summary(seconds)}")


def measure_many(system, apps):
    """The resources exist before the operator starts. Afterwards, nothing changes: the operator sends no requests."""
    cluster = system.cluster
    cluster.kubectl("scale", f"deployment/{cluster.release}-operator", "--replicas=0")
    selector = {"displayName": "Many", "allowedNamespaces": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]}}
    many = [resource("SvcTenant", f"many-{number}", selector) for number in range(TENANTS)]
    create(many)
    spec = lambda number: {"tenant": f"many-{number % TENANTS}", "serviceAccount": f"account-{number}", "sourceIds": ["a"]}  # noqa: E731
    create([in_namespace(resource("SvcProducer", f"many-{number}", spec(number)), apps) for number in range(PRODUCERS)])
    started = time.monotonic()
    cluster.kubectl("scale", f"deployment/{cluster.release}-operator", "--replicas=2")
    leader(cluster)
    leading = time.monotonic() - started
    # Ready producers need ready tenants. A list of all takes a second of processor time, so they are read every five seconds.
    wait_until("all producers are ready", lambda: ready(SVC_PRODUCERS) >= PRODUCERS, 600, interval=5)
    seconds = time.monotonic() - started
    detail = f"ready {seconds:.0f} s after the operator started, which led after {leading:.0f} s; {memory(cluster, leader(cluster))}"
    system.report.step(f"operator: {TENANTS} tenants, {PRODUCERS} producers", started, detail)
    started, before = time.monotonic(), requests()
    time.sleep(60)
    system.report.step("operator: idle for a minute", started, f"{requests() - before} requests to the API server about its resources")


def create(items):
    run("kubectl", "create", "--filename", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def ready(kind):
    statuses = '{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    return run("kubectl", "get", kind, "--all-namespaces", f"--output=jsonpath={statuses}").split().count("True")


def memory(cluster, pod):
    """Returns the peak of the resident memory of the program in a pod."""
    if not NODE:
        return "memory unknown: set E2E_NODE_EXEC"
    script = f"for p in /proc/[0-9]*; do {is_of(pod)} && grep VmHWM $p/status; done; true"
    kilobytes = [int(line.split()[1]) for line in run(*NODE, "sh", "-c", script).splitlines()]
    return f"{max(kilobytes) / 1024:.0f} MiB of memory at most"


def requests():
    """Returns the number of requests about the resources of the operator, without watches, and without those of this function."""
    lines = run("kubectl", "get", "--raw", "/metrics").splitlines()
    found = [line for line in lines if line.startswith("apiserver_request_total{") and 'group="svc.internal"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in found if 'verb="WATCH"' not in line))


def summary(seconds):
    ordered = sorted(seconds)
    percentile = lambda percent: ordered[max(0, -(-len(ordered) * percent // 100) - 1)]  # noqa: E731
    return f"{statistics.median(seconds):.2f} s (p50), {percentile(95):.2f} s (p95), {percentile(99):.2f} s (p99)"
