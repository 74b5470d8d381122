"""The documented values become ready as they are, except for images and requested CPU, with Postgres and three NATS servers, all with TLS.

The minimal values are those of the README of the chart. The example is `deploy/examples/values-production.yaml`, also with the stream mode
`verify`: the commands of the notes then create the streams.
"""

import re
import sys
import textwrap
import time

import builds
import certificates
import nats_cluster
from cluster import ROOT, Cluster, TestError, run
from installation import CHART, COMPONENTS

README, EXAMPLE = CHART / "README.md", ROOT / "deploy/examples/values-production.yaml"
IMAGES = [word for name, value in {"registry": builds.REGISTRY, "tag": builds.PRESENT}.items() for word in ("--set", f"image.{name}={value}")]
# All pods fit on one small node.
SMALL = [word for name in COMPONENTS for word in ("--set", f"{name}.resources.requests.cpu=20m")]
# The cluster has no Prometheus operator, and its pods of Postgres and NATS have other labels.
OTHER_SERVERS = [
    "--set", "monitoring.podMonitor.enabled=false,monitoring.alerts.enabled=false",
    "--set-json", 'networkPolicy.egress.database=[{"ports": [{"port": 5432}]}]',
    "--set-json", 'networkPolicy.egress.nats=[{"ports": [{"port": 4222}]}]',
]  # fmt: skip
# Changes of the manifests of Postgres.
POSTGRES_TLS = {
    "max_connections=200": "max_connections=200 -c ssl=on -c ssl_cert_file=/tls/tls.crt -c ssl_key_file=/tls/tls.key",
    "volumeMounts:\n": "volumeMounts:\n            - {name: tls, mountPath: /tls}\n",
    "volumes:\n": "volumes:\n        - {name: tls, secret: {secretName: svc-nats-tls, defaultMode: 0440}}\n",
}
VERIFY = "nats.stream.mode=verify"
MAIL = {"smtp-url": "smtps://user:password@mail.example.com:465"}


def install_documented_values(namespace, home, report):
    cluster = Cluster(f"{namespace}-production")
    minimal = home / "minimal.yaml"
    minimal.write_text(re.search(r"Minimal values for production:\n\n```yaml\n(.*?)```", README.read_text(), re.S)[1])
    try:
        prepare(cluster, home, report)
        # Name, values, pods of each component, options.
        for name, values, pods, *options in (
            ("minimal values", minimal, 2),
            ("production values", EXAMPLE, 3, *OTHER_SERVERS),
            ("production values with verify", EXAMPLE, 3, *OTHER_SERVERS, "--set", VERIFY),
        ):
            started = time.monotonic()
            notes = cluster.helm("install", cluster.release, CHART, "--values", values, *IMAGES, *SMALL, *options)
            created = ""
            if VERIFY in options:
                wait_for_log(cluster, "does not exist: create it")
                create_streams(cluster, notes, home)
                created = ", after the commands of the notes created the streams"
            wait_for_pods(cluster, pods)
            report.step(name, started, f"{pods} pods of each component are ready{created}")
            cluster.helm("uninstall", cluster.release, "--wait")
            nats_cluster.empty(cluster)
    finally:
        cluster.delete_namespace()


def prepare(cluster, home, report):
    started = time.monotonic()
    cluster.recreate_namespace()
    development = [sys.executable, ROOT / "deploy/dev/dev.py"]
    run(*development, "secrets", "--namespace", cluster.namespace)
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "svc-mail"}, "stringData": MAIL})
    certificates.create(cluster, home)
    for manifest in run(*development, "manifests", "--postgres-image", builds.dependency("postgres")).split("\n---\n"):
        if "postgres" in manifest:
            for old, new in POSTGRES_TLS.items():
                manifest = manifest.replace(old, new)
            cluster.apply(manifest)
    nats_cluster.create(cluster)
    cluster.rolled_out("postgres")
    report.step("Postgres and three NATS servers", started, "ready")


def create_streams(cluster, notes, home):
    """Runs the commands of the notes. They read the files `admin-url` and `audit-admin-url` of the working directory."""
    for user in ("admin", "audit-admin"):
        (home / f"{user}-url").write_text(cluster.secret("svc-nats", f"{user}istrator-url"))
        command = textwrap.dedent(re.search(rf"^  kubectl .* exec .*\n.*< {user}-url\n", notes, re.M)[0])
        run("bash", "-c", command, directory=home)


def wait_for_log(cluster, sentence, seconds=120):
    deadline = time.monotonic() + seconds
    while not any(sentence in cluster.kubectl("logs", pod["metadata"]["name"], check=False) for pod in cluster.pods("ingest")):
        if time.monotonic() > deadline:
            raise TestError(f"ingest has not logged {sentence!r}")
        time.sleep(0.5)


def wait_for_pods(cluster, number, seconds=300):
    """Waits until this number of pods of each component is ready. Autoscaling adds pods after the installation."""
    deadline = time.monotonic() + seconds
    while any(len(cluster.pods(name)) != number for name in COMPONENTS):
        if time.monotonic() > deadline:
            raise TestError(f"not {number} pods of each component:\n{cluster.kubectl('get', 'pods,hpa')}")
        time.sleep(0.5)
    cluster.wait_until_ready(max(1, deadline - time.monotonic()))
