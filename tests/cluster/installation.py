"""The tested release: its namespace, its dependencies, and the Helm commands."""

import concurrent.futures
import json
import os
import sys
import time

import mail
from builds import OTHER, PRESENT, REGISTRY, dependency
from cluster import ROOT, TestError, run

HOST = "svc.test"
CHART = ROOT / "helm/svc"
# Line of a migration while Postgres does not run.
WAITING = "session: waiting: the database is not available"
COMPONENTS = ("identity", "session", "ingest")
# Usual Services of ingress controllers in development clusters (Traefik, k3d).
INGRESS_SERVICES = ("ingress/traefik", "kube-system/traefik", "traefik/traefik")


class Installation:
    """`other` is the other build (`OtherBuild`), or None. If it is older than this commit, it is installed first."""

    def __init__(self, cluster, work, report, other):
        self.cluster, self.work, self.report, self.other = cluster, work, report, other
        self.first = OTHER if other and other.is_older else PRESENT

    def prepare(self):
        """Creates a namespace with NATS, a mail server, the Secrets, and all of Postgres but its pod."""
        started, cluster = time.monotonic(), self.cluster
        cluster.recreate_namespace()
        development = [sys.executable, ROOT / "deploy/dev/dev.py"]
        run(*development, "secrets", "--namespace", cluster.namespace)
        images = [f"--{name}-image={dependency(name)}" for name in ("postgres", "nats")]
        images.append(f"--accounts-image={REGISTRY}/svc-ingest:{PRESENT}")
        for manifest in run(*development, "manifests", *images).split("\n---\n"):
            if "kind: Deployment\nmetadata: {name: postgres" in manifest:
                self.postgres = manifest
            else:
                cluster.apply(manifest)
        cluster.rolled_out("nats")
        mail.install(cluster, dependency("python"))
        self.report.step("NATS and mail server", started, "ready")

    def install(self):
        """Installs the release while Postgres does not run. Starts Postgres when the migrations wait for it."""
        started, cluster = time.monotonic(), self.cluster
        with concurrent.futures.ThreadPoolExecutor() as background:
            installed = background.submit(self.release, "install", self.first)
            migrations = f"app.kubernetes.io/instance={cluster.release},app.kubernetes.io/component=session-migration"
            while WAITING not in cluster.kubectl("logs", "--selector", migrations, check=False):
                if installed.done():
                    installed.result()
                    raise TestError("the release was installed without Postgres")
                time.sleep(0.5)
            waited = time.monotonic() - started
            cluster.apply(self.postgres)
            installed.result()
        self.report.step("helm install --wait", started, f"ready; the migrations waited for Postgres, which started after {waited:.0f} s")

    def release(self, verb, tag, *options, name=None, seconds=300, chart=None):
        self.cluster.helm(
            verb, name or self.cluster.release, chart or self.chart(tag), *self.values_options(tag), *options,
            "--wait", "--wait-for-jobs", "--timeout", f"{seconds}s",
        )  # fmt: skip

    def chart(self, tag):
        return self.other.root / "helm/svc" if tag == OTHER else CHART

    def values_options(self, tag):
        chart, values = self.chart(tag), self.work / f"values-{tag}.json"
        values.write_text(json.dumps(chart_values(chart)))
        return ["--values", chart / "values-dev.yaml", "--values", values, "--set", f"image.tag={tag}"]

    def rollback(self):
        """Rolls back to the previous revision."""
        self.cluster.helm("rollback", self.cluster.release, "--wait", "--wait-for-jobs", "--timeout", "300s")

    def test(self):
        started = time.monotonic()
        try:
            self.cluster.helm("test", self.cluster.release, "--timeout", "120s")
            self.report.step("helm test", started, "passed")
        except TestError as error:
            self.report.fail(str(error))
            self.report.step("helm test", started, "FAILED")


def chart_values(chart):
    # Limits per address are off, because all clients share the address of the ingress of the test cluster.
    variables = json.loads((chart / "files/variables.json").read_text())
    component = {"replicas": 2, "lifecycle": {"preStopSeconds": 10}}
    return {
        **{name: {**component, "env": limits_off(variables, name)} for name in COMPONENTS},
        "publicUrl": f"http://{HOST}",
        "image": {"registry": REGISTRY},
        "ingress": {"enabled": True},
        "mail": mail.VALUES,
        "tests": {
            "existingSecret": "e2e-user",
            "hostAliases": [{"ip": ingress_service()["spec"]["clusterIP"], "hostnames": [HOST]}],
        },
    }


def limits_off(variables, component):
    """Returns variables that disable every limit of the component."""
    return {name: "off" for name in variables[component]["plain"] if name.startswith("SVC_LIMIT_")}


def ingress_service():
    """Returns the Service of the ingress controller, which pods use as the address of the ingress."""
    override = os.environ.get("E2E_INGRESS")
    for place in [override] if override else INGRESS_SERVICES:
        namespace, _, name = place.partition("/")
        found = run("kubectl", "--namespace", namespace, "get", "service", name, "--output", "json", check=False)
        if found:
            return json.loads(found)
    raise TestError(
        f"no ingress controller at {override or ', '.join(INGRESS_SERVICES)}: set E2E_INGRESS to <namespace>/<Service>"
    )
