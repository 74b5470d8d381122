"""The wording check reports words in texts, and ignores code and allowed phrases."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check

LIST = """
# A comment.
gronk -> "no user"
blue mugs? -> ingress
(zib|zibbed) -> log
plim -> expired
allow plim[- ]letters?
"""


def found(name, text):
    """Returns (line, word) of each hit in a file of this name."""
    return [(line, word) for line, word, _ in check.check_text(check.Words(LIST), name, text)]


class Wording(unittest.TestCase):
    def test_reports_word_with_suggestion(self):
        hits = list(check.check_text(check.Words(LIST), "a.md", "Text.\nGronk is here."))
        self.assertEqual(hits, [(2, "Gronk", '"no user"')])

    def test_reports_comments_and_sentences_of_rust(self):
        code = '/// Zib it.\nfn zibbed() { info!("gronk came"); let plim = "plim"; } // a plim row\nlet raw = r#"a\nzibbed "b""#;'
        self.assertEqual(found("a.rs", code), [(1, "Zib"), (2, "gronk"), (2, "plim"), (4, "zibbed")])

    def test_reports_comments_and_sentences_of_other_languages(self):
        self.assertEqual(found("a.py", 'zibbed = "zibbed"  # plim\nx = "it zibbed us"'), [(1, "plim"), (2, "zibbed")])
        self.assertEqual(found("a.sql", "-- plim rows\nselect 'gronk came', zibbed from plim"), [(1, "plim"), (2, "gronk")])
        self.assertEqual(found("a.js", "// zibbed\nlet plim = 'gronk came';"), [(1, "zibbed"), (2, "gronk")])
        self.assertEqual(found("a.html", '<p class="plim">\nGronk</p>'), [(2, "Gronk")])
        self.assertEqual(found("a.yaml", "summary: gronk"), [(1, "gronk")])

    def test_reports_names_of_functions(self):
        self.assertEqual(found("a.rs", "fn plim() {}\nasync fn gronk_can_log_in() {}"), [(2, "gronk")])
        self.assertEqual(found("a.py", "def test_plim_rows(self):\n    pass"), [(1, "plim")])

    def test_matches_phrases_over_several_spaces_and_lines(self):
        self.assertEqual(found("a.md", "the blue\n  mug and the blue  mugs"), [(1, "blue mug"), (2, "blue mugs")])

    def test_ignores_allowed_phrases_code_spans_and_parts_of_words(self):
        self.assertEqual(found("a.md", "a plim letter, `zibbed`, {zibbed:?}, plimline, plim-lettered, unzibbedly"), [])

    def test_ignores_other_files(self):
        self.assertEqual(found("a.png", "gronk") + found("services/x/data/words.list", "gronk"), [])

    def test_rejects_line_without_suggestion(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            check.Words("# list\ngronk\n")

    def test_word_list_is_valid_and_reports_each_word(self):
        words = check.Words(check.WORDS.read_text("utf-8"))
        for text in ("nobody", "whoever", "tells", "front door", "is let in", "parked", "under way", "what is", "stood"):
            self.assertTrue(list(words.find(text)), text)

    def test_command_fails_for_a_tracked_file_with_a_hit(self):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            copy = root / "tests/wording"
            copy.mkdir(parents=True)
            for name in ("check.py", "words.list"):
                (copy / name).write_text((check.HERE / name).read_text("utf-8"))
            (root / "a.md").write_text("Nobody knows.\n")
            (root / "b.md").write_text("The user is unknown.\n")
            for command in (["init", "--quiet"], ["add", "."]):
                subprocess.run(["git", "-C", root, *command], check=True)

            def run(*paths):
                command = [sys.executable, "-B", copy / "check.py", *paths]
                return subprocess.run(command, capture_output=True, text=True)

            self.assertEqual(run(root / "b.md").returncode, 0)
            failed = run()
            self.assertEqual(failed.returncode, 1)
            self.assertIn("a.md:1: Nobody:", failed.stdout)


if __name__ == "__main__":
    unittest.main()
