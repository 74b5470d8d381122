"""The checks of circles and of long lines find them, and ignore tests."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import circles
import lines


def found(**files):
    """Circles of a crate with these files: name without `.rs`, `__` for a folder, and text."""
    with tempfile.TemporaryDirectory() as root:
        paths = []
        for name, text in files.items():
            path = Path(root, name.replace("__", "/") + ".rs")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            paths.append(path)
        crate = circles.Crate("cli", Path(root), paths)
        return [("::".join(folder), group) for folder, group, _ in crate.circles()]


class Lines(unittest.TestCase):
    def test_reports_long_lines_and_comments_except_in_inline_tests(self):
        long = "/// " + "x" * lines.COLUMNS
        self.assertEqual(lines.long_lines(f"use a;\n{long}\nfn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{long}\n}}\n"), [2])


class Circles(unittest.TestCase):
    def test_reports_two_files_that_use_each_other(self):
        self.assertEqual(found(lib="mod a; mod b;", a="use crate::b::B;", b="use crate::a::A;"), [("", ["a", "b"])])
        self.assertEqual(found(lib="mod a; mod b;", a="use crate::b::B;", b="struct B;"), [])

    def test_reports_a_circle_over_three_modules_and_their_folders(self):
        files = {"a__x": "fn f() { crate::b::f() }", "a": "mod x;", "b": "use super::{c::C, other};", "c": "mod y;", "c__y": "mod z;", "c__y__z": "use crate::a;"}
        self.assertEqual(found(lib="", **files), [("", ["a", "b", "c"])])

    def test_reads_nested_groups_and_renamed_items(self):
        text = "use crate::{\n    b::{self as other, inner::{X as Y, Z}},\n    c::D,\n};"
        self.assertEqual(found(a=text, b="", c="use crate::a::*;"), [("", ["a", "c"])])

    def test_reports_files_within_a_folder(self):
        files = {"a": "mod x; mod y;", "a__x": "use super::y::Y;", "a__y": "struct Y(super::x::X);"}
        self.assertEqual(found(**files), [("a", ["x", "y"])])

    def test_ignores_tests_comments_literals_and_the_file_above(self):
        files = {
            "lib": "mod a;\n#[cfg(test)]\nmod tests;",
            "a": "// crate::b\nconst A: &str = \"crate::b\";\n#[cfg(test)]\nmod tests { use crate::b::B; }\nuse self::x::X;",
            "a__x": "use super::A;",
            "b": "use crate::a::A;\npub(in crate::tests) struct B;",
            "tests": "use crate::{a, b};",
        }
        self.assertEqual(found(**files), [])

    def test_the_framework_of_the_client_uses_no_command(self):
        self.assertEqual(found(framework="use crate::commands::X;", commands=""), [("", ["framework", "commands"])])

    def test_this_repository_has_no_unknown_circle(self):
        run = subprocess.run([sys.executable, circles.__file__], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    unittest.main()
