"""Values of variables in documents and in the API description are the defaults of docs/configuration.md, which is generated."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not the last factor of a product.
NAME = r"(?<!× )`(?P<name>SVC_[A-Z_]+)`"
VALUE = r"`?(?P<value>\d[\d,]*(?: ?(?:per |/)?(?:ms|s|seconds|min|minutes|minute|h|hours|hour|d|days|[KM]iB))?)`?"
# The ways to write the value next to its variable.
FORMS = [
    re.compile(form)
    for form in (
        rf"{NAME} \({VALUE}[),;]",
        rf"{NAME},? default:? {VALUE}(?!\w)",
        rf"{VALUE} \({NAME}[),]",
        rf"\({VALUE}, {NAME}",
        rf"\| {NAME} \| {VALUE} \|",
    )
]
UNITS = {"ms": 0.001, "s": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600,
         "d": 86400, "days": 86400, "KiB": 1024, "MiB": 1024 * 1024, "": 1}


def parse(text):
    """Returns a number in seconds or bytes, or the number of a rate and its time."""
    number, separator, unit = re.fullmatch(r"(\d[\d,]*) ?(per |/)?([A-Za-z]*)", text).groups()
    number, unit = int(number.replace(",", "")), UNITS[unit]
    return (number, unit) if separator else number * unit


def defaults():
    rows = re.findall(r"^\| `(SVC_[A-Z_]+)`[^|]*\|[^|]*\| `([^`]*)` \|", (ROOT / "docs/configuration.md").read_text(), re.M)
    return dict(rows)


def documented(text):
    """Pairs of variable and value."""
    return [(match["name"], match["value"]) for form in FORMS for match in form.finditer(text.replace("\n", " "))]


class Documents(unittest.TestCase):
    def test_values_of_variables_are_the_defaults(self):
        known, found = defaults(), 0
        files = [ROOT / "README.md", ROOT / "catalog/openapi.json", *ROOT.glob("docs/**/*.md")]
        for file in files:
            if file.name == "configuration.md":
                continue
            for name, value in documented(file.read_text()):
                found += 1
                with self.subTest(file=file.name, name=name):
                    self.assertEqual(parse(value), parse(known[name]))
        self.assertGreater(found, 20)

    def test_a_wrong_value_is_found_in_each_form(self):
        texts = ("`SVC_A` (72 h)", "`SVC_A`, default 72h", "kept for 72 hours (`SVC_A`)", "(72 h, `SVC_A`)", "| `SVC_A` | `72h` |")
        for text in texts:
            self.assertEqual([(name, parse(value)) for name, value in documented(text)], [("SVC_A", 72 * 3600)], text)
        self.assertNotEqual(parse("30/min"), parse("30 s"))
        self.assertEqual(parse("60 per minute"), parse("60/min"))


if __name__ == "__main__":
    unittest.main()
