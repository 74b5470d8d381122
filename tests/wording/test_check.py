"""The wording check reports words in texts, and ignores code and allowed phrases."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check

LIST = """
# A comment.
nobody -> "no user"
front doors? -> ingress
(tell|told) -> log
dead -> expired
allow dead[- ]letters?
"""


def found(name, text):
    """Returns (line, word) of each hit in a file of this name."""
    return [(line, word) for line, word, _ in check.check_text(check.Words(LIST), name, text)]


class Wording(unittest.TestCase):
    def test_reports_word_with_suggestion(self):
        hits = list(check.check_text(check.Words(LIST), "a.md", "Text.\nNobody is here."))
        self.assertEqual(hits, [(2, "Nobody", '"no user"')])

    def test_reports_comments_and_sentences_of_rust(self):
        code = '/// Tell it.\nfn told() { info!("nobody came"); let dead = "dead"; } // a dead row\nlet raw = r#"a\ntold "b""#;'
        self.assertEqual(found("a.rs", code), [(1, "Tell"), (2, "nobody"), (2, "dead"), (4, "told")])

    def test_reports_comments_and_sentences_of_other_languages(self):
        self.assertEqual(found("a.py", 'told = "told"  # dead\nx = "it told us"'), [(1, "dead"), (2, "told")])
        self.assertEqual(found("a.sql", "-- dead rows\nselect 'nobody came', told from dead"), [(1, "dead"), (2, "nobody")])
        self.assertEqual(found("a.js", "// told\nlet dead = 'nobody came';"), [(1, "told"), (2, "nobody")])
        self.assertEqual(found("a.html", '<p class="dead">\nNobody</p>'), [(2, "Nobody")])
        self.assertEqual(found("a.yaml", "summary: nobody"), [(1, "nobody")])

    def test_reports_names_of_functions(self):
        self.assertEqual(found("a.rs", "fn dead() {}\nasync fn nobody_can_log_in() {}"), [(2, "nobody")])
        self.assertEqual(found("a.py", "def test_dead_rows(self):\n    pass"), [(1, "dead")])

    def test_matches_phrases_over_several_spaces_and_lines(self):
        self.assertEqual(found("a.md", "the front\n  door and the front  doors"), [(1, "front door"), (2, "front doors")])

    def test_ignores_allowed_phrases_code_spans_and_parts_of_words(self):
        self.assertEqual(found("a.md", "a dead letter, `told`, {told:?}, deadline, dead-lettered, intolerable"), [])

    def test_ignores_other_files(self):
        self.assertEqual(found("a.png", "nobody") + found("services/x/data/words.txt", "nobody"), [])

    def test_rejects_line_without_suggestion(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            check.Words("# list\nnobody\n")

    def test_word_list_is_valid_and_reports_each_word(self):
        words = check.Words(check.WORDS.read_text("utf-8"))
        for text in ("nobody", "whoever", "tells", "front door", "is let in", "parked", "under way", "what is", "stood"):
            self.assertTrue(list(words.find(text)), text)

    def test_command_fails_for_a_tracked_file_with_a_hit(self):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            copy = root / "tests/wording"
            copy.mkdir(parents=True)
            for name in ("check.py", "words.txt"):
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
            self.assertIn("a.md:1: Nobody: use ", failed.stdout)


if __name__ == "__main__":
    unittest.main()
