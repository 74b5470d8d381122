#!/usr/bin/env python3
"""Writes the picture of the README and the table of docs/performance.md that compare svc with other programs, from docs/pictures/peers.json."""

import html
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs/pictures/peers.json"
PICTURE = ROOT / "docs/pictures/peers.svg"
DOCUMENT = ROOT / "docs/performance.md"
BEGIN, END = "<!-- Table of other programs -->\n", "<!-- End of that table -->\n"

WIDTH, NAMES, BAR, VALUES, TITLE, GAP = 760, 190, 18, 90, 26, 14
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.value { font-variant-numeric: tabular-nums }
.other { fill: #8c959f }
.svc { fill: #0b57d0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .other { fill: #6e7681 }
  .svc { fill: #79b8ff }
}
"""


def main():
    figures = json.loads(DATA.read_text())["figures"]
    PICTURE.write_text(picture(figures))
    document = DOCUMENT.read_text()
    part = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.S)
    DOCUMENT.write_text(part.sub(lambda _: BEGIN + table(figures) + END, document))


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def picture(figures):
    """Bars of a figure are relative to its largest value."""
    parts, y = [], GAP
    for figure in figures:
        title = f'{figure["name"]} ({"less" if figure["less_is_better"] else "more"} is better)'
        parts.append(f'<text class="title" x="0" y="{y + 14}">{html.escape(title)}</text>')
        y += TITLE
        largest = max(figure["values"].values())
        for name, value in figure["values"].items():
            width = max(1, round((WIDTH - NAMES - VALUES) * value / largest))
            kind = "svc" if name == "svc" else "other"
            parts.append(f'<text x="0" y="{y + 13}">{html.escape(name)}</text>')
            parts.append(f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{width}" height="{BAR - 4}" rx="2"/>')
            parts.append(f'<text class="value" x="{NAMES + width + 6}" y="{y + 12}">{number(value)}</text>')
            y += BAR
        y += GAP
    label = "; ".join(f"{figure['name']}: " + ", ".join(f"{name} {number(value)}" for name, value in figure["values"].items()) for figure in figures)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{html.escape(label)}">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def table(figures):
    lines = ["| Measurement | Program | Result |", "| --- | --- | --: |"]
    for figure in figures:
        lines += [f"| {figure['name']} | {name} | {number(value)} |" for name, value in figure["values"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
