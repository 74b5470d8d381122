#!/usr/bin/env python3
"""Writes the diagram of the workspace into ARCHITECTURE.md, from the dependencies of its crates.

An arrow is a dependency. One that follows from others is left out, as are crates for tests.
"""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BEGIN, END = "<!-- Dependencies of the crates -->", "<!-- End of the dependencies -->"
TESTS = {"testkit", "testsystem"}
GROUPS = ["cli", "services", "libs"]


def reached(crate, uses):
    return {crate}.union(*(reached(used, uses) for used in uses[crate]))


def diagram(packages):
    places = {package["name"]: Path(package["manifest_path"]).relative_to(ROOT).parts[0] for package in packages}
    shown = {name for name, place in places.items() if place in GROUPS} - TESTS
    uses = {}
    for package in packages:
        normal = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] is None}
        uses[package["name"]] = sorted(normal & shown)
    lines = ["```mermaid", "flowchart TD"]
    for group in GROUPS:
        lines.append(f"  subgraph {group}-folder [{group}]")
        lines += [f"    {name}" for name in sorted(shown) if places[name] == group]
        lines.append("  end")
    for name in sorted(shown):
        direct = [used for used in uses[name] if not any(used in reached(other, uses) for other in uses[name] if other != used)]
        if direct:
            lines.append(f"  {name} --> {' & '.join(direct)}")
    return "\n".join([*lines, "```"])


def main():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    page = ROOT / "ARCHITECTURE.md"
    text = page.read_text()
    block = f"{BEGIN}\n{diagram(json.loads(output)['packages'])}\n{END}"
    replaced, count = re.subn(f"{BEGIN}.*?{END}", lambda _: block, text, flags=re.S)
    assert count == 1, f"{page.name} has {count} diagrams"
    if replaced != text:
        page.write_text(replaced)


if __name__ == "__main__":
    main()
