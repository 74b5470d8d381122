"""checkov on the rendered objects: every finding is an exception in checkov.txt, and every exception is still found.

`make chart-checks` runs it. CHECKOV is the directory into which pip installed checkov.
"""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import chart

CONFIGURATIONS = {
    **{name: (chart.MATRIX | chart.TRIALS)[name] for name in ("required values only", "production example", "development", "operator", "trial")},
    # Extra objects belong to the user.
    "all features": {**chart.EVERYTHING, "extraObjects": []},
}
EXCEPTIONS = Path(__file__).resolve().with_name("checkov.txt")


def exceptions():
    """Returns (rule, pattern of objects) of each exception."""
    lines = [line.split(maxsplit=2) for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")]
    return [(rule, pattern) for rule, pattern, _reason in lines]


def findings():
    """Returns (rule, object as kind/name, configuration) of each failed check, and the number of passed ones."""
    with tempfile.TemporaryDirectory() as directory:
        for name, values in CONFIGURATIONS.items():
            Path(directory, f"{name.replace(' ', '-')}.yaml").write_text(chart.yaml.dump_all(chart.render(values)))
        run = subprocess.run(
            [sys.executable, "-m", "checkov.main", "--directory", directory, "--framework", "kubernetes", "--output", "json", "--skip-download"],
            env={**os.environ, "PYTHONPATH": os.environ["CHECKOV"]}, capture_output=True, text=True,
        )  # fmt: skip
    assert run.stdout.startswith("{"), run.stdout + run.stderr
    report = json.loads(run.stdout)
    found = [(each["check_id"], *each["resource"].split(".")[::2], each["file_path"]) for each in report["results"]["failed_checks"]]
    return [(rule, f"{kind}/{name}", file) for rule, kind, name, file in found], report["summary"]["passed"]


class Checkov(unittest.TestCase):
    def test_every_finding_is_an_exception_and_every_exception_is_found(self):
        found, passed = findings()
        self.assertGreater(passed, 1000)
        known = exceptions()
        new, unused = [], set(known)
        for rule, name, file in found:
            matching = {(wanted, pattern) for wanted, pattern in known if wanted == rule and fnmatch.fnmatchcase(name, pattern)}
            unused -= matching
            new += [] if matching else [f"{rule} for {name} in {file}"]
        self.assertFalse(new, "fix it, or add an exception with its reason to checkov.txt")
        self.assertFalse(unused, "remove these exceptions from checkov.txt: no object needs them")
