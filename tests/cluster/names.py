"""The names of the resources of the operator on a real API server: kubectl finds all other resources as without the operator."""

import concurrent.futures
import contextlib
import json
import re
import tempfile
import time

import foreign
from cluster import TestError, run
from installation import CHART
from managed import operator

OWN = [foreign.of_definition(each) for each in json.loads((CHART / "files/crds.json").read_text())["items"]]
# A request in the log of kubectl, in the format of 1.34 or an older one.
REQUEST = re.compile(r'GET"? (?:url=")?https?://[^/]+(?P<path>/[^\s?"]+)')
# Requests for the lists of resources.
DISCOVERY = re.compile(r"/apis?|/api/[^/]+|/apis/[^/]+/[^/]+")


def compare_names(system):
    started = time.monotonic()
    with other_products(system.cluster) as listed:
        names = sorted({name for each in listed for name in each.names() | set(each.categories)} | discovered_names())
        before = found_by(names)
        if before["svc"] != {"/api/v1/services"}:
            raise TestError(f"operator: without the operator, `kubectl get svc` finds {sorted(before['svc'])}")
        with operator(system):
            after = found_by(names)
            for name in names:
                if before[name] != after[name]:
                    system.report.fail(f"operator: `kubectl get {name}` finds {sorted(after[name])}, before {sorted(before[name])}")
            use_services(system.report)
            use_other_tenants(system.report)
            find_own(system.report)
    system.report.step("operator: names", started, f"{len(names)} names mean the same as without the operator")


@contextlib.contextmanager
def other_products(cluster):
    """Defines the resources of other products that the cluster does not have. The value is the list of all resources of the file."""
    listed = foreign.resources()
    served = set(run("kubectl", "api-resources", "--output=name").split())
    missing = [each for each in listed if "." in each.group and each.full_name not in served and not is_of_kubernetes(each.group)]
    cluster.apply({"apiVersion": "v1", "kind": "List", "items": [definition(each) for each in missing]})
    names = [f"customresourcedefinitions/{each.full_name}" for each in missing]
    try:
        if names:
            run("kubectl", "wait", "--for=condition=Established", "--timeout=60s", *names)
        yield listed
    finally:
        if names:
            run("kubectl", "delete", "--ignore-not-found", *names)


def is_of_kubernetes(group):
    return group.endswith(".k8s.io") and group != "gateway.networking.k8s.io"


def definition(resource):
    """Returns a definition with the published names and without a schema."""
    names = {
        "plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind,
        "shortNames": [*resource.short_names], "categories": [*resource.categories],
    }  # fmt: skip
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    # The API server requires a statement about the review of groups of Kubernetes.
    annotations = {"api-approved.kubernetes.io": "unapproved, for a test"} if resource.group.endswith("k8s.io") else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name, "annotations": annotations},
        "spec": {"group": resource.group, "names": names, "scope": resource.scope, "versions": [version]},
    }  # fmt: skip


def discovered_names():
    """Returns all names and categories of the resources that the API server has now."""
    names = set()
    for group in groups():
        for resource in json.loads(run("kubectl", "get", "--raw", group))["resources"]:
            if "/" not in resource["name"] and "list" in resource["verbs"]:
                kind = resource["kind"].lower()
                names |= {resource["name"], resource["singularName"] or kind, *resource.get("shortNames", ()), *resource.get("categories", ())}
    return names


def groups():
    yield "/api/v1"
    for group in json.loads(run("kubectl", "get", "--raw", "/apis"))["groups"]:
        yield f"/apis/{group['preferredVersion']['groupVersion']}"


def found_by(names):
    """Returns the paths that `kubectl get <name>` requests for each name, with a new discovery cache."""
    with tempfile.TemporaryDirectory() as cache:
        options = ("--all-namespaces", "--cache-dir", cache, "-v=6")
        find = lambda name: paths(run("kubectl", "get", name, *options, check=False, with_errors=True))  # noqa: E731
        find("svc")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return dict(zip(names, pool.map(find, names)))


def paths(log):
    return frozenset(found["path"] for found in REQUEST.finditer(log) if not DISCOVERY.fullmatch(found["path"]))


def get(*arguments):
    """Runs kubectl with a new discovery cache, as for a user who has not used the cluster before."""
    with tempfile.TemporaryDirectory() as cache:
        return run("kubectl", "--cache-dir", cache, *arguments, check=False, with_errors=True)


def use_services(report):
    """The commands that people use most find Services."""
    default = ("--namespace", "default", "--output=name")
    for arguments in (("get", "svc", "kubernetes"), ("get", "svc"), ("get", "pods,svc"), ("get", "all"), ("delete", "svc", "--all", "--dry-run=server")):
        output = get(*arguments, *default)
        if "service/kubernetes" not in output.split() or any(own.group in output for own in OWN):
            report.fail(f"operator: `kubectl {' '.join(arguments)}` prints {output!r}")


def use_other_tenants(report):
    """A command about the tenants of another product does not find those of the operator."""
    for arguments in (("get", "tenants"), ("get", "tenant"), ("delete", "tenants", "--all", "--dry-run=server")):
        output = get(*arguments, "--all-namespaces", "-v=6")
        if not paths(output) or any(own.group in path for own in OWN for path in paths(output)):
            report.fail(f"operator: `kubectl {' '.join(arguments)}` requests {sorted(paths(output))}")


def find_own(report):
    """Full names find the resources of the operator. No other resource in the cluster has one of their names."""
    for own in OWN:
        for name in {own.full_name, *own.names()}:
            found = paths(get("get", name, "--all-namespaces", "-v=6"))
            if {path.split("/")[2] for path in found} != {own.group}:
                raise TestError(f"operator: `kubectl get {name}` requests {sorted(found)}")
