"""The software bill of materials of the programs: the crates in Cargo.lock that they contain, as SPDX 2.3."""

import json
import subprocess
import time as clock
import tomllib

import image
from image import ROOT


def document(version, time, triples):
    """Returns the document as JSON. `time`: seconds since 1970."""
    packages, edges = {}, set()
    for triple in triples:
        add(metadata(triple), packages, edges)
    checksums = locked_checksums()
    roots = sorted(key for key, package in packages.items() if package["name"] in image.PROGRAMS.values() and not package["source"])
    content = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"svc-{version}",
        "documentNamespace": f"urn:svc:spdx:{version}:{time}",
        "creationInfo": {
            "created": clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime(time)),
            "creators": ["Organization: svc maintainers"],
        },
        "packages": [described(packages[key], checksums) for key in sorted(packages)],
        "relationships": [
            *(relationship("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id(packages[key])) for key in roots),
            *(relationship(spdx_id(packages[a]), "DEPENDS_ON", spdx_id(packages[b])) for a, b in sorted(edges)),
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def metadata(triple):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def add(data, packages, edges):
    """Adds the packages that the programs are linked from."""
    known = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    waiting = [id for id, package in known.items() if package["name"] in image.PROGRAMS.values() and not package["source"]]
    seen = set()
    while waiting:
        id = waiting.pop()
        if id in seen:
            continue
        seen.add(id)
        key = key_of(known[id])
        packages[key] = known[id]
        for dependency in nodes[id]["deps"]:
            # Neither build scripts nor tests are in the programs.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                edges.add((key, key_of(known[dependency["pkg"]])))
                waiting.append(dependency["pkg"])


def key_of(package):
    return package["name"], package["version"]


def locked_checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}


def described(package, checksums):
    name, version = key_of(package)
    result = {
        "SPDXID": spdx_id(package),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        # Older manifests separate alternatives by a slash.
        "licenseDeclared": (package["license"] or "NOASSERTION").replace("/", " OR "),
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    if checksum := checksums.get((name, version)):
        result["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
        locator = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:cargo/{name}@{version}"}
        result["externalRefs"] = [locator]
    return result


def spdx_id(package):
    name, version = key_of(package)
    # Letters, digits, dots and hyphens.
    return f"SPDXRef-{name.replace('_', '.')}-{version.replace('+', '-')}"


def relationship(element, kind, related):
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
