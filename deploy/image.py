#!/usr/bin/env python3
"""Builds the images on the host: static binaries on an empty base, without pulling a base image.

  image.py                        build all images, write archives to target/images, load them into docker, podman or buildah
  image.py svc-ingest --dev       build one image with the development profile
  image.py --only-files DIR       write the content of the images as files (deploy/Dockerfile copies them)

An archive is an OCI layout that is also a `docker save` archive, so every tool reads it (`docker load`, `podman load`,
`kind load image-archive`, `k3d image import`, `ctr images import`). Images are reproducible: the same binaries give the same
archive.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import archive
import load
from load import LoadError

ROOT = Path(__file__).resolve().parent.parent
# Image and binary name: cargo package.
PROGRAMS = {"svc-identity": "identity", "svc-session": "session", "svc-ingest": "ingest", "svc-operator": "operator", "svc": "cli"}
PORTS = {
    "svc-identity": [8080, 8081, 9090], "svc-session": [8080, 8081, 9090], "svc-ingest": [8080, 9090], "svc-operator": [9090], "svc": [],
}  # fmt: skip
CERTIFICATES = [
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
]  # fmt: skip
USER_FILES = {
    "/etc/passwd": b"svc:x:65532:65532:svc:/nonexistent:/sbin/nologin\n",
    "/etc/group": b"svc:x:65532:\n",
    # Host names come from files first. Without this file, the C library uses a different order.
    "/etc/nsswitch.conf": b"hosts: files dns\n",
}


def main():
    options = arguments()
    binaries = build(options.images, options.dev)
    if options.only_build:
        return
    if options.only_files:
        for name in options.images:
            for path, content in files(binaries[name], name).items():
                write_file(Path(options.only_files), path, content)
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    built = []
    for name in options.images:
        reference = options.reference or f"{options.registry.rstrip('/')}/{name}:{options.tag}"
        target = out / f"{name}.tar"
        archive.write(target, reference, files(binaries[name], name), [f"/usr/bin/{name}"], **settings(name))
        print(f"{reference}  {target.stat().st_size / 1e6:.1f} MB  {target}", flush=True)
        built.append({"name": name, "bytes": target.stat().st_size, "program": str(binaries[name])})
        if options.load:
            load.into_cluster(target, options.context)
        else:
            load_locally(target, options.tool)
    if not options.dev:
        # `make bench` reads this file.
        (out / "images.json").write_text(json.dumps(built, indent=2) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=f"one of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--dev", action="store_true", help="use the development profile: fast build, larger and slower binaries")
    parser.add_argument(
        "--registry", default="svc.localhost", help="prefix of image names (default: svc.localhost)"
    )
    parser.add_argument("--tag", default=version(), help="tag of the images (default: version of the workspace)")
    parser.add_argument("--out", default=str(ROOT / "target/images"), help="directory for archives (default: target/images)")
    parser.add_argument(
        "--tool", default="auto", choices=["auto", "docker", "podman", "buildah", "none"], help="load the images into this tool (default: the first that works)"
    )
    parser.add_argument("--reference", metavar="NAME:TAG", help="full name of a single image, replaces --registry and --tag")
    parser.add_argument(
        "--load", action="store_true", help="load the images into a cluster (see deploy/load.py)"
    )
    parser.add_argument("--context", help="context of kubectl for --load (default: the current one)")
    parser.add_argument("--only-build", action="store_true", help="build only the binaries")
    parser.add_argument("--only-files", metavar="DIR", help="write the content of the images to this directory and exit")
    options = parser.parse_args()
    unknown = set(options.images) - set(PROGRAMS)
    if unknown:
        parser.error(f"unknown image {', '.join(sorted(unknown))}: use one of {', '.join(PROGRAMS)}")
    if options.reference and len(options.images) != 1:
        parser.error("--reference requires exactly one image: name it")
    options.images = options.images or list(PROGRAMS)
    return options


def version():
    manifest = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1]
    return manifest.split('version = "')[1].split('"')[0]


def build(names, dev, triple=None, root=ROOT):
    """Builds static binaries from the sources in `root` and returns their stripped paths. Symbols are in `<name>.debug` next to them.

    Always builds all programs: they enable different features of shared libraries, so separate builds would rebuild these.
    """
    triple = triple or host()
    command = ["cargo", "build", "--locked", "--target", triple, "--profile", "dev" if dev else "release"]
    for name, package in PROGRAMS.items():
        command += ["--package", package, "--bin", name]
    started = time.monotonic()
    variables = {**environment(triple), "CARGO_TARGET_DIR": str(target_directory())}
    if subprocess.run(command, cwd=root, env=variables).returncode:
        raise LoadError("failed to build the binaries; see the output of cargo above")
    print(f"built for {triple} in {time.monotonic() - started:.0f} s", flush=True)
    directory = target_directory() / triple / ("debug" if dev else "release")
    for name in names:
        if not is_static(directory / name):
            raise LoadError(f"{directory / name} is not static: remove the cargo setting of this machine that disables +crt-static")
    return {name: stripped(directory / name, triple) for name in names}


def environment(triple):
    """Returns the variables of a build for this target: static, and with the cross compiler if it is not the host."""
    target = triple.upper().replace("-", "_")
    name = f"CARGO_TARGET_{target}_RUSTFLAGS"
    flags = [os.environ.get(name, ""), "-C target-feature=+crt-static"]
    # A static program applies its relocations itself, packed ones since this version. They make it 5 % smaller.
    if libc_version() >= (2, 36):
        flags.append("-C link-arg=-Wl,-z,pack-relative-relocs")
    # With --target, the flags do not apply to procedural macros, which cannot be static.
    result = {**os.environ, name: " ".join(flags).strip()}
    result.setdefault("SQLX_OFFLINE", "true")
    if prefix := cross_prefix(triple):
        result.setdefault(f"CARGO_TARGET_{target}_LINKER", f"{prefix}gcc")
        result.setdefault(f"CC_{triple.replace('-', '_')}", f"{prefix}gcc")
        result.setdefault(f"AR_{triple.replace('-', '_')}", f"{prefix}ar")
    return result


def libc_version():
    """Returns the version of glibc, (0, 0) for another C library."""
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else (0, 0)


def cross_prefix(triple):
    """Returns the prefix of the GNU tools for this target; empty for the host."""
    return "" if triple == host() else f"{triple.split('-')[0]}-linux-gnu-"


def settings(name):
    """Returns the options of `archive.Image`."""
    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    # For `kubectl exec <pod> -- svc-identity …`.
    return {"ports": PORTS[name], "environment": {"PATH": "/usr/bin"}, "labels": labels}


def host():
    run = subprocess.run(["rustc", "-vV"], capture_output=True, text=True)
    if run.returncode:
        raise LoadError("rustc does not run: install Rust (https://rustup.rs) and retry")
    triple = run.stdout.split("host: ")[1].split()[0]
    if "linux" not in triple:
        raise LoadError(f"the host target is {triple}, but images need Linux: build them with deploy/Dockerfile, see \"Try it\" in docs/kubernetes.md")
    return triple


def target_directory():
    run = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(run.stdout)["target_directory"])


def stripped(binary, triple):
    """Returns the path of a copy without symbols, which are in `<name>.debug` next to it."""
    small, symbols = binary.with_suffix(".stripped"), binary.with_suffix(".debug")
    # Always: a build can replace the binary by an older one of another commit.
    for command in (
        [f"{cross_prefix(triple)}objcopy", "--only-keep-debug", binary, symbols],
        [f"{cross_prefix(triple)}strip", "--strip-all", "-o", small, binary],
    ):
        if not shutil.which(command[0]) or subprocess.run(command).returncode:
            raise LoadError(f"{command[0]} failed: install binutils for {triple} and retry")
    return small


def is_static(binary):
    """Returns whether an ELF file has no interpreter (dynamic loader)."""
    with binary.open("rb") as file:
        header = file.read(64)
        offset, size, count = (int.from_bytes(header[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
        file.seek(offset)
        kinds = [int.from_bytes(file.read(size)[:4], "little") for _ in range(count)]
    return header[:4] == b"\x7fELF" and 3 not in kinds  # PT_INTERP


def files(binary, name):
    """Returns the content of an image: path in the image to bytes or file."""
    bundle = next((path for path in CERTIFICATES if os.path.exists(path)), None)
    if bundle is None:
        raise LoadError("no CA certificates on this machine: install ca-certificates and retry")
    return {**USER_FILES, "/etc/ssl/certs/ca-certificates.crt": Path(bundle).read_bytes(), f"/usr/bin/{name}": binary}


def write_file(directory, path, content):
    target = directory / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        target.write_bytes(content)
    else:
        shutil.copy(content, target)
        target.chmod(0o755)


def load_locally(target, tool):
    """Loads an archive into the first working image tool of this machine, if any."""
    commands = {
        "docker": ["docker", "load", "--quiet", "--input", target],
        "podman": ["podman", "load", "--quiet", "--input", target],
        "buildah": ["buildah", "pull", "--quiet", f"docker-archive:{target}"],
    }
    probes = {"docker": ["docker", "info"], "podman": ["podman", "info"], "buildah": ["buildah", "images"]}
    for name in commands if tool == "auto" else [tool] if tool != "none" else []:
        if not shutil.which(name) or subprocess.run(probes[name], capture_output=True).returncode:
            if tool != "auto":
                raise LoadError(f"{name} does not run on this machine: start it, or use --tool none")
            continue
        if subprocess.run(commands[name]).returncode:
            raise LoadError(f"{name} failed to load {target}; see its output above")
        return


if __name__ == "__main__":
    try:
        main()
    except LoadError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
