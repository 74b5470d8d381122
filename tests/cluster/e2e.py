#!/usr/bin/env python3
"""Installs the chart on a real cluster and tests upgrade, rollback and lost pods under load.

Environment:
  KUBECONFIG         configuration of the cluster; the namespace E2E_NAMESPACE (default: svc-e2e) is recreated, and deleted at the end
  E2E_HTTP           address of the ingress from this machine, for example 127.0.0.1:80
  E2E_LOAD_IMAGE     command that loads an image archive, if deploy/load.py does not support the cluster
  E2E_INGRESS        namespace/name of the Service of the ingress controller (default: the usual names)
  E2E_GATEWAY_CLASS  GatewayClass for the HTTPRoute (default: the first one; without one, only Ingress is tested)
  E2E_GATEWAY_PORT   port of the Gateway's listener (default: 8000, as in Traefik)
  E2E_NODE_EXEC      command that runs a command on the node, for SIGKILL (for example `docker exec kind-control-plane`)
  E2E_PROFILE        `dev` for binaries of the development profile (default: release)
  E2E_KEEP           if set, the namespace is not deleted
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
import rejections  # noqa: E402
import routes  # noqa: E402
from client import ACCOUNT, Client, log_in  # noqa: E402
from cluster import Cluster, TestError, current, run  # noqa: E402
from disturbances import Disturbances  # noqa: E402
from installation import Installation  # noqa: E402
from report import Report  # noqa: E402
from stream import Stream  # noqa: E402

# Number of sessions that must stay active during all disturbances.
SESSIONS = 10


def main():
    context = current()
    address = os.environ.get("E2E_HTTP") or sys.exit(
        "e2e.py: set E2E_HTTP to the address of the ingress of the cluster, for example 127.0.0.1:80"
    )
    cluster, report = Cluster(os.environ.get("E2E_NAMESPACE", "svc-e2e")), Report()
    print(f"cluster {context}, ingress {address}", flush=True)
    with tempfile.TemporaryDirectory() as work:
        builds.make(Path(work), report)
        try:
            test(cluster, address, Path(work), report)
        finally:
            report.print()
            if not os.environ.get("E2E_KEEP"):
                run("kubectl", "delete", "namespace", cluster.namespace, "--ignore-not-found", "--wait=false")
    if report.failures:
        raise TestError("\n".join(["failures:", *report.failures]))


def test(cluster, address, work, report):
    installation = Installation(cluster, work, report)
    installation.prepare()
    rejections.first_installation_without_secrets(installation, report)
    installation.install()
    entries = routes.opened(cluster, address, installation, builds.TAGS[0], report)
    client = Client(builds.program("svc"), address, work)
    acknowledged = first_use(cluster, client, report)
    installation.test()
    tokens = [log_in(entries[0]) for _ in range(SESSIONS)]
    stream = Stream(cluster, builds.other("reader"), report)
    stream.check(acknowledged, "stream read by a consumer")
    disturbances = Disturbances(installation, entries, client, tokens, report)
    disturbances.all()
    rejections.upgrade_on_another_version(installation, disturbances)
    acknowledged += disturbances.acknowledged
    stream.check(acknowledged, "stream read by a consumer, at the end")


def first_use(cluster, client, report):
    """Runs the first steps of a new user. Returns the ids of the acknowledged events."""
    started = time.monotonic()
    platform_token = cluster.secret("svc-tokens", "platform-token")
    client.make_account(platform_token)
    client.svc("consumers", "create", "consumer", SVC_PLATFORM_TOKEN=platform_token)
    ids = [f"first-{number}" for number in range(100)]
    client.send(ids)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "e2e-user"}, "stringData": ACCOUNT}
    cluster.apply(secret)
    report.step("tenant, login, 100 events with svc", started, "done")
    return ids


if __name__ == "__main__":
    try:
        main()
    except (TestError, load.LoadError, subprocess.CalledProcessError) as error:
        sys.exit(f"e2e.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
