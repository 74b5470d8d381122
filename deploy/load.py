#!/usr/bin/env python3
"""Loads image archives into the current cluster of kubectl.

If E2E_LOAD_IMAGE is set, it is a command that is run with each archive. Otherwise the kubectl context selects the command of
kind, k3d, minikube, or Docker, which has the images of Docker Desktop and of Rancher Desktop with the engine dockerd.
"""

import os
import shlex
import subprocess
import sys


class LoadError(Exception):
    """An error that the user must fix. It is printed without a traceback."""


def into_cluster(archive, context=None):
    """Loads an archive into the cluster of a context, by default the current one."""
    command = command_for(os.environ.get("E2E_LOAD_IMAGE", ""), context or current_context())
    if subprocess.run([*command, str(archive)]).returncode:
        raise LoadError(f"`{shlex.join(command)}` failed to load {archive}; see its output above")


def current_context():
    run = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
    return run.stdout.strip()


def command_for(override, context):
    """Returns the command that loads an archive. The archive is its last argument."""
    kind, _, name = context.partition("-")
    if override:
        return shlex.split(override)
    if kind == "kind":
        return ["kind", "load", "image-archive", "--name", name]
    if kind == "k3d":
        return ["k3d", "image", "import", "--cluster", name]
    if context == "minikube":
        return ["minikube", "image", "load"]
    if context in ("docker-desktop", "rancher-desktop"):
        return ["docker", "load", "--input"]
    raise LoadError(
        f"no known command loads images into the context {context!r}. Set E2E_LOAD_IMAGE to a command that loads an archive,\n"
        "for example E2E_LOAD_IMAGE='ctr --namespace k8s.io images import'"
    )


if __name__ == "__main__":
    try:
        for path in sys.argv[1:]:
            into_cluster(path)
    except LoadError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
