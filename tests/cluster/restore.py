"""Drill of a restore of the database with the commands of docs/operations.md. No credential that was revoked after the dump works at any moment."""

import json
import re
import textwrap
import threading
import time
import uuid

from client import is_active, log_in
from cluster import ROOT, TestError, run

VARIABLES = "read -r PGPASSWORD < /passwords/postgres; export PGPASSWORD PGHOST=localhost PGUSER=postgres PGDATABASE=svc; cd /tmp; set -e\n"


def restore_database(system):
    cluster, client, report = system.cluster, system.client, system.report
    # A new key requires a recent login.
    client.log_in()
    key = json.loads(client.svc("api-keys", "create", "--name", "e2e-restore", "--scope", "events:write"))
    session = log_in(system.entries[0])
    started, since = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    in_postgres(cluster, block("pg_dump"))
    client.svc("api-keys", "revoke", key["id"], "--yes")
    system.entries[0].request(system.entries[0].connection(), "POST", "/auth/sessions/logout", None, {"X-Session-ID": session})
    with Revoked(system.entries[0], key["key"], session) as revoked:
        kubectl(cluster, block("kubectl scale"))
        in_postgres(cluster, block("psql"))
        kubectl(cluster, block("kubectl patch"))
        kubectl(cluster, "kubectl scale deployment svc-identity svc-session --namespace svc --replicas=2")
        cluster.wait_until_ready()
        restored = time.monotonic() - started
        if any(is_active(system.entries[0], token) for token in system.tokens):
            report.fail("restore: a session of before the restore is active")
        client.log_in()
        system.tokens = [log_in(system.entries[0]) for _ in system.tokens]
        ids = [str(uuid.uuid4()) for _ in range(10)]
        client.send(ids)
        system.acknowledged += ids
    if revoked.accepted or not revoked.rejected:
        report.fail(f"restore: revoked credentials: {revoked.accepted} requests accepted, {revoked.rejected} rejected")
    events = client.svc("audit", "list", "--since", since, "--kind", "authn_token_revoked", "--output", "ndjson")
    if not any(json.loads(event).get("key_id") == key["id"] for event in events.splitlines()):
        report.fail("restore: the audit events do not name the change to repeat")
    detail = f"serves after {restored:.0f} s; {revoked.rejected} of {revoked.rejected} requests with revoked credentials rejected"
    report.step("restore of the database", started, detail)


class Revoked:
    """Requests with a revoked API key and a revoked session, all the time."""

    def __init__(self, entry, key, session):
        self.entry, self.key, self.session = entry, key, session
        self.accepted = self.rejected = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60)

    def run(self):
        connection = self.entry.connection()
        while not self.stop.is_set():
            for method, path, body, token in (
                ("POST", "/events", {"source_id": "e2e-revoked"}, self.key),
                ("GET", "/auth/session", None, self.session),
            ):
                connection, status, _ = self.entry.request(connection, method, path, body, {"Authorization": f"Bearer {token}"})
                if status is not None and status < 300:
                    self.accepted += 1
                else:
                    self.rejected += 1
            time.sleep(0.05)


def block(start):
    """Returns the first block of commands in the section that begins with a text."""
    section = (ROOT / "docs/operations.md").read_text().partition("## Backup and restore")[2]
    blocks = (textwrap.dedent(each) for each in re.findall(r"^ *```sh\n(.*?)^ *```", section, re.S | re.M))
    found = next((each for each in blocks if each.startswith(start)), None)
    if found is None:
        raise TestError(f"docs/operations.md has no commands that begin with {start}")
    return found


def in_postgres(cluster, commands):
    """Runs commands as an administrator of the database, in its pod."""
    cluster.kubectl("exec", "deployment/postgres", "--", "sh", "-c", VARIABLES + commands)


def kubectl(cluster, commands):
    """Runs documented commands for the namespace and the release of the test."""
    commands = commands.replace("--namespace svc", f"--namespace {cluster.namespace}")
    run("sh", "-ec", re.sub(r"\bsvc-(identity|session)\b", rf"{cluster.release}-\1", commands))
