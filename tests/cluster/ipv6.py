"""IPv6: each service listens on `[::]` (value `listenAddress`), shown by a container that connects to `[::1]` in its pod.

It needs no IPv6 network in the cluster: the loopback address of a pod does not depend on it.
"""

import json
import sys
import time
from pathlib import Path

import builds
from cluster import TestError

CONTAINER = "ipv6"
# Prints the status of the readiness probe over IPv6 and over IPv4.
CODE = """
import urllib.request
for address in ("[::1]", "127.0.0.1"):
    print(urllib.request.urlopen(f"http://{address}:9090/readyz", timeout=10).status)
"""


def connect_over_ipv6(system):
    started, cluster = time.monotonic(), system.cluster
    for component in ("identity", "session", "ingest"):
        pod = cluster.pods(component)[0]["metadata"]["name"]
        program = str(Path(sys.executable).resolve())
        cluster.kubectl(
            "debug", pod, "--image", builds.dependency("python"), "--container", CONTAINER, "--profile=restricted", "--", program, "-c", CODE
        )
        output = finished(cluster, pod)
        if output.split() != ["200", "200"]:
            system.report.fail(f"{component} does not answer over [::1] and 127.0.0.1: {output}")
    system.report.step("IPv6", started, "identity, session and ingest answer over [::1] and 127.0.0.1")


def finished(cluster, pod, seconds=60):
    """Waits until the container has ended. Returns its output."""
    deadline = time.monotonic() + seconds
    while True:
        states = cluster.get("pod", pod)["status"].get("ephemeralContainerStatuses", [])
        if any("terminated" in each["state"] for each in states):
            return cluster.kubectl("logs", pod, "--container", CONTAINER)
        if time.monotonic() > deadline:
            raise TestError(f"the container {CONTAINER} of {pod} has not ended: {json.dumps(states)}")
        time.sleep(0.5)
