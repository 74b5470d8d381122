#!/usr/bin/env python3
"""Prints the Secrets of the examples in this directory, with random passwords and tokens, for `kubectl create --filename -`.

The URLs match cloudnative-pg.yaml and nats-values.yaml. Run it once: other passwords need a rotation (docs/kubernetes.md).
"""

import json
import secrets
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # keeps the source tree clean
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "dev"))
import dev  # noqa: E402


def main():
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()}, indent=2))


def manifests():
    roles = {role: secrets.token_hex(24) for role in dev.ROLES}
    users = {user: secrets.token_hex(24) for user in [*dev.USERS, "system"]}
    short = {role: role.removeprefix("svc_").replace("_", "-") for role in roles}
    database = {f"{short[role]}-url": f"postgres://{role}:{password}@svc-postgres-rw:5432/svc" for role, password in roles.items()}
    nats = {f"{user}-url": f"nats://{user}:{users[user]}@nats:4222" for user in ("identity", "session", "ingest")}
    return [
        *(postgres_role(role, short[role], password) for role, password in roles.items()),
        dev.secret("svc-nats-passwords", users),
        dev.secret("svc-database", database),
        dev.secret("svc-nats", nats),
        dev.secret("svc-tokens", dev.tokens()),
    ]


def postgres_role(role, name, password):
    """Returns the Secret with a password. With the label, CloudNativePG applies a change at once."""
    manifest = dev.secret(f"svc-postgres-{name}", {"username": role, "password": password})
    manifest["metadata"]["labels"] = {"cnpg.io/reload": "true"}
    return {**manifest, "type": "kubernetes.io/basic-auth"}


if __name__ == "__main__":
    main()
