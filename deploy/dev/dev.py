#!/usr/bin/env python3
"""Postgres, NATS and secrets for a development cluster. Never for production: one pod each, no volumes.

  dev.py manifests                print the manifests of Postgres and NATS (for kubectl apply, or Tilt)
  dev.py secrets --namespace svc  make the Secrets once, with fresh passwords; those that exist stay as they are
  dev.py migrate                  migrate both schemas, from this machine
  dev.py tenant                   print the commands that make a first tenant

The passwords are random although this is for development: what is fixed in a repository ends up in production somewhere.
They are made here and not by the chart, since a template would make others at each upgrade.
"""

import argparse
import base64
import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parent
ROLES = ["svc_identity_migrator", "svc_identity", "svc_session_migrator", "svc_session"]
USERS = ["administrator", "ingest", "session", "identity"]
CONFIG_MAPS = {
    "postgres-start": [HERE / "start.sh", DEPLOY / "postgres/roles.sql", DEPLOY / "postgres/schemas.sql"],
    "nats-config": [HERE / "nats.conf", DEPLOY / "nats/accounts.conf"],
}
IMAGES = {"postgres": "docker.io/library/postgres:18", "nats": "docker.io/library/nats:2.12"}


def main():
    options = arguments()
    if options.what == "manifests":
        print(manifests({"postgres": options.postgres_image, "nats": options.nats_image}))
        return
    kubectl = [
        "kubectl",
        *(["--context", options.context] if options.context else []),
        "--namespace",
        options.namespace,
    ]
    if options.what == "migrate":
        migrate(kubectl)
    elif options.what == "tenant":
        print_first_steps(kubectl)
    else:
        for manifest in made_secrets():
            create_once(kubectl, manifest)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["manifests", "secrets", "migrate", "tenant"])
    parser.add_argument("--namespace", default="svc", help="where the Secrets are made (default: svc)")
    parser.add_argument("--context", help="kubectl's context (default: the current one)")
    parser.add_argument("--postgres-image", default=IMAGES["postgres"], help="default: %(default)s")
    parser.add_argument("--nats-image", default=IMAGES["nats"], help="default: %(default)s")
    return parser.parse_args()


def manifests(images):
    documents = []
    for name, files in CONFIG_MAPS.items():
        data = {file.name: single_user(file) for file in files}
        documents.append(
            json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}, indent=2)
        )
    for name, image in images.items():
        documents.append((HERE / f"{name}.yaml").read_text().replace(IMAGES[name], image))
    return "\n---\n".join(documents)


def single_user(file):
    """A file as its reader wants it: in single-user mode, every statement of Postgres ends with an empty line."""
    text = file.read_text()
    return text if file.suffix != ".sql" else "\n\n".join(statements(text)) + "\n\n"


def statements(sql):
    """The statements of a file whose comments stand on lines of their own; `do` blocks end with `$$;`."""
    statement, in_block = [], False
    for line in sql.splitlines():
        if line.startswith("--") or not line.strip():
            continue
        statement.append(line)
        in_block ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not in_block:
            yield "\n".join(statement)
            statement = []


def made_secrets():
    passwords = {role: secrets.token_hex(24) for role in ["postgres", *ROLES]}
    users = {user: secrets.token_hex(24) for user in USERS}
    yield secret("svc-dev-passwords", passwords)
    yield secret("svc-dev-nats", {f"SVC_NATS_{user.upper()}_PASSWORD": password for user, password in users.items()})
    yield secret(
        "svc-database",
        {
            role.removeprefix("svc_").replace("_", "-")
            + "-url": f"postgres://{role}:{passwords[role]}@postgres:5432/svc"
            for role in ROLES
        },
    )
    yield secret("svc-nats", {f"{user}-url": f"nats://{user}:{password}@nats:4222" for user, password in users.items()})
    yield secret(
        "svc-tokens",
        {
            "service-token": secrets.token_hex(32),
            "platform-token": platform_token(),
            "limiter-key": secrets.token_hex(32),
        },
    )


def secret(name, data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def platform_token():
    """A token as `svc-identity platform-token` makes it: 256 bits and a CRC-32, both in base 62."""
    body = "svc_pt_" + base62(secrets.randbits(256), 43)
    return f"{body}_{base62(zlib.crc32(body.encode()), 6)}"


def base62(number, digits):
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 62)
        text = alphabet[digit] + text
    return text


def create_once(kubectl, manifest):
    """All five belong together, so the first decides: when it exists, this is not the first time."""
    name = manifest["metadata"]["name"]
    done = subprocess.run(
        [*kubectl, "create", "--filename", "-"], input=json.dumps(manifest), text=True, capture_output=True
    )
    if done.returncode == 0:
        print(f"made the Secret {name}")
    elif "AlreadyExists" in done.stderr and name == "svc-dev-passwords":
        print("the Secrets are there already")
        sys.exit(0)
    else:
        sys.exit(f"dev.py: the Secret {name} cannot be made: {done.stderr.strip()}")


def read_secret(kubectl, name, key):
    said = subprocess.run([*kubectl, "get", "secret", name, "--output", "json"], capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"dev.py: {said.stderr.strip()}: run dev.py secrets first")
    return base64.b64decode(json.loads(said.stdout)["data"][key]).decode()


def migrate(kubectl):
    sys.path.insert(0, str(DEPLOY))
    import image

    binaries = image.target_directory() / image.host() / "debug"
    with forwarded(kubectl, "deployment/postgres", 5432) as port:
        for service in ("identity", "session"):
            url = read_secret(kubectl, "svc-database", f"{service}-migrator-url")
            url = url.replace("@postgres:5432/", f"@127.0.0.1:{port}/")
            environment = {**os.environ, "SVC_MIGRATOR_DATABASE_URL": url}
            if subprocess.run([binaries / f"svc-{service}", "migrate", "up"], env=environment).returncode:
                sys.exit(f"dev.py: the schema {service} is not migrated; what was said is above")


@contextlib.contextmanager
def forwarded(kubectl, what, port):
    """A free port of this machine that leads there: at a fixed one somebody else's database may listen."""
    command = [*kubectl, "port-forward", "--address", "127.0.0.1", what, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = re.match(r"Forwarding from 127\.0\.0\.1:(\d+) ", process.stdout.readline())
            if not said:
                sys.exit(f"dev.py: {what} cannot be reached; what kubectl said is above")
            yield int(said[1])
        finally:
            process.terminate()


def print_first_steps(kubectl):
    print(
        "export SVC_BASE_URL=http://svc.localhost\n"
        f"export SVC_PLATFORM_TOKEN={read_secret(kubectl, 'svc-tokens', 'platform-token')}\n"
        "svc tenants create demo --admin-email admin@demo.example --delivery response\n"
        "svc users accept-invite"
    )


if __name__ == "__main__":
    main()
