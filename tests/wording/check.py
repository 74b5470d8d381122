#!/usr/bin/env python3
"""Reports words that the project does not use, with suggestions. words.list lists the words.

  check.py                  check all tracked files
  check.py PATH...          check tracked files below these paths

Checks documents, templates and configuration files completely. In Rust, Python, SQL and JavaScript it checks comments, string
literals with at least two words, and names of functions with at least three words, which are sentences in tests. Exits with 1 if
it finds a word. Needs Python 3.9 and no packages.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORDS = HERE / "words.list"
# Third-party texts, data, generated copies of other texts, and the checker itself.
EXCLUDED = re.compile(r"(^|/)(LICENSE|Cargo\.lock|schemathesis\.txt|openapi-python-client\.txt|requirements\.txt)$|/data/[^/]+\.txt$|/LICENSES/|^tests/wording/")
# Code in backticks, and names in the placeholders of format strings.
CODE_SPAN = re.compile(r"`[^`\n]*`|`[^`\n]*$|\{[a-z_]\w*(?:[.:!][^{}\n]*)?\}")
FUNCTION = re.compile(r"\b(?:fn|def) (?P<name>[a-z0-9]+(?:_[a-z0-9]+){2,})")
SENTENCE = re.compile(r"[A-Za-z]\S* \S*[A-Za-z]")

RUST = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | b?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)
    | b?"(?P<text>(?:\\.|[^"\\])*)"
    | '(?:\\[^']+|\\'|[^'\\])'
    """,
    re.S | re.X,
)
SQL = re.compile(r"(?P<comment>--[^\n]*|/\*.*?\*/)|'(?P<text>(?:''|[^'])*)'", re.S)
JAVASCRIPT = re.compile(
    r"""(?P<comment>(?<!:)//[^\n]*|/\*.*?\*/)|"(?P<text>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'""", re.S
)


class Words:
    """The words to avoid, and the phrases in which they are allowed."""

    def __init__(self, text):
        self.suggestions, allowed, patterns = {}, [], []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("allow "):
                allowed.append(self.pattern(line[len("allow ") :]))
                continue
            expression, arrow, suggestion = line.partition(" -> ")
            if not arrow or not suggestion:
                raise ValueError(f"line {number}: expected `<regular expression> -> <suggestion>`")
            name = f"word{number}"
            self.suggestions[name] = suggestion
            patterns.append(f"(?P<{name}>{self.pattern(expression)})")
        self.avoided = re.compile(r"(?<![\w'-])(?:" + "|".join(patterns) + r")(?![\w-])", re.I)
        self.allowed = re.compile("|".join(allowed) or r"(?!)", re.I)

    @staticmethod
    def pattern(expression):
        # Groups do not capture, so that the name of a match is the name of its line.
        return re.sub(r"(?<!\\)\((?!\?)", "(?:", expression.strip()).replace(" ", r"\s+")

    def find(self, text):
        """Yields (position, word, suggestion) for each word to avoid in a text."""
        text = CODE_SPAN.sub(lambda span: " " * len(span.group()), text)
        technical = [phrase.span() for phrase in self.allowed.finditer(text)]
        for word in self.avoided.finditer(text):
            if not any(start <= word.start() and word.end() <= end for start, end in technical):
                yield word.start(), word.group(), self.suggestions[word.lastgroup]


def matches_of(pattern, text):
    """Yields (line, text) of the comments and sentences that a pattern finds."""
    for match in pattern.finditer(text):
        name = match.lastgroup
        if name == "hashes":
            name = "raw"
        if name and (name == "comment" or SENTENCE.search(match.group(name))):
            yield text.count("\n", 0, match.start(name)) + 1, match.group(name)


def function_names(text):
    """Yields (line, words) of the names of functions."""
    for match in FUNCTION.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match["name"].replace("_", " ")


def rust_texts(text):
    yield from matches_of(RUST, text)
    yield from function_names(text)


def python_texts(text):
    """Yields (line, text) of the comments, sentences and names of a Python file."""
    yield from function_names(text)
    middle = getattr(tokenize, "FSTRING_MIDDLE", None)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type in (tokenize.STRING, middle) and SENTENCE.search(token.string)):
            yield token.start[0], token.string


def html_texts(text):
    """Yields the text of a page without tags; template expressions remain."""
    yield 1, re.sub(r"<[^>]*>", lambda tag: re.sub(r"[^\n]", " ", tag.group()), text)


def whole(text):
    yield 1, text


READERS = {
    ".md": whole, ".txt": whole, ".toml": whole, ".yaml": whole, ".yml": whole, ".tpl": whole, ".jinja": html_texts, ".html": html_texts,
    ".sh": whole, ".conf": whole, ".rs": rust_texts, ".sql": lambda text: matches_of(SQL, text),
    ".js": lambda text: matches_of(JAVASCRIPT, text), ".py": python_texts,
    "Makefile": whole, "Tiltfile": whole, "Dockerfile": whole, "run": whole,
}  # fmt: skip


def check_text(words, name, text):
    """Yields (line, word, suggestion) for the content of a file."""
    reader = READERS.get(Path(name).suffix) or READERS.get(Path(name).name)
    if reader is None or EXCLUDED.search(name):
        return
    for line, part in reader(text):
        for position, word, suggestion in words.find(part):
            yield line + part.count("\n", 0, position), " ".join(word.split()), suggestion


def tracked(root, paths):
    command = ["git", "-C", root, "ls-files", "-z", "--", *paths]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (root / name).is_file()]


def main(root, paths):
    words = Words(WORDS.read_text("utf-8"))
    count = 0
    for name in tracked(root, paths):
        text = (root / name).read_text("utf-8", "replace")
        for line, word, suggestion in sorted(check_text(words, name, text)):
            print(f"{name}:{line}: {word}: use {suggestion}")
            count += 1
    if count:
        print(f"{count} words to replace; tests/wording/words.list explains the list")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(HERE.parents[1], [str(Path(path).resolve()) for path in sys.argv[1:]]))
