"""The other build of the upgrade test: the release before this commit, or a newer release that this commit is upgraded to.

E2E_FROM or the newest tag before this commit names the earlier release. Upgrades are supported from 0.1.0 on, because migrations change in
place before it. Without a tag, the other build is this commit with another version and three more migrations in each schema.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import image
from cluster import ROOT, run

# Each declares the version of this commit as the oldest binary, as CONTRIBUTING.md requires.
MIGRATIONS = {
    "identity": (
        "alter table identity.users add column e2e_note text;",
        "create table identity.e2e_notes (note_id uuid primary key);",
        "create index users_e2e_note_idx on identity.users (e2e_note);",
    ),
    "session": (
        "alter table session.sessions add column e2e_note text;",
        "create table session.e2e_notes (note_id uuid primary key);",
        "create index sessions_e2e_note_idx on session.sessions (e2e_note);",
    ),
}


@dataclasses.dataclass
class OtherBuild:
    """Sources of the build. An older build is installed first, a newer one is the target of the upgrade."""

    root: Path
    is_older: bool
    description: str


def prepare():
    """Writes the sources below the target directory, where they stay for the next run."""
    tag = run("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "HEAD^", check=False).strip()
    commit = os.environ.get("E2E_FROM") or tag
    root = image.target_directory() / "e2e-sources"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    if commit:
        short = run("git", "-C", ROOT, "rev-parse", "--short=12", f"{commit}^{{commit}}").strip()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", "--directory", str(root)], input=archive, check=True)
        set_version(root, f"e2e.{short}")
        return OtherBuild(root, True, f"commit {short}")
    for name in run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            # With its time: cargo compiles changed files only.
            shutil.copy2(ROOT / name, root / name)
    for service, statements in MIGRATIONS.items():
        add_migrations(root / f"services/{service}/migrations", statements)
    set_version(root, f"e2e.newer.{zlib.crc32(repr(MIGRATIONS).encode())}")
    return OtherBuild(root, False, "this commit with three more migrations in each schema")


def add_migrations(directory, statements):
    last = max(directory.glob("*.sql"))
    built_for = int(last.name.split("_")[0])
    for number, statement in enumerate(statements, built_for + 1):
        file = directory / f"{number:04}_e2e.sql"
        file.write_text(f"-- oldest-binary: {built_for}\n{statement}\n")
        shutil.copystat(last, file)


def set_version(root, suffix):
    """Adds a suffix to the version of the workspace, so that cargo keeps the artifacts of both builds."""
    manifest, lock = root / "Cargo.toml", root / "Cargo.lock"
    text = manifest.read_text()
    version = re.search(r'\[workspace\.package\].*?^version = "(.*?)"', text, re.S | re.M)[1]
    edit(manifest, text.replace(f'version = "{version}"', f'version = "{version}+{suffix}"', 1))
    # Packages of the workspace have no source.
    own = rf'(\nversion = "{re.escape(version)})("\n(?!source))'
    edit(lock, re.sub(own, rf"\g<1>+{suffix}\g<2>", lock.read_text()))


def edit(file, text):
    """Writes a file and keeps its time."""
    status = file.stat()
    file.write_text(text)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
