#!/usr/bin/env python3
"""Checks with cargo-mutants that the tests find wrong code: each mutant is one change, and a test must fail with it.

It prints for each package how many viable mutants were found, and fails if one that is not in survivors.txt was not found. An
interrupted run continues with the mutants that are left: the results are in target/mutation.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/mutation"
# The tests of a library, or the unit tests of a service.
TESTS = {"hashing": [], "authn": [], "udm": [], "ratelimit": [], "identity": ["--lib"], "session": ["--lib"]}
# A mutant that makes a test wait counts as found after this time.
TIMEOUT_SECONDS = 60


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cargo-mutants", required=True, metavar="FILE", help="the program cargo-mutants")
    parser.add_argument("--only", action="append", choices=TESTS, default=[], help="test only this package; can be repeated")
    parser.add_argument("--restart", action="store_true", help="forget the results of earlier runs")
    options = parser.parse_args()
    reasons = survivors((Path(__file__).parent / "survivors.txt").read_text())
    unexpected = []
    for package in options.only or TESTS:
        if options.restart:
            shutil.rmtree(OUT / package, ignore_errors=True)
        found, missed = run(options.cargo_mutants, package)
        share = 100 * found / max(found + len(missed), 1)
        print(f"{package}: {found} of {found + len(missed)} viable mutants found ({share:.1f} %)", flush=True)
        unexpected += [mutant for mutant in missed if without_position(mutant) not in reasons]
    if unexpected:
        sys.exit("mutation: no test finds these mutants. Add a test, or a reason to tests/mutation/survivors.txt:\n  " + "\n  ".join(unexpected))


def run(program, package):
    """Returns the number of mutants that tests found, and the names of the others."""
    out = OUT / package
    out.mkdir(parents=True, exist_ok=True)
    arguments = [f"--package={package}", "--iterate", f"--output={out}", "--config=tests/mutation/mutants.toml", "--no-shuffle"]
    arguments += [f"--timeout={TIMEOUT_SECONDS}", *(f"--cargo-test-arg={argument}" for argument in TESTS[package])]
    # Without files of failed examples of proptest, and without shortening them.
    environment = {**os.environ, "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true", "PROPTEST_MAX_SHRINK_ITERS": "0"}
    status = subprocess.run([program, "mutants", *arguments], cwd=ROOT, env=environment).returncode
    # 2: mutants were missed; 3: tests timed out.
    if status not in (0, 2, 3):
        sys.exit(f"mutation: cargo-mutants failed with exit code {status} in {package}")
    results = out / "mutants.out"
    # Those of earlier runs are in previously_caught.txt, with the ones that do not compile.
    earlier = lines(results / "previously_caught.txt")
    unviable = set(lines(out / "unviable.txt")) | set(lines(results / "unviable.txt"))
    (out / "unviable.txt").write_text("".join(f"{mutant}\n" for mutant in sorted(unviable)))
    caught = {*earlier, *lines(results / "caught.txt"), *lines(results / "timeout.txt")} - unviable
    return len(caught), lines(results / "missed.txt")


def lines(file):
    return file.read_text().splitlines() if file.exists() else []


def without_position(mutant):
    """`libs/udm/src/split.rs:62:9: replace …` without line and column."""
    return re.sub(r"^([^:]+):\d+:\d+:", r"\1:", mutant)


def survivors(text):
    """Returns the reason of each survivor: a line with its name, followed by indented lines with the reason."""
    reasons, waiting = {}, []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            reasons.update((name, line.strip()) for name in waiting)
            waiting = []
        else:
            waiting.append(line)
    if waiting:
        sys.exit(f"survivors.txt: no reason follows {waiting[0]!r}")
    return reasons


if __name__ == "__main__":
    main()
