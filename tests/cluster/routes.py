"""Routes into the cluster: the Ingress of the chart, a copy for localhost, and the HTTPRoute of the chart if a Gateway exists."""

import json
import os
import time

from builds import PRESENT
from cluster import TestError, run
from installation import CHART, HOST
from traffic import Entry

GATEWAY = "e2e"
GATEWAY_HOST = f"gateway.{HOST}"


def opened(cluster, address, installation, report):
    """Waits for all routes and returns the entries. The first is the Ingress."""
    started = time.monotonic()
    for_localhost(cluster)
    hosts = {"Ingress": HOST, "Ingress for localhost": "localhost"}
    gateway_class = named_class()
    if gateway_class:
        through_gateway(cluster, gateway_class, installation.values_options(PRESENT))
        hosts["HTTPRoute"] = GATEWAY_HOST
    entries = {name: Entry(address, host) for name, host in hosts.items()}
    for name, entry in entries.items():
        error = entry.wait_until_open()
        if error:
            raise TestError(f"the ingress does not serve {entry.host}: {error}")
    without = "" if gateway_class else "; no HTTPRoute, because this cluster has no GatewayClass"
    report.step("routes", started, f"served by {', '.join(entries)}{without}")
    return [entries["Ingress"], *(entry for name, entry in entries.items() if name == "HTTPRoute")]


def for_localhost(cluster):
    """Creates the same routes for localhost, because this machine cannot resolve the other host."""
    ingress = cluster.get("ingress", cluster.release)
    spec = ingress["spec"]
    spec["rules"][0]["host"] = "localhost"
    metadata = {"name": "e2e-localhost"}
    cluster.apply({"apiVersion": ingress["apiVersion"], "kind": "Ingress", "metadata": metadata, "spec": spec})


def named_class():
    """Returns E2E_GATEWAY_CLASS or the first GatewayClass, or None."""
    output = run("kubectl", "get", "gatewayclasses", "--output", "json", check=False)
    names = [each["metadata"]["name"] for each in json.loads(output)["items"]] if output else []
    return os.environ.get("E2E_GATEWAY_CLASS") or next(iter(names), None)


def through_gateway(cluster, gateway_class, options):
    """Creates a Gateway and the HTTPRoute of the chart. Waits until the Gateway has accepted and resolved it."""
    port = int(os.environ.get("E2E_GATEWAY_PORT", "8000"))
    listener = {"name": "http", "protocol": "HTTP", "port": port}
    cluster.apply({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": GATEWAY},
        "spec": {"gatewayClassName": gateway_class, "listeners": [listener]},
    })  # fmt: skip
    cluster.apply(
        cluster.helm(
            "template", cluster.release, CHART, *options, "--show-only", "templates/httproute.yaml", "--kube-version", "1.31",
            "--set", "ingress.enabled=false", "--set", "gateway.enabled=true",
            "--set", f"gateway.parentRefs[0].name={GATEWAY}", "--set", f"gateway.hostnames={{{HOST},{GATEWAY_HOST}}}",
        )
    )  # fmt: skip
    for condition in ("Accepted", "ResolvedRefs"):
        path = f'{{.status.parents[0].conditions[?(@.type=="{condition}")].status}}'
        cluster.kubectl("wait", f"httproute/{cluster.release}", f"--for=jsonpath={path}=True", "--timeout=60s")
