#!/usr/bin/env python3
"""Reports circles of modules in the Rust code of this repository, and modules that use a layer above them.

  circles.py                check all crates

A module is a file, with the files of the folder of the same name. Modules next to each other must not form a circle: if `a` uses
`b`, neither `b` nor a module that it uses may use `a`. A module uses another if it has a path to it, such as `use crate::b::Item`
or `super::b::Item`. Tests are not checked, nor are paths to the file above a module. Circles of KNOWN are printed. Exits with 1 if it
finds another one. Needs Python 3.9 and no packages.
"""

import re
import subprocess
import sys
from pathlib import Path

# Folders of tests, which use everything.
TESTS = {"tests", "benches", "examples", "testkit", "testsystem", "fuzz", "simulation"}
# Circles that are left: crate, folder and modules. Each is within one folder, and is to be removed when its files change.
KNOWN = set()
# Modules that must not use another one, even if no circle follows: crate, module below, module above.
LAYERS = [("cli", "framework", "commands")]

SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|'(?:\\[^']+|\\'|[^'\\\n])'""", re.S
)
TEST_ITEM = re.compile(r"#\s*\[\s*cfg\s*\(\s*(?:all\s*\(\s*)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*")
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
VISIBILITY = re.compile(r"\bpub\s*\(\s*in\b[^)]*\)")
PATH = re.compile(r"(?<![\w:])\$?(crate|self|super)\s*::")
NAME = re.compile(r"\s*(?:r#)?(\w+|\*)")


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def production(text):
    """The code without comments, literals and inline tests."""
    text = VISIBILITY.sub("", SKIPPED.sub(blank, text))
    while match := TEST_ITEM.search(text):
        end, depth = match.end(), 0
        while end < len(text):
            depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(text[end], 0)
            end += 1
            if depth == 0 and text[end - 1] in ";}":
                break
        text = text[: match.start()] + text[end:]
    return text


def read_paths(text, start, prefix):
    """Paths that begin at a position, such as `a::{b, c::D}`, and the end of the last one."""
    paths, at = [], start
    rest = text[at:].lstrip()
    at = len(text) - len(rest)
    if rest.startswith("{"):
        at += 1
        while at < len(text):
            inner, at = read_paths(text, at, prefix)
            paths += inner
            rest = text[at:].lstrip()
            at = len(text) - len(rest)
            if rest.startswith(","):
                at += 1
                if text[at:].lstrip().startswith("}"):
                    continue
            elif rest.startswith("}"):
                return paths, at + 1
            elif not inner:
                return paths, at + 1
            elif rest.startswith("as "):
                at = text.index("as", at) + 2
                at = NAME.match(text, at).end()
                if text[at:].lstrip().startswith(","):
                    at = text.index(",", at) + 1
        return paths, at
    name = NAME.match(text, at)
    if not name:
        return [], at
    path, at = [*prefix, name[1]], name.end()
    more = re.compile(r"\s*::\s*(?=[\w{*])").match(text, at)
    return read_paths(text, more.end(), path) if more else ([path], at)


class Crate:
    """The modules of a crate, by their path below its root."""

    def __init__(self, name, root, files):
        self.name, self.modules = name, {}
        for file in files:
            parts = list(file.relative_to(root).with_suffix("").parts)
            if parts[-1] in ("lib", "main"):
                parts.pop()
            elif parts[-1] == "mod":
                parts.pop()
            self.modules.setdefault(tuple(parts), []).append(production(file.read_text()))
        hidden = set()
        for path, file in [(path, file) for file in files for path in [tuple(file.relative_to(root).with_suffix("").parts)]]:
            above = () if path[-1] in ("lib", "main") else path
            hidden |= {(*above, name) for name in TEST_MODULE.findall(SKIPPED.sub(blank, file.read_text()))}
        self.modules = {
            path: texts for path, texts in self.modules.items() if not any(path[: len(test)] == test for test in hidden)
        }

    def module_of(self, path):
        """The module that contains an item."""
        while tuple(path) not in self.modules and path:
            path = path[:-1]
        return tuple(path)

    def uses(self):
        """Pairs of modules: the first one uses the second one."""
        for module, texts in self.modules.items():
            for text in texts:
                for match in PATH.finditer(text):
                    at, base = match.end(), [] if match[1] == "crate" else list(module)
                    if match[1] == "super":
                        base = base[:-1]
                    while above := re.compile(r"\s*super\s*::").match(text, at):
                        at, base = above.end(), base[:-1]
                    for path in read_paths(text, at, base)[0]:
                        yield module, self.module_of(path)

    def circles(self):
        """(folder, modules) of each circle of modules next to each other."""
        edges = {}
        for module, used in self.uses():
            shared = 0
            while shared < min(len(module), len(used)) and module[shared] == used[shared]:
                shared += 1
            if shared < min(len(module), len(used)):
                folder = edges.setdefault(module[:shared], {})
                folder.setdefault(module[shared], {})[used[shared]] = "::".join(module)
        for folder, graph in sorted(edges.items()):
            for group in components(graph):
                yield folder, group, graph
        for crate, below, above in LAYERS:
            if crate == self.name and above in edges.get((), {}).get(below, {}):
                yield (), [below, above], edges[()]


def components(graph):
    """Strongly connected components with at least two modules."""
    def reachable(start):
        seen, waiting = set(), [start]
        while waiting:
            for used in graph.get(waiting.pop(), {}):
                if used not in seen:
                    seen.add(used)
                    waiting.append(used)
        return seen
    reach = {module: reachable(module) for module in graph}
    done = set()
    for module in sorted(graph):
        group = sorted(other for other in reach[module] if module in reach.get(other, ()))
        if len(group) > 1 and module not in done:
            done |= set(group)
            yield group


def crates(root):
    """All crates with production code."""
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=root, capture_output=True, text=True, check=True)
    by_source = {}
    for name in listed.stdout.split():
        parts = name.split("/")
        if "src" in parts and not TESTS & set(parts) and (root / name).exists():
            by_source.setdefault("/".join(parts[: parts.index("src") + 1]), []).append(root / name)
    for source, files in sorted(by_source.items()):
        yield Crate(source.split("/")[-2], root / source, files)


def main():
    root, found, known = Path(__file__).resolve().parents[2], 0, set()
    for crate in crates(root):
        for folder, group, graph in crate.circles():
            circle = (crate.name, "::".join(folder), *group)
            if circle in KNOWN:
                known.add(circle)
                print(f"known circle: {crate.name}: {', '.join(group)}")
                continue
            found += 1
            print(f"{crate.name}: modules use each other, or a layer above them: {', '.join(group)}")
            for module in group:
                for used, file in sorted(graph.get(module, {}).items()):
                    if used in group:
                        print(f"  {file} uses {used}")
    for circle in sorted(KNOWN - known):
        print(f"no circle any more, remove it from KNOWN: {circle}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
