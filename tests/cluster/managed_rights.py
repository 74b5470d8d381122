"""The rights of the operator, compared with the requests in the audit log of the API server."""

import json
import os
import time

from cluster import run

# Rights without a separate request: an apply that creates a Secret needs both, and only a repeated event is patched. The status of a consumer
# is written in the step `consumers`.
IMPLIED = {("", "secrets", "create"), ("events.k8s.io", "events", "patch"), ("svc.internal", "svcconsumers/status", "patch")}


def check_rights(system):
    """Fails if a right was not used. E2E_AUDIT_LOG is a command that prints the audit log, with level Metadata."""
    cluster, command, started = system.cluster, os.environ.get("E2E_AUDIT_LOG", "").split(), time.monotonic()
    if not command:
        system.report.step("operator: rights", started, "not compared with the audit log: set E2E_AUDIT_LOG")
        return
    account = f"system:serviceaccount:{cluster.namespace}:{cluster.release}-operator"
    used = set()
    for line in run(*command).splitlines():
        event = json.loads(line)
        if event["user"]["username"] == account and (reference := event.get("objectRef")):
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            used.add((reference.get("apiGroup", ""), resource, event["verb"]))
    granted = set()
    for kind in ("clusterroles", "roles"):
        for role in cluster.get(kind, "--selector", "app.kubernetes.io/component=operator")["items"]:
            granted |= {
                (group, resource, verb)
                for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
            }  # fmt: skip
    if granted != used | IMPLIED:
        system.report.fail(f"operator: unused rights {granted - used - IMPLIED}, requests without a right {used - granted}")
    system.report.step("operator: rights", started, f"{len(granted)} rights, all used")
