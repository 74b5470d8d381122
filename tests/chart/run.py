#!/usr/bin/env python3
"""Runs the tests of the chart, the images, the Tiltfile, and the checks of wording and structure without a cluster. The last line is `N passed, N failed` and the number
of skipped tests, if any: tests that need Prometheus are skipped if it is not installed.

`run.py test_security` runs one module. Needs the tools of `deploy/local/fetch.py --tests`.
"""

import json
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIRECTORIES = (HERE, HERE.parent / "wording", HERE.parent / "structure")
sys.dont_write_bytecode = True  # keeps the source tree clean


def main():
    tools = load_tools()
    sys.path[:0] = [*map(str, DIRECTORIES), tools["yaml_path"], tools["fastjsonschema_path"], tools["starlark_path"]]
    names = sys.argv[1:] or sorted(path.stem for directory in DIRECTORIES for path in directory.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    unsuccessful = [test for test, _ in result.failures + result.errors] + result.unexpectedSuccesses
    # All cases (`subTest`) of a test count as one test.
    failed = len({getattr(test, "test_case", test).id() for test in unsuccessful})
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(0 if passed and not failed else 1)


def load_tools():
    try:
        tools = json.loads((HERE.parents[1] / ".dev/tools.json").read_text())
        return {name: tools[name] for name in ("yaml_path", "fastjsonschema_path", "starlark_path")}
    except (OSError, ValueError, KeyError):
        sys.exit("tools for the tests are missing: run python3 deploy/local/fetch.py --tests first")


if __name__ == "__main__":
    main()
