#!/usr/bin/env python3
"""Installs the chart on a real cluster and tests it under load. `--only` and `--skip` select steps.

Environment:
  KUBECONFIG         configuration of the cluster; the namespaces E2E_NAMESPACE (default: svc-e2e) and E2E_NAMESPACE-… are recreated, and
                     deleted at the end
  E2E_HTTP           address of the ingress from this machine, for example 127.0.0.1:80
  E2E_LOAD_IMAGE     command that loads an image archive, if deploy/load.py does not support the cluster
  E2E_INGRESS        namespace/name of the Service of the ingress controller (default: the usual names)
  E2E_GATEWAY_CLASS  GatewayClass for the HTTPRoute (default: the first one; without one, only Ingress is tested)
  E2E_GATEWAY_PORT   port of the Gateway's listener (default: 8000, as in Traefik)
  E2E_NODE_EXEC      command that runs a command on the node, for signals (for example `docker exec kind-control-plane`)
  E2E_AUDIT_LOG      command that prints the audit log of the API server (level Metadata), to compare it with the rights of the operator
  E2E_FROM           commit that is upgraded to this one (default: the newest tag before it; without a tag, this commit is upgraded to a build
                     with three more migrations)
  E2E_PROFILE        `dev` for binaries of the development profile (default: release)
  E2E_KEEP           if set, the namespaces are not deleted
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "deploy")]

import autoscaling  # noqa: E402
import builds  # noqa: E402
import consumers  # noqa: E402
import disturbances  # noqa: E402
import drain  # noqa: E402
import ingest_scale  # noqa: E402
import ipv6  # noqa: E402
import leaders  # noqa: E402
import load  # noqa: E402
import managed  # noqa: E402
import managed_faults  # noqa: E402
import managed_scale  # noqa: E402
import managed_token  # noqa: E402
import metrics  # noqa: E402
import names  # noqa: E402
import other_build  # noqa: E402
import production  # noqa: E402
import rejections  # noqa: E402
import restore  # noqa: E402
import rotation  # noqa: E402
import routes  # noqa: E402
import trial  # noqa: E402
from client import ACCOUNT, Client, log_in  # noqa: E402
from cluster import Cluster, TestError, current  # noqa: E402
from installation import Installation  # noqa: E402
from report import Report  # noqa: E402
from stream import Stream  # noqa: E402
from system import System  # noqa: E402

# Number of sessions that must stay active during all disturbances.
SESSIONS = 10

# Steps with one installed system, in this order.
STEPS = {
    "no-secrets": rejections.install_without_secrets,
    "upgrade": disturbances.upgrade_and_rollback,
    "lost-pods": disturbances.lose_pods,
    "drain": drain.drain_node,
    "wrong-version": rejections.upgrade_on_another_version,
    "leftover-job": rejections.upgrade_with_leftover_job,
    "abandoned-upgrade": rejections.upgrade_after_abandoned_one,
    "autoscaling": autoscaling.scale_ingest,
    "rotation": rotation.rotate_secrets,
    "consumers": consumers.read_with_consumers,
    "restore": restore.restore_database,
    "ipv6": ipv6.connect_over_ipv6,
    "operator-names": names.compare_names,
    "operator": managed.manage_tenants,
    "operator-faults": managed_faults.disturb_operator,
    "operator-token": managed_token.outlive_token,
    "operator-scale": managed_scale.measure_operator,
}
# Steps with a separate installation.
OWN_INSTALLATION = {
    "trial": trial.install_trial,
    "production": production.install_documented_values,
    "leaders": leaders.move_leaders,
    "ingest-scale": ingest_scale.measure_ingest,
}


def main():
    steps = selected()
    context = current()
    address = os.environ.get("E2E_HTTP") or sys.exit(
        "e2e.py: set E2E_HTTP to the address of the ingress of the cluster, for example 127.0.0.1:80"
    )
    namespace, report = os.environ.get("E2E_NAMESPACE", "svc-e2e"), Report()
    print(f"cluster {context}, ingress {address}, steps: {', '.join(steps)}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        other = other_build.prepare() if "upgrade" in steps else None
        builds.make(work, report, other)
        metrics.remove()
        try:
            if on_system := [STEPS[step] for step in steps if step in STEPS]:
                test_system(Installation(Cluster(namespace), work, report, other), address, work, on_system)
            for step in steps:
                if step in OWN_INSTALLATION:
                    OWN_INSTALLATION[step](namespace, work, report)
        finally:
            report.print()
    if report.failures:
        raise TestError("\n".join(["failures:", *report.failures]))


def selected():
    """Returns the steps that the arguments select."""
    known = [*STEPS, *OWN_INSTALLATION]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"Steps: {', '.join(known)}"
    )
    parser.add_argument("--only", action="append", choices=known, metavar="STEP", help="run only this step; can be repeated")
    parser.add_argument("--skip", action="append", choices=known, metavar="STEP", default=[], help="do not run this step; can be repeated")
    options = parser.parse_args()
    return [name for name in known if name in (options.only or known) and name not in options.skip]


def test_system(installation, address, work, steps):
    cluster, report = installation.cluster, installation.report
    try:
        installation.prepare()
        installation.install()
        entries = routes.opened(cluster, address, installation, report)
        client = Client(builds.program("svc"), address, work)
        acknowledged = first_use(cluster, client, report)
        installation.test()
        tokens = [log_in(entries[0]) for _ in range(SESSIONS)]
        stream = Stream(cluster, builds.dependency("python"), report)
        stream.check(acknowledged, "stream read by a consumer")
        system = System(installation, entries, client, tokens, report)
        for step in steps:
            step(system)
            # After each step: Kubernetes replaces the log of the reader at 10 MiB, which is about 140,000 events.
            stream.check(acknowledged + system.acknowledged, "stream read by a consumer")
    except TestError:
        print(cluster.state(), flush=True)
        raise
    finally:
        cluster.delete_namespace()


def first_use(cluster, client, report):
    """Runs the first steps of a new user. Returns the ids of the acknowledged events."""
    started = time.monotonic()
    platform_token = cluster.secret("svc-tokens", "platform-token")
    client.make_account(platform_token)
    created = client.svc("consumers", "create", "consumer", "--output", "json", SVC_PLATFORM_TOKEN=platform_token)
    login = json.loads(created)["login"]
    url = f"nats://{login['user']}:{login['password']}@nats:4222"
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "e2e-consumer"}, "stringData": {"url": url}})
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
