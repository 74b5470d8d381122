"""Disturbances of the system under load: upgrade, rollback, deleted pods and killed pods."""

import time

from builds import OTHER, PRESENT
from installation import COMPONENTS

# The transport library sends a request once and retries it three times (`max_retries`).
ATTEMPTS = 4


def upgrade_and_rollback(system):
    """Upgrades to the newer of two builds and rolls back. At the end, this commit is installed."""
    installation, first = system.installation, system.installation.first
    second = PRESENT if first == OTHER else OTHER
    system.disturb("upgrade", lambda: installation.release("upgrade", second))
    system.disturb("rollback", installation.rollback)
    if first == OTHER:
        system.disturb("upgrade again", lambda: installation.release("upgrade", PRESENT))


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
