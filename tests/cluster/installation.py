"""The release under test: its namespace, what it needs, and what Helm does with it."""

import json
import os
import sys
import time

from builds import REGISTRY, TAGS, other
from cluster import ROOT, Failure, run

HOST = "svc.test"
CHART = ROOT / "helm/svc"
COMPONENTS = ("identity", "session", "ingest")
# Where the front door of usual development clusters is: any ingress controller, k3d, kind with ingress-nginx, minikube.
FRONT_DOORS = ("ingress/traefik", "kube-system/traefik", "traefik/traefik", "ingress-nginx/ingress-nginx-controller")


class Installation:
    def __init__(self, cluster, work, report):
        self.cluster, self.report = cluster, report
        self.values = work / "values.json"

    def prepare(self):
        """A new namespace, in which everything has to be restricted, with Postgres, NATS and the Secrets."""
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
            verb, name or self.cluster.release, CHART, *self.chosen(tag), *options,
            "--wait", "--wait-for-jobs", "--timeout", f"{seconds}s",
        )  # fmt: skip

    def chosen(self, tag):
        return ["--values", CHART / "values-dev.yaml", "--values", self.values, "--set", f"image.tag={tag}"]

    def rollback(self):
        """Back to what was installed first."""
        self.cluster.helm("rollback", self.cluster.release, "1", "--wait", "--wait-for-jobs", "--timeout", "300s")

    def test(self):
        started = time.monotonic()
        try:
            self.cluster.helm("test", self.cluster.release, "--timeout", "120s")
            self.report.step("helm test", started, "passed")
        except Failure as failure:
            self.report.complain(str(failure))
            self.report.step("helm test", started, "FAILED")


def chart_values():
    # Limits per address are off: a test cluster's front door hides addresses, so that all would share one.
    known = (CHART / "files/variables.yaml").read_text()
    component = {"replicas": 2, "lifecycle": {"preStopSeconds": 10}}
    return {
        **{name: {**component, "env": limits_off(known, name)} for name in COMPONENTS},
        "publicUrl": f"http://{HOST}",
        "image": {"registry": REGISTRY},
        "ingress": {"enabled": True},
        "tests": {
            "existingSecret": "e2e-user",
            "hostAliases": [{"ip": front_door()["spec"]["clusterIP"], "hostnames": [HOST]}],
        },
    }


def limits_off(known, component):
    """Every limit that the component reads, turned off."""
    own = known.split(f"\n{component}:\n")[1].split("\n  secret:\n")[0]
    return {name: "off" for name in own.replace("-", " ").split() if name.startswith("SVC_LIMIT_")}


def front_door():
    """The Service of the ingress controller, by which pods reach the front door."""
    said = os.environ.get("E2E_FRONT_DOOR")
    for place in [said] if said else FRONT_DOORS:
        namespace, _, name = place.partition("/")
        found = run("kubectl", "--namespace", namespace, "get", "service", name, "--output", "json", check=False)
        if found:
            return json.loads(found)
    raise Failure(
        f"no ingress controller at {said or ', '.join(FRONT_DOORS)}: set E2E_FRONT_DOOR to <namespace>/<Service>"
    )
