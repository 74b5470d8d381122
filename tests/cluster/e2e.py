#!/usr/bin/env python3
"""Installs the chart on a real cluster and does to it what a platform does: upgrade, rollback, lost pods, all under load.

Environment:
  KUBECONFIG         the cluster; its namespace E2E_NAMESPACE (svc-e2e) is made anew and removed at the end
  E2E_HTTP           address of its front door from this machine, as 127.0.0.1:80
  E2E_LOAD_IMAGE     command that takes an image archive, where deploy/load.py does not know one by itself
  E2E_FRONT_DOOR     namespace/name of the ingress controller's Service, where it is none of the usual ones
  E2E_GATEWAY_CLASS  GatewayClass for the HTTPRoute (default: the first there is; without any, Ingress alone is tested)
  E2E_GATEWAY_PORT   port of the Gateway's listener (default: 8000, Traefik's own)
  E2E_NODE_EXEC      command that runs another on the node, to kill with SIGKILL (as `docker exec kind-control-plane`)
  E2E_PROFILE        `dev` for binaries of the development profile (default: release)
  E2E_KEEP           set to keep the namespace for a look
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "deploy")]

import builds  # noqa: E402
import load  # noqa: E402
import refusals  # noqa: E402
import routes  # noqa: E402
import stream  # noqa: E402
from client import ACCOUNT, Client, log_in  # noqa: E402
from cluster import Cluster, Failure, current, run  # noqa: E402
from disturbances import Disturbances  # noqa: E402
from installation import Installation  # noqa: E402
from report import Report  # noqa: E402

# Sessions that have to outlive everything.
SESSIONS = 10


def main():
    context = current()
    address = os.environ.get("E2E_HTTP") or sys.exit(
        "e2e.py: set E2E_HTTP to the address of the cluster's front door, as 127.0.0.1:80"
    )
    cluster, report = Cluster(os.environ.get("E2E_NAMESPACE", "svc-e2e")), Report()
    print(f"cluster {context}, front door {address}", flush=True)
    with tempfile.TemporaryDirectory() as work:
        builds.make(Path(work), report)
        try:
            test(cluster, address, Path(work), report)
        finally:
            report.print()
            if not os.environ.get("E2E_KEEP"):
                run("kubectl", "delete", "namespace", cluster.namespace, "--ignore-not-found", "--wait=false")
    if report.complaints:
        raise Failure("\n".join(["not as it must be:", *report.complaints]))


def test(cluster, address, work, report):
    installation = Installation(cluster, work, report)
    installation.prepare()
    refusals.first_installation_without_secrets(installation, report)
    installation.install()
    doors = routes.opened(cluster, address, installation, builds.TAGS[0], report)
    client = Client(builds.program("svc"), address, work)
    acknowledged = first_use(cluster, client, report)
    installation.test()
    tokens = [log_in(doors[0]) for _ in range(SESSIONS)]
    stream.check(cluster, builds.other("reader"), acknowledged, report, "stream read by a pod")
    disturbances = Disturbances(installation, doors, client, tokens, report)
    disturbances.all()
    refusals.upgrade_on_another_version(installation, disturbances)
    acknowledged += disturbances.acknowledged
    stream.check(cluster, builds.other("reader"), acknowledged, report, "stream read by a pod, at the end")


def first_use(cluster, client, report):
    """What a new user does; returns the ids of the events that were acknowledged."""
    started = time.monotonic()
    client.make_account(cluster.secret("svc-tokens", "platform-token"))
    ids = [f"first-{number}" for number in range(100)]
    client.send(ids)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "e2e-user"}, "stringData": ACCOUNT}
    cluster.apply(secret)
    report.step("tenant, login, 100 events with svc", started, "done")
    return ids


if __name__ == "__main__":
    try:
        main()
    except (Failure, load.Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"e2e.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
