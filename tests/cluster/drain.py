"""`kubectl drain` of a node with pods of the release: it evicts them one by one, as the disruption budgets allow."""

import json

from builds import PRESENT
from cluster import run
from installation import COMPONENTS

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget"
TAINT = "node.kubernetes.io/unschedulable"


def drain_node(system):
    installation, cluster = system.installation, system.cluster
    nodes = json.loads(run("kubectl", "get", "nodes", "--output", "json"))["items"]
    if len(nodes) == 1:
        # The replacements start on the drained node, because no other one exists.
        tolerations = json.dumps([{"key": TAINT, "operator": "Exists"}])
        options = [word for name in COMPONENTS for word in ("--set-json", f"{name}.tolerations={tolerations}")]
        installation.release("upgrade", PRESENT, *options)
    node = cluster.pods("ingest")[0]["spec"]["nodeName"]
    system.disturb("drain a node", lambda: drain(system, node))


def drain(system, node):
    before = names(system)
    selector = f"app.kubernetes.io/instance={system.cluster.release}"
    try:
        output = run(
            "kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={selector}", "--timeout=300s",
            with_errors=True,
        )  # fmt: skip
    finally:
        run("kubectl", "uncordon", node)
    refused = output.count(REFUSED)
    if not refused:
        system.report.fail("drain: no eviction was refused, so the disruption budgets had no effect")
    remaining = before & names(system)
    if remaining:
        system.report.fail(f"drain: pods remain on the node: {', '.join(sorted(remaining))}")
    return f"{len(before)} pods evicted, {refused} evictions refused (429) and repeated"


def names(system):
    return {pod["metadata"]["name"] for component in COMPONENTS for pod in system.cluster.pods(component)}
