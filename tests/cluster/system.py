"""The tested system: the installed release, its routes and client, and its sessions. Steps disturb it under load."""

import time

from client import ACCOUNT, is_active
from traffic import Traffic

# Seconds of load before and after a disturbance.
MARGIN = 3


class System:
    """`entries` are the tested routes into the cluster, `tokens` are sessions that must stay active."""

    def __init__(self, installation, entries, client, tokens, report):
        self.installation, self.cluster = installation, installation.cluster
        self.entries, self.client, self.tokens, self.report = entries, client, tokens, report
        self.acknowledged = []

    def disturb(self, name, action, attempts=1, pause=0.05):
        """Runs an action under load. Every request must succeed, and every session must stay active.

        `attempts` and `pause` are those of `Traffic`. The action returns a text for the report, or None.
        """
        with Traffic(self.entries, self.client, ACCOUNT, self.tokens[0], attempts, pause) as traffic:
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
