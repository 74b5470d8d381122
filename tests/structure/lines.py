#!/usr/bin/env python3
"""Reports lines of Rust code and comments that are longer than 140 columns, except in tests. rustfmt leaves comments, texts and macros as
they are. Exits with 1 if it finds one. Needs Python 3.9 and no packages.
"""

import subprocess
import sys
from pathlib import Path

import circles

COLUMNS = 140


def long_lines(text):
    """Returns the numbers of the lines that are too long, up to the inline tests of a file."""
    lines = text.split("\n#[cfg(test)]\n")[0].splitlines()
    return [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS]


def main():
    listed = subprocess.run(["git", "ls-files", "*.rs"], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [Path(path) for path in listed if not circles.TESTS & set(Path(path).parts[:-1]) and Path(path).is_file()]
    found = [f"{path}:{number}: longer than {COLUMNS} columns" for path in paths for number in long_lines(path.read_text())]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
