#!/usr/bin/env python3
"""Writes a release to target/dist: images for amd64 and arm64, the chart, the client for Linux, an SBOM and checksums.

  svc-identity-<version>.oci.tar …       OCI archive with an image index, for `skopeo copy --all oci-archive:…` and `crane push`
  svc-<version>-linux-<architecture>.tar.gz   `svc` with manual pages and completion scripts
  svc-<version>.tgz                      Helm chart
  svc-<version>.spdx.json                packages in the programs (SPDX 2.3)
  SHA256SUMS                             digest of each file, and of each image index as a comment

Two runs of the same commit on the same machine write the same bytes. Needs the cross compiler of the other architecture (Debian:
gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, or gcc-x86-64-linux-gnu and libc6-dev-amd64-cross) and the Rust target (rustup installs it).
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import archive
import image
import sbom
from image import ROOT
from load import LoadError

TRIPLES = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
# Shell of `svc completion`: file name of the script.
COMPLETIONS = {"bash": "svc.bash", "zsh": "_svc", "fish": "svc.fish"}
CHART = ROOT / "helm/svc"


def main():
    options = arguments()
    out, version = Path(options.out), image.version()
    triples = {name: triple for name, triple in TRIPLES.items() if name in options.architectures}
    for triple in triples.values():
        check_tools(triple)
    check_changelog(version)
    time, revision = commit()
    reproducible(time)
    binaries = {name: image.build(list(image.PROGRAMS), options.dev, triple) for name, triple in triples.items()}
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    digests = {}
    for name in image.PROGRAMS:
        images = {
            architecture: oci_image(name, architecture, programs[name], revision)
            for architecture, programs in binaries.items()
        }
        target = out / f"{name}-{version}.oci.tar"
        digests[name] = archive.write_index(target, f"{options.registry.rstrip('/')}/{name}:{version}", images)
    with tempfile.TemporaryDirectory() as work:
        manual = client_files(host_client(binaries, options.dev), Path(work))
        for architecture, programs in binaries.items():
            files = manual | {"svc": programs["svc"]}
            target = out / f"svc-{version}-linux-{architecture}.tar.gz"
            target.write_bytes(archive.pack_gzip(files, f"svc-{version}", time))
    (out / f"svc-{version}.tgz").write_bytes(archive.pack_gzip(chart_files(), "svc", time))
    (out / f"svc-{version}.spdx.json").write_bytes(sbom.document(version, time, triples.values()))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(lines))
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file}")
    for name, digest in digests.items():
        print(f"{name}@{digest}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(image.target_directory() / "dist"), help="directory, replaced (default: target/dist)")
    parser.add_argument("--registry", default="svc.localhost", help="prefix of image names (default: svc.localhost)")
    parser.add_argument(
        "--architectures", nargs="+", default=list(TRIPLES), choices=list(TRIPLES), help="architectures (default: all)"
    )
    parser.add_argument("--dev", action="store_true", help="use the development profile: fast build, larger and slower binaries")
    return parser.parse_args()


def check_tools(triple):
    compiler = f"{image.cross_prefix(triple)}gcc"
    if not shutil.which(compiler):
        raise LoadError(f"{compiler} is missing: install the cross compiler for {triple}, or pass --architectures")
    installed = subprocess.run(["rustup", "target", "list", "--installed"], cwd=ROOT, capture_output=True, text=True)
    if installed.returncode or triple in installed.stdout.split():
        return
    if subprocess.run(["rustup", "target", "add", triple], cwd=ROOT).returncode:
        raise LoadError(f"rustup cannot install the target {triple}")


def check_changelog(version):
    if f"## [{version}]" not in (ROOT / "CHANGELOG.md").read_text():
        raise LoadError(f"CHANGELOG.md has no section for this version: name it ## [{version}]")


def commit():
    """Returns the time (seconds since 1970) and the id of the commit. SOURCE_DATE_EPOCH replaces the time."""
    run = subprocess.run(["git", "log", "-1", "--format=%ct %H"], cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise LoadError("a release is made from a git checkout: git log fails")
    time, revision = run.stdout.split()
    return int(os.environ.get("SOURCE_DATE_EPOCH", time)), revision


def reproducible(time):
    """Removes the paths of this machine and the time of the build from the binaries."""
    cargo_home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    paths = {str(ROOT): "/src", cargo_home: "/cargo"}
    for triple in TRIPLES.values():
        rust, c = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS", f"CFLAGS_{triple.replace('-', '_')}"
        os.environ[rust] = " ".join(f"--remap-path-prefix={a}={b}" for a, b in paths.items())
        os.environ[c] = " ".join(f"-ffile-prefix-map={a}={b}" for a, b in paths.items())
    os.environ["SOURCE_DATE_EPOCH"] = str(time)


def oci_image(name, architecture, binary, revision):
    settings = image.settings(name)
    settings["labels"]["org.opencontainers.image.revision"] = revision
    return archive.Image(image.files(binary, name), [f"/usr/bin/{name}"], architecture=architecture, **settings)


def host_client(binaries, dev):
    """Returns the client that runs on this machine."""
    for architecture, triple in TRIPLES.items():
        if triple == image.host() and architecture in binaries:
            return binaries[architecture]["svc"]
    return image.build(["svc"], dev)["svc"]


def client_files(svc, work):
    """Returns the files next to the client: manual pages, completion scripts and the license."""
    run(svc, "man-pages", str(work))
    files = {f"man/man1/{page.name}": page.read_bytes() for page in work.iterdir()}
    for shell, name in COMPLETIONS.items():
        files[f"completions/{name}"] = run(svc, "completion", shell)
    return files | {"LICENSE": (ROOT / "LICENSE").read_bytes()}


def run(*command):
    result = subprocess.run(command, capture_output=True)
    if result.returncode:
        raise LoadError(f"{command[0]} {command[1]} failed: {result.stderr.decode()}")
    return result.stdout


def chart_files():
    """Returns the files of the chart that are in git."""
    listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=CHART, capture_output=True, text=True, check=True)
    return {name: CHART / name for name in listed.stdout.split("\0") if name and name != ".helmignore"}


if __name__ == "__main__":
    try:
        main()
    except LoadError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
