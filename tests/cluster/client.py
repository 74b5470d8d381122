"""A person with the client `svc` on this machine, and with nothing but HTTP."""

import json
import os

from cluster import Failure, run
from traffic import Door

TENANT, EMAIL, PASSWORD = "e2e", "admin@e2e.example", "correct horse battery e2e"
ACCOUNT = {"tenant": TENANT, "email": EMAIL, "password": PASSWORD}


class Client:
    """`svc`, which sends events with the transport. It reaches the front door as localhost, the name that resolves."""

    def __init__(self, program, address, home):
        self.program = program
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SVC_")},
            "HOME": str(home),
            "CI": "true",
            "SVC_BASE_URL": f"http://localhost:{address.rpartition(':')[2]}",
            "SVC_TENANT": TENANT,
            "SVC_OUTPUT": "json",
        }

    def svc(self, *arguments, text=None, **more):
        return run(self.program, *arguments, text=text, environment={**self.environment, **more})

    def make_account(self, platform_token):
        """A tenant, its administrator with a password, and a session."""
        said = self.svc(
            "tenants", "create", TENANT, "--admin-email", EMAIL, "--delivery", "response",
            SVC_PLATFORM_TOKEN=platform_token,
        )  # fmt: skip
        invite = json.loads(said)["invite"]["token"]
        self.svc("users", "accept-invite", "-", "--password-stdin", text=f"{invite}\n{PASSWORD}\n")
        self.svc("auth", "login", "--email", EMAIL, "--password-stdin", text=f"{PASSWORD}\n")

    def send(self, ids):
        """Sends an event for each id; returns when all are acknowledged, else fails."""
        events = "\n".join(json.dumps({"source_id": "e2e-svc", "event_id": each}) for each in ids)
        self.svc("events", "send", "--file", "-", "--batch-size", "10", text=events)


def log_in(door: Door):
    """Returns the token of a new session."""
    _, status, answer = door.ask(
        door.connection(), "POST", "/auth/password/login",
        {"email": EMAIL, "password": PASSWORD}, {"X-Tenant-ID": TENANT},
    )  # fmt: skip
    if status != 200:
        raise Failure(f"nobody can log in: {status} {answer}")
    return answer["session_id"]


def is_alive(door: Door, token):
    return door.ask(door.connection(), "GET", "/auth/session", None, {"Authorization": f"Bearer {token}"})[1] == 200
