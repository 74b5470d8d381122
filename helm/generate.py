#!/usr/bin/env python3
"""Generates the JSON Schema and the README of the chart's values from values.yaml (defaults, comments, `@schema`).

`--check` writes nothing and exits with 1 if a file is out of date. Needs `deploy/local/fetch.py --tests`.
`svc-standalone routes`, `svc-standalone variables` and `svc-operator crds` generate the files in helm/svc/files.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm/svc"
TOOLS = ROOT / ".dev/tools.json"
# Names of Secrets and other objects, and keys in them, by their path: what the API server accepts.
OBJECT_NAME = "^$|^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
KEY = "[-._a-zA-Z0-9]{1,253}$"
# References of images (github.com/distribution/reference): a host, also an IPv6 address, and a path in lower case.
REPOSITORY = r"^$|^([a-zA-Z0-9]([-a-zA-Z0-9._]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
PATTERNS = {
    r"\.repository$": f"{REPOSITORY}$",
    r"\.registry$": f"{REPOSITORY}/?$",
    r"\.tag$": "^$|^[a-zA-Z0-9_][-a-zA-Z0-9_.]{0,127}$",
    r"(^|\.)(existingSecret|secret|configMap|className|priorityClassName)$|\.(logins|clientCertificates)\.\w+$": OBJECT_NAME,
    r"\.(keys|loginKeys)\.\w+$|\.key$": f"^{KEY}",
    r"\.credentials\.\w+$": f"^$|^{KEY}",
}
LABELS = {
    "type": "object",
    "propertyNames": {"pattern": "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"},
    "additionalProperties": {"type": "string", "pattern": "^$|^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"},
}
# Helm reads a number as a 64-bit float, which is exact up to 2^53.
VARIABLE = {"type": ["string", "number", "boolean"], "minimum": 1 - 2**53, "maximum": 2**53 - 1}
PULL_SECRETS = {
    "type": "array",
    "items": {
        "type": ["string", "object"],
        "pattern": OBJECT_NAME.removeprefix("^$|"),
        "required": ["name"],
        "properties": {"name": {"type": "string", "pattern": OBJECT_NAME.removeprefix("^$|")}},
        "additionalProperties": False,
    },
}
# Greater than 0: the CPU request is also the number of threads, and the base of autoscaling.
QUANTITY = {
    "type": ["string", "number"],
    "exclusiveMinimum": 0,
    "pattern": "^[0-9]*([1-9][0-9]*([.][0-9]*)?|[.][0-9]*[1-9][0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$",
}
# Without a unit, a memory is in bytes: below 1 MiB, the unit is missing.
MEMORY = {
    **QUANTITY,
    "minimum": 2**20,
    "pattern": "^[0-9]*([1-9][0-9]*([.][0-9]*)?|[.][0-9]*[1-9][0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)$|^[1-9][0-9]{6,}$",
}
RESOURCES = {
    "type": "object",
    "properties": {
        kind: {"type": "object", "properties": {"memory": MEMORY}, "additionalProperties": QUANTITY}
        for kind in ("requests", "limits")
    },
    "additionalProperties": False,
}


def main():
    import_yaml()
    entries, schema = read_values((CHART / "values.yaml").read_text())
    made = {
        "values.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        "README.md": readme(entries),
        **trial_files(),
    }
    stale = [name for name, text in made.items() if not is_same(CHART / name, text)]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"out of date, run `make gen`: {', '.join(stale)} in helm/svc")
        return
    for name in stale:
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(made[name])


def trial_files():
    """Returns the files for the Postgres of a trial: the chart must not read files outside its directory."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "deploy/dev"))
    import dev

    files = dev.CONFIG_MAPS["postgres-start"]
    return {f"files/trial/{file.name}": dev.single_user(file) for file in files}


def import_yaml():
    try:
        sys.path.insert(0, json.loads(TOOLS.read_text())["yaml_path"])
    except (OSError, ValueError, KeyError):
        sys.exit("generate.py needs PyYAML: run python3 deploy/local/fetch.py --tests first")
    global yaml
    import yaml


def is_same(path, text):
    return path.exists() and path.read_text() == text


# ---- values ---------------------------------------------------------------------------------------------------------


def read_values(text):
    """Returns the values as rows of the README, and as a JSON Schema."""
    lines = text.splitlines()
    entries, definitions = [], {}
    document = yaml.compose(text)
    properties = {}
    for key, value in document.value:
        description, extra, like = comment(lines, key.start_mark.line)
        if like:
            entries.append((key.value, None, description))
            differing(lines, key.value, value, dict((k.value, v) for k, v in document.value)[like], entries)
            properties[key.value] = {"$ref": f"#/$defs/{like}", "description": description}
        else:
            properties[key.value] = describe(lines, key.value, key, value, entries)
    liked = {re.match(r"#/\$defs/(\w+)", p["$ref"])[1] for p in properties.values() if "$ref" in p}
    for name in sorted(liked):
        definitions[name] = properties[name]
        properties[name] = {"$ref": f"#/$defs/{name}"}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart svc",
        **closed(properties),
        "$defs": {
            **definitions, "labels": LABELS, "pullSecrets": PULL_SECRETS, "registry": {"type": "string", "pattern": f"{REPOSITORY}/?$"}, "resources": RESOURCES,
            "variable": VARIABLE,
        },  # fmt: skip
    }
    return entries, schema


def comment(lines, line):
    """Returns the comment above a key, its `@schema` extension and its `@like` key."""
    above = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].lstrip()[1:].strip())
    extra = [text[len("@schema ") :] for text in above if text.startswith("@schema ")]
    like = [text[len("@like ") :] for text in above if text.startswith("@like ")]
    description = " ".join(text for text in above if not text.startswith("@"))
    return description, json.loads(extra[0]) if extra else {}, like[0] if like else None


def describe(lines, path, key, value, entries):
    """Returns the schema of one value and appends its row to `entries`."""
    description, extra, _ = comment(lines, key.start_mark.line)
    described = {"description": description} if description else {}
    leaf = not isinstance(value, yaml.MappingNode) or not value.value or {"$ref", "additionalProperties"} & extra.keys()
    if leaf or description:
        entries.append((path, plain(value) if leaf else None, description))
    if "$ref" in extra:
        # Draft 7 ignores all keywords next to a reference.
        return {"allOf": [extra], **described}
    if leaf:
        free = {"additionalProperties": False} if isinstance(value, yaml.MappingNode) else {}
        patterns = {"pattern": pattern for where, pattern in PATTERNS.items() if re.search(where, path)}
        return {"type": json_type(value), **free, **described, **patterns, **extra}
    properties = {k.value: describe(lines, f"{path}.{k.value}", k, v, entries) for k, v in value.value}
    return {**closed(properties), **described}


def closed(properties):
    """Returns the schema of an object with exactly these properties. `null` removes a default, and so does `helm upgrade --reuse-values` after
    an older version of the chart, so that each one is required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def differing(lines, path, value, model, entries):
    """Appends rows for the values that differ from those of the model."""
    models = {k.value: v for k, v in model.value}
    for key, own in value.value:
        other = models[key.value]
        if plain(own) == plain(other):
            continue
        if isinstance(own, yaml.MappingNode) and key.value != "resources":
            differing(lines, f"{path}.{key.value}", own, other, entries)
        else:
            entries.append((f"{path}.{key.value}", plain(own), ""))


def plain(node):
    return yaml.safe_load(yaml.serialize(node))


def json_type(node):
    value = plain(node)
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return names[type(value)]


HEAD = """# Chart `svc`

Installs identity, session and ingest on Kubernetes 1.31 or newer. The chart does not install Postgres and NATS: the Secrets
below contain their addresses, and `deploy/examples/` in the repository has examples. A trial brings its own:
`--set trial.enabled=true --set image.registry=registry.example.com/svc` needs no other value.

```sh
helm install svc helm/svc --namespace svc --values my-values.yaml --wait --wait-for-jobs
```

Minimal values for production:

```yaml
image: {registry: registry.example.com/svc, tag: "0.1.0"}
publicUrl: https://svc.example.com
trustedProxyHops: 1               # the ingress controller receives the connections of clients
networkPolicy:                    # only these pods may connect
  publicFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: traefik}}}]
ingress: {enabled: true}          # or gateway
database: {existingSecret: svc-database}
nats: {existingSecret: svc-nats, stream: {maxBytes: 20GiB}}
secrets: {existingSecret: svc-tokens}
```

An umbrella chart can use `condition: svc.enabled`.

## Secrets

Except for a trial, the chart generates no secrets, because a generated value would change on every upgrade. Use a different Secret for each value of the first column. Pods mount the
keys that they need as files. The values `keys` and `mail.key` change the names of the keys. A changed Secret needs no restart.

| Secret | Key | Content |
| --- | --- | --- |
| `database.existingSecret` | `identity-url`, `session-url` | Postgres URLs of the roles `svc_identity` and `svc_session` |
| | `identity-migrator-url`, `session-migrator-url` | Postgres URLs of the roles `svc_identity_migrator` and `svc_session_migrator`, for migrations only |
| `nats.existingSecret` | `identity-url`, `session-url`, `ingest-url` | NATS URLs of the users `identity`, `session` and `ingest` |
| `secrets.existingSecret` | `service-token` | authenticates the services to each other; 32 or more characters |
| | `platform-token` | authenticates the platform administrator; output of `svc-identity platform-token` |
| | `limiter-key` | key of the HMAC that identifies accounts in login counters; 32 or more characters |
| | `factor-key` | key that encrypts the secrets of authenticator apps; 32 or more characters. Keep a copy: without it, all apps are unusable |
| `mail.existingSecret` | `smtp-url` | the mail server: `smtps://user:password@host:465`, or `smtp://…:587` for STARTTLS |
| `tests.existingSecret` | `tenant`, `email`, `password` | the user of `helm test` |

A rotation of the tokens and the key needs no restart: their second line is the old value (docs/kubernetes.md in the repository).

In the repository, `deploy/postgres/*.sql` creates the roles and schemas, and `deploy/nats/*.conf` the NATS accounts and users.

## Values

| Value | Default | Meaning |
| --- | --- | --- |
"""


def readme(entries):
    def cell(value):
        return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"

    rows = [f"| `{path}` | {cell(value)} | {description.replace('|', chr(92) + '|')} |" for path, value, description in entries]
    return HEAD + "\n".join(rows) + "\n\n`make gen` generates this file from values.yaml.\n"


if __name__ == "__main__":
    main()
