"""Images for the cluster: two builds of each program, and the dependencies of the services."""

import os
import time

import archive
import dependencies
import image
import load

REGISTRY = "svc.localhost"
TAGS = ("e2e-1", "e2e-2")
OTHERS = {
    "postgres": dependencies.write_postgres,
    "nats": dependencies.write_nats,
    "reader": dependencies.write_reader,
}


def program(name):
    """Returns the path of a program of the tested profile."""
    profile = "debug" if development() else "release"
    return image.target_directory() / image.host() / profile / name


def development():
    return os.environ.get("E2E_PROFILE") == "dev"


def make(work, report):
    """Builds and loads the images. The two builds differ in one file, so that they are different images."""
    started = time.monotonic()
    sizes = []
    for name, binary in image.build(list(image.PROGRAMS), development()).items():
        for tag in TAGS:
            files = {**image.files(binary, name), "/etc/svc-build": f"{tag}\n".encode()}
            target = work / f"{name}-{tag}.tar"
            archive.write(target, f"{REGISTRY}/{name}:{tag}", files, [f"/usr/bin/{name}"])
            size = load_and_delete(target)
        sizes.append(f"{name} {size:.1f} MB")
    for name, write in OTHERS.items():
        write(work / f"{name}.tar", other(name))
        load_and_delete(work / f"{name}.tar")
    report.step("build and load images", started, ", ".join(sizes))


def other(name):
    return f"{REGISTRY}/{name}:e2e"


def load_and_delete(target):
    """Loads an archive into the cluster and deletes it. Returns its size in MB."""
    load.into_cluster(target)
    size = target.stat().st_size / 1e6
    target.unlink()
    return size
