"""Disturbances of the system under load: upgrade, rollback, deleted pods and killed pods."""

import time

from builds import OTHER, PRESENT
from installation import COMPONENTS
from phone import Phone

# The transport library sends a request once and retries it three times (`max_retries`).
ATTEMPTS = 4


def upgrade_and_rollback(system):
    """Upgrades to the newer of two builds and rolls back. At the end, this commit is installed.

    A person with a second factor needs it after each change.
    """
    installation, first = system.installation, system.installation.first
    second = PRESENT if first == OTHER else OTHER
    platform_token = system.cluster.secret("svc-tokens", "platform-token")
    phone = Phone(system.client, system.entries[0], platform_token, "upgrade@e2e.example")
    system.disturb("upgrade", lambda: change(lambda: installation.release("upgrade", second), phone))
    system.disturb("rollback", lambda: change(installation.rollback, phone))
    if first == OTHER:
        system.disturb("upgrade again", lambda: installation.release("upgrade", PRESENT))


def change(action, phone):
    """Changes the release. Then a person logs in with a password and a code."""
    action()
    phone.log_in()
    return "login with a code"


def lose_pods(system):
    cluster = system.cluster
    for verb, remove, attempts in (("delete", cluster.delete, 1), ("kill", cluster.kill, ATTEMPTS)):
        for component in COMPONENTS:
            system.disturb(f"{verb} a pod of {component}", lambda: remove_pod(cluster, component, remove), attempts)


def remove_pod(cluster, component, remove):
    """Removes one pod and waits for its replacement."""
    result = remove(cluster.pods(component)[0])
    time.sleep(1)
    cluster.rolled_out(f"{cluster.release}-{component}")
    return result
