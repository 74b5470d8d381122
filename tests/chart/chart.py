"""Renders the chart with the real Helm: returns the objects for values, or the error message."""

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/svc"
TOOLS = json.loads((ROOT / ".dev/tools.json").read_text())
# `make chart-checks` runs the tests with Helm 4 too.
HELM = os.environ.get("HELM") or TOOLS["helm"]


class LOADER(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Rejects a key that a map contains twice, as the parsers of GitOps tools do."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        if repeated := {key for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"repeated keys: {repeated}", node.start_mark)
        return super().construct_mapping(node, deep)


# The required values.
LEAST = {
    "image": {"registry": "registry.example/svc", "tag": "1.2.3"},
    "publicUrl": "https://svc.example.com",
    "database": {"existingSecret": "svc-database"},
    "nats": {"existingSecret": "svc-nats", "stream": {"maxBytes": "20GiB"}},
    "secrets": {"existingSecret": "svc-tokens"},
}
INGRESS = {"ingress": {"enabled": True}, "trustedProxies": ["10.244.7.0/24", "fd00:10:244:7::/64"]}
GATEWAY = {"gateway": {"enabled": True, "parentRefs": [{"name": "front"}]}, "trustedProxies": ["10.244.7.0/24"]}
COMPONENTS = ("identity", "session", "ingest")
PUBLIC_FROM = {"networkPolicy": {"publicFrom": [{"namespaceSelector": {"matchLabels": {"name": "traefik"}}}]}}


def each(values):
    """Returns the same values for every component."""
    return {component: values for component in COMPONENTS}


SCALED = each({
    "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 30},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
})  # fmt: skip
POSTGRES = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 5432}]}
NATS = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 4222}]}
SUBMISSION = {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 465}]}
COLLECTOR = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 4318}]}
EVERYTHING = {
    "image": {"registry": "registry.example/svc", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "ingress": {
        "enabled": True, "className": "traefik",
        "annotations": {"traefik.ingress.kubernetes.io/router.entrypoints": "websecure"},
        "tls": [{"secretName": "svc-tls", "hosts": ["svc.example.com"]}],
    },
    "trustedProxies": ["10.244.7.0/24"],
    "secrets": {"existingSecret": "svc-tokens"},
    "mail": {"from": "svc <no-reply@svc.example.com>", "toFiles": True},
    "branding": {
        "productName": "Acme Cloud", "accentColor": "#7a1f5c", "supportAddress": "help@acme.example", "language": "de",
        "logo": {"configMap": "branding", "key": "logo.png", "darkKey": "dark.png"}, "appUrl": "https://app.acme.example", "mailCommands": False,
    },
    "monitoring": {
        "podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "alerts": {"enabled": True, "labels": {"release": "prometheus"}, "runbookUrl": "https://docs.example.com/svc/"},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "svc"}},
        "traces": {"endpoint": "http://collector:4318", "ratio": 0.1},
    },
    "nats": {"existingSecret": "svc-nats", "stream": {
        "mode": "verify", "replicas": 5, "count": 4, "maxBytes": "2TiB", "maxAge": "24h", "dlqMaxAge": "7d", "auditMaxAge": "30d",
        "compression": "s2", "durability": "strict",
    }},
    "podLabels": {"team": "platform"},
    "podAnnotations": {"example.com/scrape": "no"},
    "priorityClassName": "high",
    "networkPolicy": {
        "publicFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "adminFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": {"enabled": True, "database": [POSTGRES], "nats": [NATS], "traces": [COLLECTOR]},
    },
    "tests": {"existingSecret": "svc-test", "ca": {"secret": "route-ca"}, "hostAliases": [{"ip": "10.96.0.1", "hostnames": ["svc.example.com"]}]},
    "extraObjects": ["apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-more\n"],
    "identity": {"env": {"SVC_INVITE_TTL": "48h", "SVC_ARGON2_MEMORY_COST": 65536}, "image": {"digest": "sha256:" + "a" * 64}},
    "session": {"env": {"SVC_SESSION_IDLE": "30m"}},
    "ingest": {"extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}]},
}  # fmt: skip
MAIL = {
    "mail": {"existingSecret": "svc-mail", "from": "svc <no-reply@svc.example.com>"},
    "networkPolicy": {"egress": {"enabled": True, "database": [POSTGRES], "nats": [NATS], "mail": [SUBMISSION]}},
}  # fmt: skip
EXTERNAL = {
    "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": {"name": "svc-tokens"},
    "spec": {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"}, "dataFrom": [{"extract": {"key": "svc"}}]},
}  # fmt: skip
BREACHED = {
    "identity": {
        "env": {"SVC_BREACH_FILE": "/srv/breached/set"},
        "extraVolumes": [{"name": "breached", "persistentVolumeClaim": {"claimName": "breached", "readOnly": True}}],
        "extraVolumeMounts": [{"name": "breached", "mountPath": "/srv/breached", "readOnly": True}],
    },
}  # fmt: skip
OTHER_KEYS = {
    "database": {"keys": {"identity": "url", "identityMigrator": "migrator", "session": "session.url", "sessionMigrator": "session.migrator"}},
    "nats": {"keys": {"ingest": "NATS_URL"}},
    "secrets": {"keys": {"serviceToken": "SERVICE", "platformToken": "PLATFORM"}},
    "mail": {"existingSecret": "svc-mail", "key": "url"},
}  # fmt: skip
TLS = {
    "database": {
        "connections": 12, "ca": {"configMap": "postgres-ca", "key": "ca.pem"},
        "clientCertificates": {"identity": "postgres-identity", "identityMigrator": "postgres-identity-migrator"},
    },
    "nats": {
        "ca": {"secret": "nats-ca"}, "credentials": {"ingest": "ingest.creds"},
        "clientCertificates": {"session": "nats-session"},
    },
}  # fmt: skip
API_SERVER = {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443}]}
OPERATOR = {
    "operator": {"enabled": True},
    "networkPolicy": {
        "adminFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": {"enabled": True, "database": [POSTGRES], "nats": [NATS], "traces": [COLLECTOR], "kubernetes": [API_SERVER]},
    },
    "monitoring": {"traces": {"endpoint": "http://collector:4318"}},
}  # fmt: skip
LOGINS = {
    "database": {
        "existingSecret": "", "url": "postgres://pg-rw:5432/app", "loginKeys": {"username": "user"},
        "logins": {"identity": "pg-identity", "identityMigrator": "pg-identity-migrator", "session": "pg-session", "sessionMigrator": "pg-session-migrator"},
    },
    "nats": {
        "existingSecret": "", "url": "nats://nats:4222",
        "logins": {component: f"nats-{component}" for component in COMPONENTS},
    },
}  # fmt: skip
def merged(base, over):
    both = dict(base)
    for key, value in over.items():
        known = base.get(key)
        both[key] = merged(known, value) if isinstance(value, dict) and isinstance(known, dict) else value
    return both


OPENSHIFT = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
SIDECAR = {
    "identity": {
        "extraInitContainers": [{"name": "proxy", "image": "registry.example/proxy:1", "restartPolicy": "Always"}],
        "extraContainers": [{"name": "agent", "image": "registry.example/agent:1"}],
        "extraVolumes": [{"name": "socket", "emptyDir": {"sizeLimit": "1Mi"}}],
        "extraVolumeMounts": [{"name": "socket", "mountPath": "/run/proxy"}],
        "extraEnv": [{"name": "PGAPPNAME", "value": "svc"}],
        "serviceAccount": {"annotations": {"example.com/role": "identity"}},
    },
}  # fmt: skip
MATRIX = {
    "required values only": {},
    "development": yaml.load((CHART / "values-dev.yaml").read_text(), LOADER),
    "production example": yaml.load((ROOT / "deploy/examples/values-production.yaml").read_text(), LOADER),
    "ingress": INGRESS,
    "gateway": GATEWAY,
    "high availability": {**INGRESS, **SCALED},
    "all features": EVERYTHING,
    "mail": {**INGRESS, **MAIL},
    "breached passwords": {**INGRESS, **BREACHED},
    "external secrets": {**INGRESS, "extraObjects": [EXTERNAL]},
    "no policies, no migrations": {"networkPolicy": {"enabled": False}, "migrations": {"enabled": False}},
    "other keys": OTHER_KEYS,
    "TLS": TLS,
    "operator": OPERATOR,
    "operator with consumers": merged(OPERATOR, {"operator": {"consumers": {"enabled": True, "natsUrl": "nats://nats.example.com:4222"}}}),
    "separate users and passwords": LOGINS,
    "ingest alone": {
        "identity": {"enabled": False}, "session": {"enabled": False}, **INGRESS,
        "ingest": {"env": {"SVC_SESSION_URL": "http://session.elsewhere:8081"}}, "workloadIdentity": {"enabled": True},
    },
}  # fmt: skip


# A trial needs only an image. The other values remove those of LEAST.
TRIAL = {
    "trial": {"enabled": True}, "publicUrl": "",
    **{name: {"existingSecret": ""} for name in ("database", "secrets")},
    "nats": {"existingSecret": "", "stream": {"maxBytes": ""}},
}  # fmt: skip
TRIALS = {
    "trial": TRIAL,
    "trial behind an ingress": {**TRIAL, **INGRESS, "publicUrl": "http://svc.localhost", "trial": {"enabled": True, "volumeSize": ""}},
}

# Keys that pods mount without TLS and credentials.
URLS_AND_TOKENS = {
    f"{name}-url" for name in (*COMPONENTS, "identity-migrator", "session-migrator")
} | {"service-token", "platform-token", "limiter-key", "factor-key"}  # fmt: skip


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True)


def template(values, *arguments, folder=CHART, release="svc"):
    """Runs `helm template` with these values only."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        # By default, Helm assumes a version of Kubernetes that depends on its own version.
        version = ["--kube-version", "1.31"]
        return helm("template", release, folder, "--namespace", "there", "--values", file.name, *version, *arguments)


def render(over, *arguments, **options):
    """Returns the objects for the required values, overridden with `over`."""
    run = template(merged(LEAST, over), *arguments, **options)
    assert run.returncode == 0, run.stderr
    return [each for each in yaml.load_all(run.stdout, LOADER) if each]


@functools.lru_cache(maxsize=None)
def case(name):
    """Returns the objects of one case of the matrix."""
    return render((MATRIX | TRIALS)[name])


def error(over):
    """Returns the error message for the required values, overridden with `over`."""
    run = template(merged(LEAST, over))
    assert run.returncode != 0, "the values were accepted"
    return run.stderr


def of_kind(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def named(objects, kind, name):
    found = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    assert len(found) == 1, (
        f"{kind}/{name}: {len(found)} of {[each['metadata']['name'] for each in of_kind(objects, kind)]}"
    )
    return found[0]


def pods(objects):
    """Yields every pod of the objects: (kind/name of its owner, labels, spec)."""
    for each_one in objects:
        name = f"{each_one['kind']}/{each_one['metadata']['name']}"
        if each_one["kind"] == "Pod":
            yield name, each_one["metadata"]["labels"], each_one["spec"]
        elif each_one["kind"] in ("Deployment", "Job", "StatefulSet"):
            pod = each_one["spec"]["template"]
            yield name, pod["metadata"]["labels"], pod["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]
