"""A person who logs in with a password and the code of an authenticator app (RFC 6238)."""

import base64
import hmac
import json
import struct
import time

from client import PASSWORD, TENANT
from cluster import TestError

EMAIL = "phone@e2e.example"
STEP = 30


class Phone:
    """Makes the account with the platform token, and sets up the app."""

    def __init__(self, client, entry, platform_token, email=EMAIL):
        self.entry, self.email, self.last = entry, email, 0
        output = client.svc(
            "users", "invite", "--email", email, "--delivery", "response", "--tenant", TENANT, SVC_PLATFORM_TOKEN=platform_token
        )
        token = json.loads(output)["token"]
        client.svc("users", "accept-invite", "-", "--password-stdin", text=f"{token}\n{PASSWORD}\n")
        bearer = {"Authorization": f"Bearer {self.call(200, '/auth/password/login', self.credentials())['session_id']}"}
        self.secret = self.call(201, "/auth/factors/totp", {}, bearer)["secret"]
        self.call(200, "/auth/factors/totp/confirm", {"code": self.code()}, bearer)

    def log_in(self):
        """Logs in with the password, which alone is not enough, and with a code that was not used."""
        problem = self.call(403, "/auth/password/login", self.credentials())
        if problem["code"] != "second_factor_required":
            raise TestError(f"login of {self.email} with the password alone: {problem}")
        self.call(200, "/auth/second-factor", {"challenge": problem["challenge"], "code": self.code()})

    def credentials(self):
        return {"email": self.email, "password": PASSWORD}

    def call(self, expected, path, body, headers=None):
        headers = headers or {"X-Tenant-ID": TENANT}
        _, status, response = self.entry.request(self.entry.connection(), "POST", path, body, headers)
        if status != expected:
            raise TestError(f"{path}: {status} {response}")
        return response

    def code(self):
        """The code of the first step that the server still accepts: each is used once, and one step of tolerance is permitted."""
        step = max(self.last + 1, int(time.time()) // STEP - 1)
        while step > int(time.time()) // STEP + 1:
            time.sleep(1)
        self.last = step
        secret = self.secret.replace(" ", "")
        digest = hmac.digest(base64.b32decode(secret + "=" * (-len(secret) % 8)), struct.pack(">Q", step), "sha1")
        number = struct.unpack_from(">I", digest, digest[-1] & 15)[0] & 0x7FFFFFFF
        return f"{number % 10**6:06}"
