"""Autoscaling of ingest: under high load from 2 to 4 pods, under low load back to 2, without a failed request."""

import contextlib
import json
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import metrics
from builds import PRESENT
from cluster import TestError

LEAST, MOST = 2, 4
# The target is 56 millicores per pod: less than under high load, and more than under low load, also with the development profile.
VALUES = {
    "ingest.autoscaling": {"enabled": True, "minReplicas": LEAST, "maxReplicas": MOST, "targetCPU": 70},
    "ingest.resources.requests.cpu": "80m",
}
# The default behavior waits 5 minutes before it removes pods.
SOON = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
# Seconds between two requests of a thread under low load: 2 pods need less than their target utilization.
PAUSE = 0.5
THREADS = 4
# The same events again and again: the stream stores them once.
BURST = [{"source_id": "burst", "event_id": f"burst-{number}"} for number in range(100)]


def scale_ingest(system):
    with TemporaryDirectory() as work, metrics.available(system.cluster, Path(work), system.report):
        installation, cluster = system.installation, system.cluster
        options = [word for name, value in VALUES.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
        installation.release("upgrade", PRESENT, *options)
        cluster.kubectl("patch", "hpa", f"{cluster.release}-ingest", "--patch", json.dumps(SOON))
        system.disturb("autoscaling of ingest", lambda: up_and_down(system), pause=PAUSE)
        installation.release("upgrade", PRESENT)


def up_and_down(system):
    started = time.monotonic()
    with burst(system):
        wait_for_pods(system, MOST)
    up = time.monotonic()
    wait_for_pods(system, LEAST)
    return f"{LEAST} to {MOST} pods in {up - started:.0f} s, back to {LEAST} in {time.monotonic() - up:.0f} s"


@contextlib.contextmanager
def burst(system):
    """Context with high load on ingest. Each request must succeed."""
    stop, entry = threading.Event(), system.entries[0]
    bearer = {"Authorization": f"Bearer {system.tokens[0]}"}

    def send():
        connection = entry.connection()
        while not stop.is_set():
            connection, status, body = entry.request(connection, "POST", "/events/batch", BURST, bearer)
            if status != 202:
                system.report.fail(f"autoscaling: a request of the high load failed: {status} {str(body)[:200]}")

    threads = [threading.Thread(target=send, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def wait_for_pods(system, number, seconds=300):
    """Waits until the autoscaler wants this number of pods, and all are ready."""
    cluster, name = system.cluster, f"{system.cluster.release}-ingest"
    deadline = time.monotonic() + seconds
    while True:
        deployment = cluster.get("deployment", name)
        if deployment["spec"]["replicas"] == number == deployment["status"].get("readyReplicas", 0) == len(cluster.pods("ingest")):
            return
        if time.monotonic() > deadline:
            raise TestError(f"ingest has not scaled to {number} pods:\n{cluster.kubectl('describe', 'hpa', name)}")
        time.sleep(1)
