"""Unpacks pinned packages of Debian below .dev/tools, without root: nothing is installed, and apt's own state is not touched."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

PINS = Path(__file__).resolve().with_name("debian.txt")


def unpacked(tools, package):
    """The directory with the package's files; None where it cannot be had, for this is no Debian that is pinned."""
    release, architecture = machine()
    pins = [line.split() for line in PINS.read_text().splitlines() if not line.startswith("#")]
    for pin in pins:
        if pin[:3] == [release, architecture, package]:
            version, digest = pin[3:]
            home = tools / f"{package}-{version}"
            return home if home.is_dir() or fetch(home, f"{package}={version}", digest) else None
    return None


def beside(tools, package, installed):
    """The same for a package that has to be of the version of an installed one. Debian keeps but the last version, which no
    list can pin: that it is Debian's is what apt checks."""
    release, _ = machine()
    query = ["dpkg-query", "--show", "--showformat=${Version}", installed]
    version = subprocess.run(query, capture_output=True, text=True).stdout if release else ""
    home = tools / f"{package}-{version}"
    return home if version and (home.is_dir() or fetch(home, f"{package}={version}")) else None


def machine():
    """Release and architecture, as Debian names them."""
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
        facts = dict(line.split("=", 1) for line in lines if "=" in line)
        said = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True)
    except OSError:
        return None, None
    return facts.get("VERSION_CODENAME") if facts.get("ID") == "debian" else None, said.stdout.strip()


def fetch(home, wanted, digest=None):
    """Whether the package came; one that is not the pinned one, where one is pinned, is an error."""
    print(f"fetching {wanted} into {home} …", flush=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".debian-") as part:
        for directory in ("state/lists/partial", "cache/archives/partial", "root"):
            Path(part, directory).mkdir(parents=True)
        apt(part, "update")
        if apt(part, "download", wanted).returncode != 0:
            return False
        (file,) = Path(part).glob("*.deb")
        if digest and hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise ValueError(f"what came as {wanted} is not what debian.txt pins")
        subprocess.run(["dpkg-deb", "--extract", file, Path(part, "root")], check=True)
        try:
            Path(part, "root").rename(home)
        except OSError:
            if not home.is_dir():  # else another run has put the same files there meanwhile
                raise
    return True


def apt(part, *arguments):
    own = {
        "Dir::State": f"{part}/state", "Dir::State::status": "/var/lib/dpkg/status", "Dir::Cache": f"{part}/cache",
        "Acquire::Languages": "none", "APT::Sandbox::User": "root",
    }  # fmt: skip
    options = [f"--option={name}={value}" for name, value in own.items()]
    return subprocess.run(
        ["apt-get", "--quiet", *options, *arguments], cwd=part, capture_output=True, env={**os.environ, "LC_ALL": "C"}
    )
