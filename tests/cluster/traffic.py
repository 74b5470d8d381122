"""Load on the front door while something happens behind it: events, session checks and logins, each answer counted.

A request is tried once, unless `tries` says otherwise; then as the transport does: after a fault that may pass, the same
events with the same ids.
"""

import collections
import http.client
import json
import threading
import time
import uuid

# Few enough that a pod's log can name every event of a whole run.
BATCH = 10
PASSING = {429, 502, 503, 504}


class Traffic:
    def __init__(self, door, account, tokens, tries=1):
        self.door, self.account, self.tokens, self.tries = door, account, tokens, tries
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.answers = collections.Counter()
        self.faults = []
        self.acknowledged = []
        self.retried = 0

    def __enter__(self):
        work = [self.events, self.events, self.checks, self.logins]
        self.threads = [threading.Thread(target=self.loop, args=(each,), daemon=True) for each in work]
        self.started = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        self.seconds = time.monotonic() - self.started

    def loop(self, work):
        # A connection of its own, kept open: how it is closed at a rollout is part of what is tested.
        connection = self.door.connection()
        while not self.stop.is_set():
            connection = work(connection)
            time.sleep(0.05)
        connection.close()

    def events(self, connection):
        ids = [str(uuid.uuid4()) for _ in range(BATCH)]
        body = json.dumps([{"source_id": f"e2e-{i % 4}", "event_id": each} for i, each in enumerate(ids)])
        connection, status, answer = self.ask(connection, "events", "POST", "/events/batch", self.tokens[0], body, 202)
        if status in (202, 207):
            held = [each["event_id"] for each in answer["results"] if each["status"] == "accepted"]
            with self.lock:
                self.acknowledged += held
        return connection

    def checks(self, connection):
        return self.ask(connection, "session", "GET", "/auth/session", self.tokens[0], None, 200)[0]

    def logins(self, connection):
        time.sleep(0.5)
        body = json.dumps({"email": self.account["email"], "password": self.account["password"]})
        return self.ask(connection, "login", "POST", "/auth/password/login", None, body, 200)[0]

    def ask(self, connection, name, method, path, token, body, expected):
        """One request, tried as often as agreed; counts how it ended."""
        for left in reversed(range(self.tries)):
            connection, status, answer = self.door.ask(connection, method, path, token, body, self.account["tenant"])
            if status == expected or not left or (status is not None and status not in PASSING):
                break
            with self.lock:
                self.retried += 1
            time.sleep(0.5)
        with self.lock:
            self.answers[name, status == expected] += 1
            if status != expected:
                self.faults.append(f"{time.strftime('%H:%M:%S')} {name}: {status} {str(answer)[:200]}")
        return connection, status, answer

    @property
    def total(self):
        return sum(self.answers.values())

    @property
    def failed(self):
        return sum(count for (_, well), count in self.answers.items() if not well)


class Door:
    """The front door, as it is reached from this machine."""

    def __init__(self, address, host):
        self.address, self.host = address, host

    def connection(self):
        return http.client.HTTPConnection(self.address, timeout=30)

    def ask(self, connection, method, path, token=None, body=None, tenant=None):
        """Returns the connection to go on with, the status, and the answer; no status when there was none."""
        headers = {"Host": self.host, "Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif tenant:
            headers["X-Tenant-ID"] = tenant
        try:
            connection.request(method, f"/api/v1{path}", body, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as fault:
            connection.close()
            return self.connection(), None, repr(fault)
        try:
            return connection, response.status, json.loads(text) if text else None
        except ValueError:
            return connection, response.status, text.decode(errors="replace")
