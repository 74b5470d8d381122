"""The tested release: its namespace, its dependencies, and the Helm commands."""

import json
import os
import sys
import time

from builds import REGISTRY, TAGS, other
from cluster import ROOT, TestError, run

HOST = "svc.test"
CHART = ROOT / "helm/svc"
COMPONENTS = ("identity", "session", "ingest")
# Usual Services of ingress controllers in development clusters (Traefik, k3d).
INGRESS_SERVICES = ("ingress/traefik", "kube-system/traefik", "traefik/traefik")


class Installation:
    def __init__(self, cluster, work, report):
        self.cluster, self.report = cluster, report
        self.values = work / "values.json"

    def prepare(self):
        """Creates a namespace that enforces Pod Security restricted, with Postgres, NATS and the Secrets."""
        started, cluster = time.monotonic(), self.cluster
        run("kubectl", "delete", "namespace", cluster.namespace, "--ignore-not-found", "--timeout=180s")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace, "labels": labels}}
        )
        development = [sys.executable, ROOT / "deploy/dev/dev.py"]
        run(*development, "secrets", "--namespace", cluster.namespace)
        cluster.apply(
            run(*development, "manifests", *(f"--{name}-image={other(name)}" for name in ("postgres", "nats")))
        )
        for name in ("postgres", "nats"):
            cluster.rolled_out(name)
        self.values.write_text(json.dumps(chart_values()))
        self.report.step("Postgres and NATS", started, "ready")

    def install(self):
        started = time.monotonic()
        self.release("install", TAGS[0])
        self.report.step("helm install --wait", started, "ready")

    def release(self, verb, tag, *options, name=None, seconds=300):
        self.cluster.helm(
            verb, name or self.cluster.release, CHART, *self.values_options(tag), *options,
            "--wait", "--wait-for-jobs", "--timeout", f"{seconds}s",
        )  # fmt: skip

    def values_options(self, tag):
        return ["--values", CHART / "values-dev.yaml", "--values", self.values, "--set", f"image.tag={tag}"]

    def rollback(self):
        """Rolls back to the first revision."""
        self.cluster.helm("rollback", self.cluster.release, "1", "--wait", "--wait-for-jobs", "--timeout", "300s")

    def test(self):
        started = time.monotonic()
        try:
            self.cluster.helm("test", self.cluster.release, "--timeout", "120s")
            self.report.step("helm test", started, "passed")
        except TestError as error:
            self.report.fail(str(error))
            self.report.step("helm test", started, "FAILED")


def chart_values():
    # Limits per address are off, because all clients share the address of the ingress of the test cluster.
    variables = json.loads((CHART / "files/variables.json").read_text())
    component = {"replicas": 2, "lifecycle": {"preStopSeconds": 10}}
    return {
        **{name: {**component, "env": limits_off(variables, name)} for name in COMPONENTS},
        "publicUrl": f"http://{HOST}",
        "image": {"registry": REGISTRY},
        "ingress": {"enabled": True},
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
