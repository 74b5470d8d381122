"""Events per second with one to four pods of ingest, each limited to a tenth of a core, so that the node is not the limit."""

import json
import time

from builds import PRESENT
from client import first_client
from cluster import Cluster
from installation import Installation

PODS = (1, 2, 3, 4)
CPU_LIMIT = "100m"
# The events of all runs fit into the stream.
STREAM = ["--set", "nats.stream.maxBytes=700MiB", "--set-string", "ingest.env.SVC_TENANT_STREAM_SHARE=100"]
# Events per number of pods: several seconds.
EVENTS = 160_000
PADDING = "x" * 400


def measure_ingest(namespace, work, report):
    cluster = Cluster(f"{namespace}-scale")
    installation = Installation(cluster, work, report, None)
    try:
        installation.prepare()
        installation.install()
        client = first_client(cluster, work)
        first = None
        for pods in PODS:
            limit(installation, pods)
            started = time.monotonic()
            rate = events_per_second(client, pods)
            first = first or rate
            report.step(f"ingest: {pods} x {CPU_LIMIT} CPU", started, f"{rate:,.0f} events/s, {rate / first:.2f} times one pod")
    finally:
        cluster.delete_namespace()


def limit(installation, pods):
    """Upgrades to this number of pods, each with the limit."""
    options = [f"ingest.replicas={pods}", f"ingest.resources.limits.cpu={CPU_LIMIT}"]
    installation.release("upgrade", PRESENT, *STREAM, *(word for option in options for word in ("--set", option)))
    installation.cluster.wait_until_ready()


def events_per_second(client, run):
    """Returns the rate of batches of 500 events of 500 bytes. The ids of the events contain the run, so that none is a duplicate."""
    text = "\n".join(event(f"{run}-{number}") for number in range(EVENTS))
    started = time.monotonic()
    client.svc("events", "send", "--file", "-", text=text)
    return EVENTS / (time.monotonic() - started)


def event(event_id):
    metadata = {"event_type": "NETWORK_CONNECTION", "description": PADDING}
    return json.dumps({"source_id": "scale", "event_id": event_id, "metadata": metadata})
