#!/usr/bin/env python3
"""Gives image archives to the cluster that kubectl talks to.

E2E_LOAD_IMAGE, when set, is a command that is called with each archive. Else the name of kubectl's context tells: kind, k3d
and minikube have commands of their own for it.
"""

import os
import shlex
import subprocess
import sys


class Failure(Exception):
    """Something that the person at the terminal has to put right."""


def into_cluster(archive):
    command = command_for(os.environ.get("E2E_LOAD_IMAGE", ""), context())
    if subprocess.run([*command, str(archive)]).returncode:
        raise Failure(f"`{shlex.join(command)}` did not take {archive}; what it said is above")


def context():
    said = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True)
    return said.stdout.strip()


def command_for(own, context):
    """The command that takes an archive as its last argument."""
    kind, _, name = context.partition("-")
    if own:
        return shlex.split(own)
    if kind == "kind":
        return ["kind", "load", "image-archive", "--name", name]
    if kind == "k3d":
        return ["k3d", "image", "import", "--cluster", name]
    if context == "minikube":
        return ["minikube", "image", "load"]
    raise Failure(
        f"how does the cluster of context {context!r} get images? Set E2E_LOAD_IMAGE to a command that takes an archive,\n"
        "as E2E_LOAD_IMAGE='ctr --namespace k8s.io images import'"
    )


if __name__ == "__main__":
    try:
        for path in sys.argv[1:]:
            into_cluster(path)
    except Failure as failure:
        sys.exit(f"{sys.argv[0]}: {failure}")
