"""Images for the cluster: two builds of the services, and their dependencies."""

import os
import subprocess
import time

import archive
import dependencies
import image
import load
from cluster import TestError

REGISTRY = "svc.localhost"
# The tags of this commit and of the other build.
PRESENT, OTHER = "e2e", "e2e-other"
UPGRADED = ("svc-identity", "svc-session", "svc-ingest")
DEPENDENCIES = {
    "postgres": dependencies.write_postgres,
    "nats": dependencies.write_nats,
    "python": dependencies.write_python,
}


def program(name):
    """Returns the path of a program of the tested profile."""
    target = image.target_directory()
    return target / "debug" / name if development() else target / image.host() / "release" / name


def development():
    return os.environ.get("E2E_PROFILE") == "dev"


def make(work, report, other):
    """Builds and loads the images of this commit, and those of the other build (`OtherBuild`), if there is one."""
    if other:
        # First, so that the target directory contains the programs of this commit at the end.
        load_programs(work, report, OTHER, other.root, UPGRADED, other.description)
    load_programs(work, report, PRESENT, image.ROOT, list(image.PROGRAMS), "this commit")
    started = time.monotonic()
    for name, write in DEPENDENCIES.items():
        write(work / f"{name}.tar", dependency(name))
        load_and_delete(work / f"{name}.tar")
    report.step("load images of Postgres, NATS and Python", started, "done")


def load_programs(work, report, tag, root, names, description):
    started, sizes = time.monotonic(), []
    for name, files in programs(root, names).items():
        target = work / f"{name}.tar"
        archive.write(target, f"{REGISTRY}/{name}:{tag}", files, [f"/usr/bin/{name}"])
        sizes.append(f"{name} {load_and_delete(target):.0f} MB")
    report.step("build and load images", started, f"{description}: {', '.join(sizes)}")


def programs(root, names):
    """Builds the programs from the sources in a directory. Returns the content of each image.

    The development profile uses the build of `make test`, so that nothing is compiled twice: its programs need their libraries.
    """
    if not development():
        return {name: image.files(binary, name) for name, binary in image.build(names, dev=False, root=root).items()}
    command = ["cargo", "build", "--locked", "--workspace", *(word for name in names for word in ("--bin", name))]
    environment = {"SQLX_OFFLINE": "true", **os.environ, "CARGO_TARGET_DIR": str(image.target_directory())}
    if subprocess.run(command, cwd=root, env=environment).returncode:
        raise TestError("failed to build the binaries; see the output of cargo above")
    binaries = {name: image.stripped(program(name), image.host()) for name in names}
    return {
        name: {**dependencies.libraries([binary]), **image.files(binary, name)} for name, binary in binaries.items()
    }


def dependency(name):
    return f"{REGISTRY}/{name}:e2e"


def load_and_delete(target):
    """Loads an archive into the cluster and deletes it. Returns its size in MB."""
    load.into_cluster(target)
    size = target.stat().st_size / 1e6
    target.unlink()
    return size
