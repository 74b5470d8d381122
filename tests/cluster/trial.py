"""The trial: one `helm install`, the commands of its notes as they are printed, one event, and an uninstall that leaves nothing."""

import json
import os
import re
import subprocess
import textwrap
import time

import builds
from cluster import Cluster, TestError, run
from installation import CHART, ingress_service

# Time limit of the installation in seconds.
LIMIT = 90
EVENT = json.dumps({"source_id": "trial", "event_id": "first"})
# Objects of every namespace.
OF_CLUSTER = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


def install_trial(namespace, home, report):
    cluster = Cluster(f"{namespace}-trial")
    try:
        cluster.recreate_namespace()
        started = time.monotonic()
        notes = cluster.helm(
            "install", cluster.release, CHART, "--set", "trial.enabled=true", *images(), "--wait", "--wait-for-jobs", "--timeout", f"{LIMIT}s"
        )
        follow(notes, home)
        report.step("trial: install, login and event with the commands of the notes", started, "done")
        started = time.monotonic()
        cluster.helm("uninstall", cluster.release)
        wait_until_empty(cluster)
        report.step("trial: uninstall", started, "nothing remains")
    finally:
        cluster.delete_namespace()


def images():
    """Returns options for images that the cluster has."""
    names = {"image.registry": builds.REGISTRY, "image.tag": builds.PRESENT}
    servers = {name: builds.dependency(name) for name in ("postgres", "nats")}
    for name, image in {**servers, "proxy": proxy()}.items():
        if image:
            repository, _, tag = image.rpartition(":")
            names |= {f"trial.{name}.image.repository": repository, f"trial.{name}.image.tag": tag}
    return [word for name, value in names.items() for word in ("--set-string", f"{name}={value}")]


def proxy():
    """Returns the image of the ingress controller if it is Traefik. With None, the cluster must pull the image of the chart."""
    service = ingress_service()
    selector = ",".join(f"{name}={value}" for name, value in service["spec"]["selector"].items())
    namespace = service["metadata"]["namespace"]
    pods = json.loads(run("kubectl", "--namespace", namespace, "get", "pods", "--selector", selector, "--output", "json"))
    image = pods["items"][0]["spec"]["containers"][0]["image"]
    return image if "traefik" in image and "@" not in image else None


def follow(notes, home):
    """Runs the indented blocks of the notes: the port-forward in the background, then the login. Then sends an event."""
    forward, log_in = [textwrap.dedent(block) for block in re.findall(r"(?:^  .+\n)+", notes, re.M)]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SVC_")},
        "HOME": str(home),
        "PATH": f"{builds.program('svc').parent}:{os.environ['PATH']}",
    }
    with subprocess.Popen(["bash", "-c", f"exec {forward}"], env=environment, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            if not forwarding.stdout.readline().startswith("Forwarding"):
                raise TestError(f"`{forward.strip()}` of the notes failed; see the output of kubectl above")
            script = f"set -eo pipefail\n{log_in}\necho '{EVENT}' | svc events send --file -"
            run("bash", "-c", script, environment=environment)
        finally:
            forwarding.terminate()


def wait_until_empty(cluster, seconds=120):
    """Waits until the namespace contains only what every namespace contains."""
    kinds = cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    kinds = ",".join(kind for kind in kinds if not kind.startswith("events") and not kind.endswith(".metrics.k8s.io"))
    deadline = time.monotonic() + seconds
    while remaining := set(cluster.kubectl("get", kinds, "--output=name", "--ignore-not-found").split()) - OF_CLUSTER:
        if time.monotonic() > deadline:
            raise TestError(f"trial: these objects remain after helm uninstall: {', '.join(sorted(remaining))}")
        time.sleep(0.5)
