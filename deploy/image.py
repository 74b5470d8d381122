#!/usr/bin/env python3
"""Builds the images on this machine, without pulling anything: static binaries on an empty base.

  image.py                        build all, write an archive each to target/images, hand them to docker, podman or buildah
  image.py svc-ingest --dev       one of them, from the development profile
  image.py --only-files DIR       what the images hold, as files (deploy/Dockerfile copies them)

An archive is an OCI layout and what `docker save` writes in one, so every tool reads it (`docker load`, `podman load`,
`kind load image-archive`, `k3d image import`, `ctr images import`). The same binaries give the same image, bit by bit.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import archive
import load
from load import Failure

ROOT = Path(__file__).resolve().parent.parent
# Image, and so the binary's name: the cargo package that it comes from.
PROGRAMS = {"svc-identity": "identity", "svc-session": "session", "svc-ingest": "ingest", "svc": "cli"}
PORTS = {"svc-identity": [8080, 9090], "svc-session": [8080, 8081, 9090], "svc-ingest": [8080, 9090], "svc": []}
CERTIFICATES = [
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
]  # fmt: skip
USER_FILES = {
    "/etc/passwd": b"svc:x:65532:65532:svc:/nonexistent:/sbin/nologin\n",
    "/etc/group": b"svc:x:65532:\n",
    # Names come from files first, as everywhere else; without this file the C library has an order of its own.
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
                place(Path(options.only_files), path, content)
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in options.images:
        reference = options.reference or f"{options.registry.rstrip('/')}/{name}:{options.tag}"
        target = out / f"{name}.tar"
        archive.write(target, reference, files(binaries[name], name), [f"/usr/bin/{name}"], ports=PORTS[name])
        print(f"{reference}  {target.stat().st_size / 1e6:.1f} MB  {target}", flush=True)
        made.append({"name": name, "bytes": target.stat().st_size, "program": str(binaries[name])})
        if options.load:
            load.into_cluster(target)
        else:
            hand_over(target, options.tool)
    if not options.dev:
        # What `make bench` measures.
        (out / "images.json").write_text(json.dumps(made, indent=2) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=f"which of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--dev", action="store_true", help="development profile: built in seconds, larger, slower")
    parser.add_argument(
        "--registry", default="svc.localhost", help="what image names begin with (default: svc.localhost)"
    )
    parser.add_argument("--tag", default=version(), help="their tag (default: the workspace's version)")
    parser.add_argument("--out", default=str(ROOT / "target/images"), help="where archives go (default: target/images)")
    parser.add_argument(
        "--tool", default="auto", choices=["auto", "docker", "podman", "buildah", "none"], help="who gets the images"
    )
    parser.add_argument("--reference", metavar="NAME:TAG", help="the whole name of a single image, instead of both")
    parser.add_argument(
        "--load", action="store_true", help="give the images to the current cluster (see deploy/load.py)"
    )
    parser.add_argument("--only-build", action="store_true", help="build the binaries and stop")
    parser.add_argument("--only-files", metavar="DIR", help="write what the images hold into this directory instead")
    options = parser.parse_args()
    unknown = set(options.images) - set(PROGRAMS)
    if unknown:
        parser.error(f"there is no image {', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}")
    if options.reference and len(options.images) != 1:
        parser.error("--reference names one image: say which")
    options.images = options.images or list(PROGRAMS)
    return options


def version():
    manifest = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1]
    return manifest.split('version = "')[1].split('"')[0]


def build(names, dev):
    """Builds static binaries and returns where they are, stripped; symbols go beside them as `<name>.debug`.

    All are built, whichever are wanted: what others switch on in a library they share makes it another library, so each
    alone would build all of them anew.
    """
    triple = host()
    flags = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS"
    # With --target the flags are for the programs alone: procedural macros cannot be static.
    environment = {**os.environ, flags: f"{os.environ.get(flags, '')} -C target-feature=+crt-static".strip()}
    environment.setdefault("SQLX_OFFLINE", "true")
    command = ["cargo", "build", "--target", triple, "--profile", "dev" if dev else "release"]
    for name, package in PROGRAMS.items():
        command += ["--package", package, "--bin", name]
    started = time.monotonic()
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise Failure("the binaries cannot be built; what cargo said is above")
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    directory = target_directory() / triple / ("debug" if dev else "release")
    return {name: stripped(directory / name) for name in names}


def host():
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True)
    if said.returncode:
        raise Failure("rustc does not run: install Rust (https://rustup.rs), then run this again")
    triple = said.stdout.split("host: ")[1].split()[0]
    if "linux" not in triple:
        raise Failure(f"this machine builds for {triple}, but images need Linux: use deploy/Dockerfile")
    return triple


def target_directory():
    said = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(said.stdout)["target_directory"])


def stripped(binary):
    if not is_static(binary):
        raise Failure(f"{binary} is not static: a setting of this machine's cargo takes +crt-static back")
    small, symbols = binary.with_suffix(".stripped"), binary.with_suffix(".debug")
    if not small.exists() or small.stat().st_mtime < binary.stat().st_mtime:
        for command in (
            ["objcopy", "--only-keep-debug", binary, symbols],
            ["strip", "--strip-all", "-o", small, binary],
        ):
            if subprocess.run(command).returncode:
                raise Failure(f"{command[0]} failed: install binutils, then run this again")
    return small


def is_static(binary):
    """Whether an ELF file asks for no interpreter (the dynamic loader)."""
    with binary.open("rb") as file:
        header = file.read(64)
        offset, size, count = (int.from_bytes(header[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
        file.seek(offset)
        kinds = [int.from_bytes(file.read(size)[:4], "little") for _ in range(count)]
    return header[:4] == b"\x7fELF" and 3 not in kinds  # PT_INTERP


def files(binary, name):
    """What an image holds: path in the image to content or file."""
    bundle = next((path for path in CERTIFICATES if os.path.exists(path)), None)
    if bundle is None:
        raise Failure("there are no certificates on this machine: install ca-certificates, then run this again")
    return {**USER_FILES, "/etc/ssl/certs/ca-certificates.crt": Path(bundle).read_bytes(), f"/usr/bin/{name}": binary}


def place(directory, path, content):
    target = directory / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        target.write_bytes(content)
    else:
        shutil.copy(content, target)
        target.chmod(0o755)


def hand_over(target, tool):
    """Gives an archive to the tool of this machine that keeps images, if there is one that works."""
    commands = {
        "docker": ["docker", "load", "--quiet", "--input", target],
        "podman": ["podman", "load", "--quiet", "--input", target],
        "buildah": ["buildah", "pull", "--quiet", f"docker-archive:{target}"],
    }
    probes = {"docker": ["docker", "info"], "podman": ["podman", "info"], "buildah": ["buildah", "images"]}
    for name in commands if tool == "auto" else [tool] if tool != "none" else []:
        if not shutil.which(name) or subprocess.run(probes[name], capture_output=True).returncode:
            if tool != "auto":
                raise Failure(f"{name} does not run on this machine: start it, or type --tool none")
            continue
        if subprocess.run(commands[name]).returncode:
            raise Failure(f"{name} does not take {target}; what it said is above")
        return


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"{sys.argv[0]}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
