"""Metrics of pods for autoscaling (API group `metrics.k8s.io`): those of the cluster, or metrics-server in the namespace of the test.

Most clusters have them. For one without, metrics-server is built from its Go module, because the cluster may be unable to pull images.
"""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import archive
import builds
from cluster import ROOT, TestError, run

MODULE, VERSION = "sigs.k8s.io/metrics-server", "v0.9.0"
API, NAME, PORT = "v1beta1.metrics.k8s.io", "e2e-metrics-server", 10250
# Metrics are at most this old, in seconds. It is the shortest interval that metrics-server accepts.
RESOLUTION = 10


@contextlib.contextmanager
def available(cluster, work, report):
    """Context in which the cluster has metrics of pods."""
    installed = not run("kubectl", "get", "apiservice", API, "--ignore-not-found", "--output=name")
    try:
        if installed:
            install(cluster, work, report)
        run("kubectl", "wait", f"apiservice/{API}", "--for=condition=Available", "--timeout=120s")
        yield
    finally:
        remove()


def install(cluster, work, report):
    started = time.monotonic()
    archive.write(work / "metrics.tar", image(), {"/metrics-server": build()}, ["/metrics-server"])
    builds.load_and_delete(work / "metrics.tar")
    objects = {"apiVersion": "v1", "kind": "List", "items": manifests(cluster.namespace)}
    run("kubectl", "apply", "--filename", "-", text=json.dumps(objects))
    cluster.rolled_out(NAME)
    report.step("metrics-server", started, f"the cluster has none; built and installed {VERSION}")


def remove():
    """Removes the objects outside the namespace, also those of an aborted run: an API without pods blocks the deletion of namespaces."""
    selector = ("--selector", f"app={NAME}")
    run("kubectl", "delete", "apiservices,clusterroles,clusterrolebindings", *selector)
    run("kubectl", "--namespace", "kube-system", "delete", "rolebindings", *selector)


def image():
    return f"{builds.REGISTRY}/metrics-server:{VERSION}"


def build():
    """Returns the path of the static program in `.dev/tools`."""
    directory = ROOT / ".dev/tools" / f"metrics-server-{VERSION}"
    program = directory / "metrics-server"
    if not program.exists():
        go = json.loads((ROOT / ".dev/tools.json").read_text())["go"]
        print(f"building metrics-server {VERSION}", flush=True)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(directory)}
        command = [go, "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}/cmd/metrics-server@{VERSION}"]
        if subprocess.run(command, env=environment).returncode:
            raise TestError(
                f"the cluster has no metrics (`kubectl get apiservice {API}`), and metrics-server cannot be built; see the output of Go above.\n"
                "Install metrics-server, or skip the step with --skip autoscaling"
            )
    return Path(program)


def manifests(namespace):
    """Returns the objects of metrics-server with the rights that its own manifests have."""
    labels = {"app": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    arguments = [
        f"--secure-port={PORT}", "--cert-dir=/tmp", "--kubelet-insecure-tls", f"--metric-resolution={RESOLUTION}s",
        "--kubelet-request-timeout=5s", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP,Hostname",
    ]  # fmt: skip
    container = {
        "name": "metrics-server",
        "image": image(),
        "args": arguments,
        "ports": [{"name": "https", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]

    def named(version, kind, place=namespace, name=NAME, **fields):
        metadata = {"name": name, "labels": labels, **({"namespace": place} if place else {})}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}

    def binding(kind, place, name, role_kind, role):
        reference = {"apiGroup": group, "kind": role_kind, "name": role}
        return named(f"{group}/v1", kind, place, name, roleRef=reference, subjects=[account])

    return [
        named("v1", "ServiceAccount"),
        named(f"{group}/v1", "ClusterRole", None, rules=rules),
        binding("ClusterRoleBinding", None, NAME, "ClusterRole", NAME),
        binding("ClusterRoleBinding", None, f"{NAME}-delegator", "ClusterRole", "system:auth-delegator"),
        binding("RoleBinding", "kube-system", NAME, "Role", "extension-apiserver-authentication-reader"),
        named("v1", "Service", spec={"selector": labels, "ports": [{"port": 443, "targetPort": "https"}]}),
        named("apps/v1", "Deployment", spec={
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}
        }),
        named("apiregistration.k8s.io/v1", "APIService", None, API, spec={
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True, "service": {"name": NAME, "namespace": namespace, "port": 443},
        }),
    ]  # fmt: skip
