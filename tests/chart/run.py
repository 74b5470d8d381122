#!/usr/bin/env python3
"""Runs the tests of the chart and of the Tiltfile, without a cluster. The last line says `N passed, N failed`, and how
many were skipped, if any: those that need a Prometheus, where there is none.

`run.py test_security` runs one module. Needs what `deploy/local/fetch.py --tests` fetches.
"""

import json
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True  # nothing is left behind in the source tree


def main():
    tools = load_tools()
    sys.path[:0] = [str(HERE), tools["yaml_path"], tools["fastjsonschema_path"], tools["starlark_path"]]
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    wrong = [test for test, _ in result.failures + result.errors] + result.unexpectedSuccesses
    # A case of a test (`subTest`) is no test of its own.
    failed = len({getattr(test, "test_case", test).id() for test in wrong})
    skipped = len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(0 if passed and not failed else 1)


def load_tools():
    try:
        tools = json.loads((HERE.parents[1] / ".dev/tools.json").read_text())
        return {name: tools[name] for name in ("yaml_path", "fastjsonschema_path", "starlark_path")}
    except (OSError, ValueError, KeyError):
        sys.exit("the tests of the chart miss their tools: run python3 deploy/local/fetch.py --tests first")


if __name__ == "__main__":
    main()
