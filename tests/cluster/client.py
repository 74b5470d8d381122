"""The user of the test: commands of `svc` on this machine, and plain HTTP requests."""

import json
import os

import builds
import routes
from cluster import TestError, run
from traffic import Entry

TENANT, EMAIL, PASSWORD = "e2e", "admin@e2e.example", "correct horse battery e2e"
ACCOUNT = {"tenant": TENANT, "email": EMAIL, "password": PASSWORD}


class Client:
    """`svc`, which sends events with the transport library. It calls the ingress as localhost, because other names do not resolve."""

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
        """Creates a tenant and its administrator, sets the password and logs in."""
        output = self.svc(
            "tenants", "create", TENANT, "--admin-email", EMAIL, "--delivery", "response",
            SVC_PLATFORM_TOKEN=platform_token,
        )  # fmt: skip
        invite = json.loads(output)["invite"]["token"]
        self.svc("users", "accept-invite", "-", "--password-stdin", text=f"{invite}\n{PASSWORD}\n")
        self.log_in()

    def log_in(self):
        self.svc("auth", "login", "--email", EMAIL, "--password-stdin", text=f"{PASSWORD}\n")

    def send(self, ids):
        """Sends an event for each id. Raises if an event is not acknowledged."""
        events = "\n".join(json.dumps({"source_id": "e2e-svc", "event_id": each}) for each in ids)
        self.svc("events", "send", "--file", "-", "--batch-size", "10", text=events)


def first_client(cluster, home):
    """Opens the routes of an installation for localhost. Returns the client of a new account."""
    routes.for_localhost(cluster)
    address = os.environ["E2E_HTTP"]
    if error := Entry(address, "localhost").wait_until_open():
        raise TestError(f"the ingress does not serve localhost: {error}")
    client = Client(builds.program("svc"), address, home)
    client.make_account(cluster.secret("svc-tokens", "platform-token"))
    return client


def log_in(entry: Entry):
    """Returns the token of a new session."""
    _, status, body = entry.request(
        entry.connection(), "POST", "/auth/password/login",
        {"email": EMAIL, "password": PASSWORD}, {"X-Tenant-ID": TENANT},
    )  # fmt: skip
    if status != 200:
        raise TestError(f"failed to log in: {status} {body}")
    return body["session_id"]


def is_active(entry: Entry, token):
    return entry.request(entry.connection(), "GET", "/auth/session", None, {"Authorization": f"Bearer {token}"})[1] == 200
