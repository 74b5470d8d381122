"""What a program gets with the Rust libraries for producers and consumers: few packages, and no features of Tokio for tests."""

import functools
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# With the default features, for the platform of this machine.
MOST_PACKAGES = {"transport": 130, "consumer": 170}


@functools.cache
def tree(library, *arguments):
    """Lines of the tree of a library as a dependency of another program."""
    command = ["cargo", "tree", "--offline", "--package", library, "--edges", "normal,features", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def packages(library):
    return {match[0] for line in tree(library, "--prefix", "none") if (match := re.match(r"\S+ v\S+", line))}


def enabled_by(library, feature):
    """The packages that enable a feature of Tokio themselves."""
    found, below = set(), False
    for line in tree(library, "--prefix", "depth", "--no-dedupe", "--depth", "2", "--invert", "tokio"):
        depth, name = re.match(r"(\d+)(.*)", line).groups()
        if depth == "1":
            below = name.startswith(f'tokio feature "{feature}"')
        elif below and depth == "2" and not name.startswith("tokio feature"):
            found.add(name.split()[0])
    return found


class Embedders(unittest.TestCase):
    def test_a_program_gets_few_packages(self):
        for library, most in MOST_PACKAGES.items():
            self.assertLessEqual(len(packages(library)), most, library)

    def test_the_features_of_tokio_for_tests_come_from_no_library(self):
        self.assertEqual(enabled_by("transport", "test-util"), set())
        # A dependency of async-nats.
        self.assertEqual(enabled_by("consumer", "test-util"), {"tryhard"})
        # For `consumer::shutdown_signal`.
        self.assertEqual((enabled_by("transport", "signal"), enabled_by("consumer", "signal")), (set(), {"consumer"}))
        for library in MOST_PACKAGES:
            for feature in ("process", "full"):
                self.assertEqual(enabled_by(library, feature), set(), f"{library}: {feature}")
            self.assertIn(library, enabled_by(library, "time"))


if __name__ == "__main__":
    unittest.main()
