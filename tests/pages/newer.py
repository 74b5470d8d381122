#!/usr/bin/env python3
"""Writes newer.json: the features that one of the oldest supported browsers lacks, from the compatibility data of MDN (CC0).

To move the baseline, change BROWSERS and docs/pages.md, then run:
    npm pack @mdn/browser-compat-data && tar -xzf mdn-browser-compat-data-*.tgz package/data.json
    python3 tests/pages/newer.py package/data.json > tests/pages/newer.json
"""

import json
import re
import sys

# The oldest supported versions.
BROWSERS = {"chrome": 96, "firefox": 94, "safari": 15.1, "safari_ios": 15.1}
# Interfaces that scripts of pages can use.
INTERFACES = re.compile(
    "Abort.*|Blob|CSS|CSSStyle.*|Crypto|DOM.*|Document|DocumentFragment|Element|ElementInternals|Event|EventTarget|File|FormData|"
    "HTML.*|Headers|History|KeyboardEvent|Location|MediaQueryList.*|Navigator|Node|NodeList|PublicKeyCredential|ReadableStream|"
    "Request|Response|ShadowRoot|Storage|SubmitEvent|Text|URL.*|ValidityState|Window"
)


def main():
    data = json.load(open(sys.argv[1]))
    newer, older = split(data)
    members = sorted(path for path in newer if is_member(path))
    interfaces = {}
    for *_, interface, name in members:
        interfaces.setdefault(interface, []).append(name.removesuffix("_static"))
    # A name is in the scripts only if no older feature has it.
    names = {name.removesuffix("_static") for *_, name in members}
    names -= {path[-1].removesuffix("_static") for path in older if path[0] in ("api", "javascript")}
    result = {
        "source": f"MDN browser-compat-data {data['__meta']['version']}",
        "browsers": BROWSERS,
        "interfaces": {name: " ".join(sorted(set(interfaces[name]))) for name in sorted(interfaces)},
        "names": " ".join(sorted(name for name in names if re.fullmatch(r"\w{2,}", name))),
        "markup": " ".join(sorted(markup(newer) - markup(older))),
        "styles": "; ".join(sorted(styles(newer) - styles(older))),
    }
    print(json.dumps(result, indent=1))


def split(data):
    """Returns the paths of the features that some browser lacks, and of the others."""
    newer, older = [], []

    def visit(tree, path):
        if "__compat" in tree:
            is_newer = any(lacks(tree["__compat"]["support"].get(name), oldest) for name, oldest in BROWSERS.items())
            (newer if is_newer else older).append(path)
        for name, child in tree.items():
            if name != "__compat":
                visit(child, (*path, name))

    for top in ("api", "javascript", "html", "css"):
        visit(data[top], (top,))
    return newer, older


def lacks(support, oldest):
    statements = support if isinstance(support, list) else [support or {}]
    return not any(is_complete(statement) and since(statement) <= oldest for statement in statements)


def is_complete(statement):
    version = statement.get("version_added")
    limits = ("flags", "version_removed", "prefix", "alternative_name", "partial_implementation")
    return bool(version) and version != "preview" and not any(statement.get(limit) for limit in limits)


def since(statement):
    return float(".".join(statement["version_added"].lstrip("≤").split(".")[:2]))


def is_member(path):
    """Returns whether a feature is a member of an interface or of a built-in object."""
    if path[:2] == ("javascript", "builtins"):
        path = path[1:]
    elif path[0] != "api" or not INTERFACES.fullmatch(path[1]):
        return False
    return len(path) == 3 and not path[2].endswith("_event") and path[2] != path[1]


def markup(paths):
    """Returns elements as `<name` and attributes as `name=`."""
    found = set()
    for _, kind, *rest in (path for path in paths if path[0] == "html"):
        if kind == "elements" and len(rest) == 1:
            found.add(f"<{rest[0]}")
        elif kind == "elements" and len(rest) == 2 or kind == "global_attributes" and len(rest) == 1:
            found.add(f"{rest[-1]}=")
    return found


def styles(paths):
    """Returns properties as `name`, their values as `name: value`, functions as `name()`, and `@rule`, `:selector`, `(feature`."""
    found = set()
    for _, kind, name, *rest in (path for path in paths if path[0] == "css" and len(path) > 2):
        leaf = rest[-1] if rest else name
        if kind == "properties":
            found.add(": ".join([name, *rest]))
        elif kind == "at-rules":
            found.add(f"({leaf}" if rest else f"@{name}")
        elif kind == "selectors":
            found.add(f":{name}")
        elif kind == "types":
            found.add(f"{leaf}()")
    # A property that is in the set needs no values.
    return {style for style in found if re.fullmatch(r"[@:(]?[a-z-]+(: [a-z-]+|\(\))?", style) and style.split(": ")[0] not in found - {style}}


main()
