"""Disturbances of a running system under load: upgrade, rollback, deleted pods and killed pods."""

import time

from builds import TAGS
from client import ACCOUNT, is_active
from installation import COMPONENTS
from traffic import Traffic

# Seconds of load before and after a disturbance.
MARGIN = 3
# The transport library sends a request once and retries it three times (`max_retries`).
ATTEMPTS = 4


class Disturbances:
    """`entries` are the tested routes into the cluster, `tokens` are sessions that must stay active."""

    def __init__(self, installation, entries, client, tokens, report):
        self.installation, self.cluster = installation, installation.cluster
        self.entries, self.client, self.tokens, self.report = entries, client, tokens, report
        self.acknowledged = []

    def all(self):
        self.disturb("upgrade", lambda: self.installation.release("upgrade", TAGS[1]))
        self.disturb("rollback", self.installation.rollback)
        for component in COMPONENTS:
            self.disturb(f"delete a pod of {component}", lambda: self.remove_pod(component, self.cluster.delete))
        for component in COMPONENTS:
            self.disturb(f"kill a pod of {component}", lambda: self.remove_pod(component, self.cluster.kill), ATTEMPTS)

    def remove_pod(self, component, remove):
        """Removes one pod and waits for its replacement."""
        result = remove(self.cluster.pods(component)[0])
        time.sleep(1)
        self.cluster.rolled_out(f"{self.cluster.release}-{component}")
        return result

    def disturb(self, name, action, attempts=1):
        """Runs an action under load. Every request must succeed, and every session must stay active."""
        with Traffic(self.entries, self.client, ACCOUNT, self.tokens[0], attempts) as traffic:
            time.sleep(MARGIN)
            detail = action()
            self.cluster.wait_until_ready()
            time.sleep(MARGIN)
        self.acknowledged += traffic.acknowledged
        active = sum(is_active(self.entries[0], token) for token in self.tokens)
        self.check(name, traffic, active)
        result = [f"{active} of {len(self.tokens)} sessions active"]
        result += [f"{traffic.retried} retries"] if attempts > 1 else []
        result += [detail] if detail else []
        self.report.under_load(name, traffic, ", ".join(result))

    def check(self, name, traffic, active):
        if traffic.failed:
            errors = "\n    ".join(traffic.errors[:10])
            self.report.fail(f"{name}: {traffic.failed} of {traffic.total} requests failed:\n    {errors}")
        if active < len(self.tokens):
            self.report.fail(f"{name}: {len(self.tokens) - active} sessions are no longer active")
        missing = {"events", "session", "login", "logout", "svc"} - {name for name, succeeded in traffic.counts if succeeded}
        if missing:
            self.report.fail(f"{name}: no successful request of {', '.join(sorted(missing))}")
