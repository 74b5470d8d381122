"""Three NATS servers with JetStream and the users of deploy/nats, like those of deploy/examples/nats-values.yaml."""

from builds import PRESENT, REGISTRY, dependency
from cluster import ROOT

NAME, SERVERS = "nats", 3
# 27 GiB, like the volumes of the example.
CONFIGURATION = """
server_name: $SERVER
port: 4222
http_port: 8222
max_payload: 2MB
pid_file: /data/nats.pid
jetstream { store_dir: /data, max_file_store: 28991029248, max_memory_store: 64MB }
tls { cert_file: /tls/tls.crt, key_file: /tls/tls.key }
# The minimal values have no certificate authority.
allow_non_tls: true
cluster { name: nats, port: 6222, routes: [%s] }
include accounts.conf
"""


def create(cluster):
    routes = ", ".join(f"nats://{NAME}-{number}.{NAME}-cluster:6222" for number in range(SERVERS))
    folders = {"accounts.conf": "nats", "consumers.conf": "dev"}
    files = {file: (ROOT / "deploy" / folder / file).read_text() for file, folder in folders.items()}
    cluster.apply(named("v1", "ConfigMap", f"{NAME}-config", data={"nats.conf": CONFIGURATION % routes, **files}))
    ports = [{"name": "nats", "port": 4222}]
    cluster.apply(named("v1", "Service", NAME, spec={"selector": {"app": NAME}, "ports": ports}))
    # The servers find each other before they are ready.
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": NAME}, "ports": [{"port": 6222}]}
    cluster.apply(named("v1", "Service", f"{NAME}-cluster", spec=headless))
    template = {"metadata": {"labels": {"app": NAME}}, "spec": pod()}
    servers = {
        "replicas": SERVERS,
        "serviceName": f"{NAME}-cluster",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": NAME}},
        "template": template,
    }
    cluster.apply(named("apps/v1", "StatefulSet", NAME, spec=servers))
    wait(cluster)


def wait(cluster):
    cluster.kubectl("rollout", "status", f"statefulset/{NAME}", "--timeout=120s")


def empty(cluster):
    """Deletes all streams with their servers, and starts new servers."""
    cluster.kubectl("scale", f"statefulset/{NAME}", "--replicas=0")
    cluster.kubectl("wait", "pods", "--selector", f"app={NAME}", "--for=delete", "--timeout=120s")
    cluster.kubectl("scale", f"statefulset/{NAME}", f"--replicas={SERVERS}")
    wait(cluster)


def named(version, kind, name, **fields):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def pod():
    container = {
        "name": NAME,
        "image": dependency("nats"),
        "command": ["nats-server", "--config", "/config/nats.conf"],
        "env": [{"name": "SERVER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "envFrom": [{"secretRef": {"name": "svc-dev-nats"}}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8222}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("config", "data", "tls")],
    }
    accounts = {
        "image": f"{REGISTRY}/svc-ingest:{PRESENT}",
        "securityContext": container["securityContext"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    file = ["--file", "/data/consumers.conf"]
    url = {"name": "SVC_NATS_URL", "valueFrom": {"secretKeyRef": {"name": "svc-nats", "key": "ingest-url"}}}
    options = ["--pid-file", "/data/nats.pid", "--monitor", "http://127.0.0.1:8222"]
    keep = {"name": "accounts", **accounts, "args": ["accounts", "keep", *file, *options], "env": [url]}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,
        "initContainers": [{"name": "accounts-init", **accounts, "args": ["accounts", "init", *file]}],
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container, keep],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{NAME}-config"}},
            {"name": "data", "emptyDir": {}},
            {"name": "tls", "secret": {"secretName": "svc-nats-tls", "defaultMode": 0o440}},
        ],
    }  # fmt: skip
