"""Rotation of the service token, the platform token and the limiter key as documented: both lines, then the new one, without a restart."""

import json
import secrets
import sys
import time

from cluster import ROOT, TestError

sys.path.insert(0, str(ROOT / "deploy/dev"))
import dev  # noqa: E402

SECRET = "svc-tokens"
# The secrets of each component.
VARIABLES = {
    "identity": {"SVC_SERVICE_TOKEN", "SVC_PLATFORM_TOKEN", "SVC_LIMITER_KEY"},
    "session": {"SVC_SERVICE_TOKEN"},
    "ingest": {"SVC_SERVICE_TOKEN", "SVC_PLATFORM_TOKEN"},
}
# A request of the platform administrator to identity, and one to ingest.
PATHS = ("/tenants", "/consumers")


def rotate_secrets(system):
    cluster = system.cluster
    new = {"service-token": secrets.token_hex(32), "platform-token": dev.platform_token(), "limiter-key": secrets.token_hex(32)}
    old = {key: cluster.secret(SECRET, key) for key in new}
    both = {key: f"{new[key]}\n{old[key]}" for key in new}
    before = names(cluster)
    system.disturb("rotation: new and old secrets", lambda: replace(system, both, old["platform-token"], 1))
    system.disturb("rotation: only new secrets", lambda: replace(system, new, new["platform-token"], 2))
    if any(status == 200 for status in statuses(system, old["platform-token"])):
        system.report.fail("rotation: the old platform token is still accepted")
    if names(cluster) != before:
        system.report.fail("rotation: a pod was replaced or restarted")


def replace(system, values, token, changes, seconds=180):
    """Edits the Secret and waits until each pod has logged this number of changes of each of its secrets. The administrator uses the token."""
    cluster, started = system.cluster, time.monotonic()
    cluster.kubectl("patch", "secret", SECRET, "--patch-file", "/dev/stdin", text=json.dumps({"stringData": values}))
    # The kubelet updates the files of a changed pod at once, and those of others within about a minute.
    cluster.kubectl("annotate", "pods", "--all", f"e2e/rotation={changes}", "--overwrite")
    while waiting := unread(cluster, changes):
        # A pod reads the file of a secret when a request needs it.
        rejected = [status for status in statuses(system, token) if status != 200]
        if rejected:
            system.report.fail(f"rotation: requests of the platform administrator failed: {rejected}")
        if time.monotonic() - started > seconds:
            raise TestError(f"rotation: not read yet: {', '.join(waiting)}")
        time.sleep(1)
    return f"read by all pods after {time.monotonic() - started:.0f} s"


def unread(cluster, changes):
    """Returns the secrets that a pod has not read: `pod variable`."""
    result = []
    for component, variables in VARIABLES.items():
        for pod in cluster.pods(component):
            name = pod["metadata"]["name"]
            lines = [line for line in cluster.kubectl("logs", name).splitlines() if '"secret changed"' in line]
            result += [
                f"{name} {variable}" for variable in sorted(variables)
                if sum(f'"{variable}"' in line for line in lines) < changes
            ]  # fmt: skip
    return result


def statuses(system, token):
    entry = system.entries[0]
    return [entry.request(entry.connection(), "GET", path, None, {"Authorization": f"Bearer {token}"})[1] for path in PATHS]


def names(cluster):
    """Returns the names of the pods and the numbers of their restarts."""
    return {
        (pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"])
        for component in VARIABLES for pod in cluster.pods(component)
    }  # fmt: skip
