#!/usr/bin/env python3
"""Writes index.html next to the pictures of pages and mails, with one heading per page or mail, and copies those of the README."""

import html
import re
import shutil
import sys
from pathlib import Path

# Pictures of the README.
SHOWN = {f"sessions-en-{scheme}-1280.png": f"sessions-{scheme}.png" for scheme in ("light", "dark")}
# Language, color scheme and width are the end of a name.
VARIANT = re.compile(r"-(en|de|light|dark|without-styles|\d{3,4})\b")


def main():
    directory = Path(sys.argv[1])
    groups = {}
    for picture in sorted(directory.glob("*.png")):
        groups.setdefault(VARIANT.sub("", picture.stem), []).append(picture)
    lines = ["<!doctype html>", '<meta charset="utf-8">', "<title>Pages and mails</title>"]
    lines.append("<style>body { font: 1rem system-ui; background: #888 } img { max-height: 40rem; margin: 0.5rem } </style>")
    for name, pictures in groups.items():
        lines.append(f"<h2>{html.escape(name)}</h2>")
        lines += [f'<a href="{picture.name}"><img src="{picture.name}" alt="{picture.stem}" loading="lazy"></a>' for picture in pictures]
    index = directory / "index.html"
    index.write_text("\n".join(lines) + "\n")
    pictures = Path(__file__).resolve().parents[2] / "docs/pictures"
    for name, shown in SHOWN.items():
        shutil.copyfile(directory / name, pictures / shown)
    print(f"{sum(map(len, groups.values()))} pictures: {index}")


if __name__ == "__main__":
    main()
