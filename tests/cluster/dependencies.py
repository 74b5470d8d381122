"""Images of the dependencies from binaries of this machine, for clusters that cannot pull images.

Postgres with its libraries and a shell, nats-server, and Python with nats-py and aiosmtpd for the programs that run in pods of the test.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "deploy"))

import archive  # noqa: E402

# initdb requires a user with a name; 999 as in the official image.
USERS = {
    "/etc/passwd": b"postgres:x:999:999::/:/bin/sh\nsvc:x:65532:65532::/:/bin/sh\n",
    "/etc/group": b"postgres:x:999:\nsvc:x:65532:\n",
}


def tools():
    return json.loads((ROOT / ".dev/tools.json").read_text())


def write_postgres(target, reference):
    directory = Path(tools()["postgres_bin_dir"])
    programs = [directory / name for name in ("postgres", "initdb", "psql", "pg_dump", "pg_restore")]
    directories = {flag: directory_of(programs[0], flag) for flag in ("sharedir", "pkglibdir")}
    # Without the JIT compiler, which is most of the size and not needed for development.
    modules = [module for module in sorted(directories["pkglibdir"].glob("*.so")) if "llvmjit" not in module.name]
    files = {**USERS, **with_libraries([*programs, *modules])}
    files[str(directories["sharedir"])] = directories["sharedir"]
    # Distributions build Postgres with the time zones of the system.
    files |= {str(folder): folder for folder in [Path("/usr/share/zoneinfo")] if folder.is_dir()}
    files["/bin/sh"] = Path(shutil.which("sh")).resolve()
    files |= with_libraries([Path(shutil.which(name)) for name in ("rm", "sh")])
    archive.write(
        target, reference, files, ["/bin/sh"], user="999:999", environment={"PATH": f"{directory}:/usr/bin:/bin"}
    )


def directory_of(postgres, kind):
    """Returns a directory of this Postgres from pg_config, or relative to the program."""
    pg_config = postgres.parent / "pg_config"
    if pg_config.exists():
        run = subprocess.run([pg_config, f"--{kind}"], capture_output=True, text=True, check=True)
        return Path(run.stdout.strip())
    home = postgres.parent.parent
    usual = {"sharedir": ["share/postgresql", "share"], "pkglibdir": ["lib/postgresql", "lib"]}[kind]
    # Debian uses another directory for files that all architectures share.
    usual = [home / path for path in usual] + [Path(str(home).replace("/lib/", "/share/"))]
    probe = {"sharedir": "postgres.bki", "pkglibdir": "plpgsql.so"}[kind]
    return next(path for path in usual if (path / probe).exists())


def write_nats(target, reference):
    files = {**USERS, "/usr/bin/nats-server": Path(tools()["nats_server"])}
    archive.write(target, reference, files, ["/usr/bin/nats-server"], environment={"PATH": "/usr/bin"})


def write_python(target, reference):
    program = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_path("stdlib"))
    excluded = {
        "site-packages",
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "lib2to3",
        "ensurepip",
        "__pycache__",
        "turtledemo",
    }
    modules = [
        file for file in standard.rglob("*")
        if file.is_file() and not excluded & set(file.relative_to(standard).parts) and not file.suffix == ".a"
        and not file.name.startswith("_test")
    ]  # fmt: skip
    files = {**USERS, **with_libraries([program, *(file for file in modules if file.suffix == ".so")])}
    files |= {str(file): file for file in modules}
    files |= {f"/{name}": HERE / name for name in ("reader.py", "consumer_client.py", "mail_server.py")}
    files |= {"/nats-py": Path(tools()["nats_py_path"]), "/aiosmtpd": Path(tools()["aiosmtpd_path"])}
    environment = {"PYTHONPATH": "/nats-py:/aiosmtpd", "PYTHONHOME": sys.base_prefix, "PYTHONDONTWRITEBYTECODE": "1"}
    archive.write(target, reference, files, [str(program)], environment=environment)


def with_libraries(programs):
    """Returns programs and their shared libraries, at their own paths."""
    return {**{str(program): program.resolve() for program in programs}, **libraries(programs)}


def libraries(programs):
    """Returns the shared libraries of programs, at their own paths."""
    files = {}
    for program in programs:
        output = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
        for word in output.split():
            if word.startswith("/") and Path(word).exists():
                files[word] = Path(word).resolve()
    return files


if __name__ == "__main__":
    out = Path(sys.argv[1])
    for name, write in (("postgres", write_postgres), ("nats", write_nats), ("python", write_python)):
        write(out / f"{name}.tar", f"svc.localhost/{name}:e2e")
        print(f"{out / name}.tar: {(out / f'{name}.tar').stat().st_size / 1e6:.0f} MB")
