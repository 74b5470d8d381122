"""The ways in: the chart's Ingress, the same for localhost, and the chart's HTTPRoute on a Gateway where there is one."""

import json
import os
import time

from cluster import Failure, run
from installation import CHART, HOST
from traffic import Door

GATEWAY = "e2e"
GATEWAY_HOST = f"gateway.{HOST}"


def opened(cluster, address, installation, tag, report):
    """The doors, once all let through; the first is the Ingress."""
    started = time.monotonic()
    for_localhost(cluster)
    hosts = {"Ingress": HOST, "Ingress for localhost": "localhost"}
    gateway_class = named_class()
    if gateway_class:
        through_gateway(cluster, gateway_class, installation.chosen(tag))
        hosts["HTTPRoute"] = GATEWAY_HOST
    doors = {name: Door(address, host) for name, host in hosts.items()}
    for name, door in doors.items():
        said = door.opens()
        if said:
            raise Failure(f"the front door does not let {door.host} through: {said}")
    without = "" if gateway_class else "; no HTTPRoute, since this cluster has no GatewayClass"
    report.step("routes", started, f"served by {', '.join(doors)}{without}")
    return [doors["Ingress"], *(door for name, door in doors.items() if name == "HTTPRoute")]


def for_localhost(cluster):
    """The same routes for the client on this machine, which has no name for the other host."""
    ingress = cluster.get("ingress", cluster.release)
    spec = ingress["spec"]
    spec["rules"][0]["host"] = "localhost"
    metadata = {"name": "e2e-localhost"}
    cluster.apply({"apiVersion": ingress["apiVersion"], "kind": "Ingress", "metadata": metadata, "spec": spec})


def named_class():
    """E2E_GATEWAY_CLASS, or the first there is."""
    said = run("kubectl", "get", "gatewayclasses", "--output", "json", check=False)
    names = [each["metadata"]["name"] for each in json.loads(said)["items"]] if said else []
    return os.environ.get("E2E_GATEWAY_CLASS") or next(iter(names), None)


def through_gateway(cluster, gateway_class, chosen):
    """A Gateway, and the HTTPRoute as the chart makes it: the Gateway must accept it, and know all it points to."""
    port = int(os.environ.get("E2E_GATEWAY_PORT", "8000"))
    listener = {"name": "http", "protocol": "HTTP", "port": port}
    cluster.apply({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": GATEWAY},
        "spec": {"gatewayClassName": gateway_class, "listeners": [listener]},
    })  # fmt: skip
    cluster.apply(
        cluster.helm(
            "template", cluster.release, CHART, *chosen, "--show-only", "templates/httproute.yaml", "--kube-version", "1.31",
            "--set", "ingress.enabled=false", "--set", "gateway.enabled=true",
            "--set", f"gateway.parentRefs[0].name={GATEWAY}", "--set", f"gateway.hostnames={{{HOST},{GATEWAY_HOST}}}",
        )
    )  # fmt: skip
    for condition in ("Accepted", "ResolvedRefs"):
        path = f'{{.status.parents[0].conditions[?(@.type=="{condition}")].status}}'
        cluster.kubectl("wait", f"httproute/{cluster.release}", f"--for=jsonpath={path}=True", "--timeout=60s")
