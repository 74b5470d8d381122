#!/usr/bin/env python3
"""Builds all tests of the workspace and runs the test binaries, several at a time: most tests wait for servers, not for a processor.

Prints the output of each binary when it has ended, and at the end the failed tests. `ARGS` of `make test` are those of `cargo test`:
`--test system`, `--lib`, and filters after `--`.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

# Each runs as many tests as there are processors, and most of them start several servers.
PROGRAMS = os.cpu_count() or 1

# Lines of the panic of a failed test that are repeated at the end.
REASON = 20


def main():
    build, filters = split(sys.argv[1:])
    binaries = compiled(build)
    started = time.monotonic()
    # The largest ones link the whole system and take the longest, so they start first.
    binaries.sort(key=lambda binary: -os.path.getsize(binary[0]))
    jobs = [([path, *filters], directory) for path, directory in binaries]
    if not build:
        jobs.insert(0, (["cargo", "test", "--workspace", "--doc", "--quiet", "--", *filters], "."))
    with concurrent.futures.ThreadPoolExecutor(PROGRAMS) as pool:
        results = [pool.submit(run, *job) for job in jobs]
        failures = []
        for result in concurrent.futures.as_completed(results):
            name, seconds, code, output = result.result()
            print(f"--- {name}: {seconds:.0f} s\n{output}", end="", flush=True)
            if code != 0:
                failures.append(f"{name}: exit code {code}")
                failures += [f"  {test}{reason(output, test)}" for test in re.findall(r"^test (.*) \.\.\. FAILED$", output, re.M)]
    print(f"--- {len(jobs)} programs in {time.monotonic() - started:.0f} s")
    if failures:
        sys.exit("\n".join(["failed:", *failures]))


def split(arguments):
    """Returns the arguments before `--` and those after it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def compiled(arguments):
    """Returns the path of each test binary, and the directory of its package, where cargo would run it."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics", *arguments]
    build = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if build.returncode != 0:
        sys.exit(build.returncode)
    messages = [json.loads(line) for line in build.stdout.splitlines() if line.startswith("{")]
    return [
        (message["executable"], str(Path(message["manifest_path"]).parent))
        for message in messages
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]
    ]


def reason(output, test):
    """Returns the panic of a failed test: a reader of the last lines alone sees why it failed."""
    section = re.search(rf"^---- {re.escape(test)} stdout ----\n(.*?)^(?:---- |failures:$)", output, re.M | re.S)
    panic = re.search(r"panicked at .*?(?=^stack backtrace:|\Z)", section[1], re.M | re.S) if section else None
    lines = [line for line in panic[0].splitlines() if line.strip()] if panic else []
    return "".join(f"\n    {line[:400]}" for line in lines[:REASON])


def run(command, directory):
    started = time.monotonic()
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    name = "documentation" if command[0] == "cargo" else re.sub(r"-[0-9a-f]{16}$", "", Path(command[0]).name)
    return name, time.monotonic() - started, done.returncode, done.stdout


if __name__ == "__main__":
    main()
