"""Unpacks pinned Debian packages below .dev/tools without root. Does not install them and does not change the state of apt."""

import functools
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path

APT = threading.Lock()
PINS = Path(__file__).resolve().with_name("debian.txt")


def unpacked(tools, package):
    """Returns the directory with the files of a package, or None if no pin matches this machine."""
    release, architecture = machine()
    pins = [line.split() for line in PINS.read_text().splitlines() if not line.startswith("#")]
    for pin in pins:
        if pin[:3] == [release, architecture, package]:
            version, digest = pin[3:]
            home = tools / f"{package}-{version.replace(':', '_')}"  # a colon separates the paths of libraries
            return home if home.is_dir() or fetch(home, f"{package}={version}", digest) else None
    return None


def matching(tools, package, installed):
    """Like `unpacked`, in the version of an installed package. Debian archives keep only the latest version, so no digest can be
    pinned; apt verifies the signature."""
    release, _ = machine()
    query = ["dpkg-query", "--show", "--showformat=${Version}", installed]
    version = subprocess.run(query, capture_output=True, text=True).stdout if release else ""
    home = tools / f"{package}-{version}"
    return home if version and (home.is_dir() or fetch(home, f"{package}={version}")) else None


def machine():
    """Returns release and architecture in the notation of Debian, or None."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        run = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True)
    except OSError:
        return None, None
    return fields.get("VERSION_CODENAME") if fields.get("ID") == "debian" else None, run.stdout.strip()


def fetch(home, package, digest=None):
    """Downloads and unpacks a package. Returns whether it is available; raises if it does not match its pinned digest."""
    print(f"fetching {package} into {home} …", flush=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".debian-") as part:
        Path(part, "root").mkdir()
        with APT:
            if apt(lists(), part, "download", package).returncode != 0:
                return False
        (file,) = Path(part).glob("*.deb")
        if digest and hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise ValueError(f"the digest of {package} does not match debian.txt")
        subprocess.run(["dpkg-deb", "--extract", file, Path(part, "root")], check=True)
        try:
            Path(part, "root").rename(home)
        except OSError:
            if not home.is_dir():  # otherwise a parallel run has created it
                raise
    return True


@functools.lru_cache(maxsize=None)
def lists():
    """Downloads the lists of packages once, into a directory that is deleted when the process ends."""
    archives = tempfile.TemporaryDirectory(prefix="svc-apt-")
    for directory in ("state/lists/partial", "cache/archives/partial"):
        Path(archives.name, directory).mkdir(parents=True)
    apt(archives, archives.name, "update")
    return archives


def apt(archives, directory, *arguments):
    own = {
        "Dir::State": f"{archives.name}/state", "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": f"{archives.name}/cache", "Acquire::Languages": "none", "APT::Sandbox::User": "root",
    }  # fmt: skip
    options = [f"--option={name}={value}" for name, value in own.items()]
    return subprocess.run(
        ["apt-get", "--quiet", *options, *arguments], cwd=directory, capture_output=True, env={**os.environ, "LC_ALL": "C"}
    )
