"""What a platform does to a running system, each under load: upgrade, rollback, and pods that go, asked or not."""

import time

from builds import TAGS
from client import ACCOUNT, is_alive
from installation import COMPONENTS
from traffic import Traffic

# How long the load goes on before and after what is done under it.
CALM = 3
# As the transport, whose `max_retries` is 3.
TRIES = 4


class Disturbances:
    """`doors` are the ways in, `tokens` sessions that have to outlive everything."""

    def __init__(self, installation, doors, client, tokens, report):
        self.installation, self.cluster = installation, installation.cluster
        self.doors, self.client, self.tokens, self.report = doors, client, tokens, report
        self.acknowledged = []

    def all(self):
        self.disturb("upgrade", lambda: self.installation.release("upgrade", TAGS[1]))
        self.disturb("rollback", self.installation.rollback)
        for component in COMPONENTS:
            self.disturb(f"delete a pod of {component}", lambda: self.lose(component, self.cluster.delete))
        for component in COMPONENTS:
            self.disturb(f"kill a pod of {component}", lambda: self.lose(component, self.cluster.kill), TRIES)

    def lose(self, component, how):
        """Loses one pod, and waits until there are as many as before."""
        said = how(self.cluster.pods(component)[0])
        time.sleep(1)
        self.cluster.rolled_out(f"{self.cluster.release}-{component}")
        return said

    def disturb(self, name, what, tries=1):
        """Does something under load; every request must be answered, and every session stay alive."""
        with Traffic(self.doors, self.client, ACCOUNT, self.tokens[0], tries) as traffic:
            time.sleep(CALM)
            said = what()
            self.cluster.settled()
            time.sleep(CALM)
        self.acknowledged += traffic.acknowledged
        alive = sum(is_alive(self.doors[0], token) for token in self.tokens)
        self.judge(name, traffic, alive)
        result = [f"{alive} of {len(self.tokens)} sessions alive"]
        result += [f"{traffic.retried} retries"] if tries > 1 else []
        result += [said] if said else []
        self.report.under_load(name, traffic, ", ".join(result))

    def judge(self, name, traffic, alive):
        if traffic.failed:
            faults = "\n    ".join(traffic.faults[:10])
            self.report.complain(f"{name}: {traffic.failed} of {traffic.total} requests failed:\n    {faults}")
        if alive < len(self.tokens):
            self.report.complain(f"{name}: {len(self.tokens) - alive} sessions are dead")
        silent = {"events", "session", "login", "logout", "svc"} - {name for name, well in traffic.answers if well}
        if silent:
            self.report.complain(f"{name}: nothing was tested of {', '.join(sorted(silent))}")
