#!/usr/bin/env python3
"""Postgres, NATS and secrets for a development cluster. Not for production: one pod each, no persistent volumes.

  dev.py manifests                print the manifests of Postgres and NATS (for kubectl apply or Tilt)
  dev.py secrets --namespace svc  create the Secrets with random passwords, unless they exist
  dev.py migrate                  migrate both schemas from this machine
  dev.py tenant                   print the commands that create a first tenant

The passwords are random, so that no password from the repository reaches production. The chart does not generate them,
because a template would change them on every upgrade.
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
USERS = ["administrator", "audit-administrator", "ingest", "session", "identity"]
CONFIG_MAPS = {
    "postgres-start": [HERE / "start.sh", DEPLOY / "postgres/roles.sql", DEPLOY / "postgres/schemas.sql"],
    "nats-config": [HERE / "nats.conf", DEPLOY / "nats/accounts.conf", HERE / "consumers.conf"],
}
IMAGES = {
    "postgres": "docker.io/library/postgres:18",
    "nats": "docker.io/library/nats:2.12.6",
    # svc-ingest, which keeps the accounts of consumers. A separate name, so that Tilt does not restart NATS after each change of ingest.
    "accounts": "svc.localhost/svc-accounts:dev",
}


def main():
    options = arguments()
    if options.command == "manifests":
        print(manifests({name: getattr(options, f"{name}_image") for name in IMAGES}))
        return
    kubectl = [
        "kubectl",
        *(["--context", options.context] if options.context else []),
        "--namespace",
        options.namespace,
    ]
    if options.command == "migrate":
        migrate(kubectl)
    elif options.command == "tenant":
        print_first_steps(kubectl)
    else:
        for manifest in generate_secrets():
            create_once(kubectl, manifest)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["manifests", "secrets", "migrate", "tenant"])
    parser.add_argument("--namespace", default="svc", help="namespace of the Secrets (default: svc)")
    parser.add_argument("--context", help="context of kubectl (default: the current one)")
    for name, image in IMAGES.items():
        parser.add_argument(f"--{name}-image", default=image, help="default: %(default)s")
    return parser.parse_args()


def manifests(images):
    documents = []
    for name, files in CONFIG_MAPS.items():
        data = {file.name: single_user(file) for file in files}
        documents.append(
            json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}, indent=2)
        )
    for name in ("postgres", "nats"):
        text = (HERE / f"{name}.yaml").read_text()
        for default, image in ((IMAGES[each], image) for each, image in images.items()):
            text = text.replace(default, image)
        documents.append(text)
    return "\n---\n".join(documents)


def single_user(file):
    """Returns the content of a file. In SQL files, an empty line ends each statement, as single-user mode requires."""
    text = file.read_text()
    return text if file.suffix != ".sql" else "\n\n".join(statements(text)) + "\n\n"


def statements(sql):
    """Yields the statements of a file. Comments must be on separate lines; `do` blocks end with `$$;`."""
    statement, in_block = [], False
    for line in sql.splitlines():
        if line.startswith("--") or not line.strip():
            continue
        statement.append(line)
        in_block ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not in_block:
            yield "\n".join(statement)
            statement = []


def generate_secrets():
    passwords = {role: secrets.token_hex(24) for role in ["postgres", *ROLES]}
    users = {user: secrets.token_hex(24) for user in USERS}
    yield secret("svc-dev-passwords", passwords)
    yield secret("svc-dev-nats", {password_variable(user): password for user, password in users.items()})
    yield secret(
        "svc-database",
        {
            role.removeprefix("svc_").replace("_", "-")
            + "-url": f"postgres://{role}:{passwords[role]}@postgres:5432/svc"
            for role in ROLES
        },
    )
    yield secret("svc-nats", {f"{user}-url": f"nats://{user}:{password}@nats:4222" for user, password in users.items()})
    yield secret("svc-tokens", tokens())


def password_variable(user):
    """Returns the variable of the NATS servers with the password of a user."""
    return f"SVC_NATS_{user.upper().replace('-', '_')}_PASSWORD"


def tokens():
    keys = {name: secrets.token_hex(32) for name in ("service-token", "limiter-key", "factor-key")}
    return {**keys, "platform-token": platform_token()}


def secret(name, data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def platform_token():
    """Returns a token in the format of `svc-identity platform-token`: 256 bits and a CRC-32, both in base 62."""
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
    """Creates a Secret. Exits if the first of the five exists, because they are created together."""
    name = manifest["metadata"]["name"]
    run = subprocess.run(
        [*kubectl, "create", "--filename", "-"], input=json.dumps(manifest), text=True, capture_output=True
    )
    if run.returncode == 0:
        print(f"created the Secret {name}")
    elif "AlreadyExists" in run.stderr and name == "svc-dev-passwords":
        print("the Secrets exist already")
        sys.exit(0)
    else:
        sys.exit(f"dev.py: failed to create the Secret {name}: {run.stderr.strip()}")


def read_secret(kubectl, name, key):
    run = subprocess.run([*kubectl, "get", "secret", name, "--output", "json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"dev.py: {run.stderr.strip()}: run dev.py secrets first")
    return base64.b64decode(json.loads(run.stdout)["data"][key]).decode()


def binaries():
    """Returns the directory with the programs that Tilt builds."""
    sys.path.insert(0, str(DEPLOY))
    import image

    return image.target_directory() / image.host() / "debug"


def migrate(kubectl):
    with forwarded(kubectl, "deployment/postgres", 5432) as port:
        for service in ("identity", "session"):
            url = read_secret(kubectl, "svc-database", f"{service}-migrator-url")
            url = url.replace("@postgres:5432/", f"@127.0.0.1:{port}/")
            environment = {**os.environ, "SVC_MIGRATOR_DATABASE_URL": url}
            if subprocess.run([binaries() / f"svc-{service}", "migrate", "up"], env=environment).returncode:
                sys.exit(f"dev.py: failed to migrate the schema {service}; see the output above")


@contextlib.contextmanager
def forwarded(kubectl, target, port):
    """Forwards a free local port to the target and yields it. A fixed port could belong to another database."""
    command = [*kubectl, "port-forward", "--address", "127.0.0.1", target, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            match = re.match(r"Forwarding from 127\.0\.0\.1:(\d+) ", process.stdout.readline())
            if not match:
                sys.exit(f"dev.py: failed to forward a port to {target}; see the output of kubectl above")
            yield int(match[1])
        finally:
            process.terminate()


def print_first_steps(kubectl):
    print(
        f"export PATH={binaries()}:$PATH\n"
        "export SVC_BASE_URL=http://svc.localhost\n"
        f"export SVC_PLATFORM_TOKEN={read_secret(kubectl, 'svc-tokens', 'platform-token')}\n"
        "svc tenants create demo --admin-email admin@demo.example --delivery response\n"
        "svc users accept-invite"
    )


if __name__ == "__main__":
    main()
