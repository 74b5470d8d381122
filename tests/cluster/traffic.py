"""Load on the front door while something happens behind it: events, session checks, logins and logouts, each counted.

A request is tried once, unless `tries` says otherwise; then as the transport does: after a fault that may pass, the same
events with the same ids. What `svc` sends beside it goes through the transport, with the retries of every user of it.
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
    """`doors` are the ways in, each used at once; `client` is a `client.Client`."""

    def __init__(self, doors, client, account, token, tries=1):
        self.doors, self.client, self.account, self.tries = doors, client, account, tries
        self.bearer = {"Authorization": f"Bearer {token}"}
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.answers = collections.Counter()
        self.faults = []
        self.acknowledged = []
        self.retried = 0

    def __enter__(self):
        first = self.doors[0]
        work = [(self.events, door) for door in [first, *self.doors]]
        work += [(self.checks, first), (self.logins, first), (self.transport, first)]
        self.threads = [threading.Thread(target=self.loop, args=each, daemon=True) for each in work]
        self.started = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        self.seconds = time.monotonic() - self.started

    def loop(self, work, door):
        # A connection of its own, kept open: how it is closed at a rollout is part of what is tested.
        connection = door.connection()
        while not self.stop.is_set():
            connection = work(door, connection)
            time.sleep(0.05)
        connection.close()

    def events(self, door, connection):
        ids = [str(uuid.uuid4()) for _ in range(BATCH)]
        batch = [{"source_id": f"e2e-{i % 4}", "event_id": each} for i, each in enumerate(ids)]
        connection, status, answer = self.ask(
            door, connection, "events", "POST", "/events/batch", batch, self.bearer, 202
        )
        if status in (202, 207):
            self.holds([each["event_id"] for each in answer["results"] if each["status"] == "accepted"])
        return connection

    def checks(self, door, connection):
        return self.ask(door, connection, "session", "GET", "/auth/session", None, self.bearer, 200)[0]

    def logins(self, door, connection):
        """Logs out again: a person has at most fifty sessions, and the test watches the oldest."""
        time.sleep(0.5)
        who = {"email": self.account["email"], "password": self.account["password"]}
        tenant = {"X-Tenant-ID": self.account["tenant"]}
        connection, status, answer = self.ask(
            door, connection, "login", "POST", "/auth/password/login", who, tenant, 200
        )
        if status != 200:
            return connection
        session = {"X-Session-ID": answer["session_id"]}
        return self.ask(door, connection, "logout", "POST", "/auth/sessions/logout", None, session, 204)[0]

    def transport(self, _, connection):
        ids = [str(uuid.uuid4()) for _ in range(2 * BATCH)]
        try:
            self.client.send(ids)
            self.holds(ids)
            self.count("svc", True)
        except Exception as fault:  # whatever it is: nobody joins this thread to hear of it
            self.count("svc", False, fault)
        return connection

    def ask(self, door, connection, name, method, path, body, headers, expected):
        """One request, tried as often as agreed; counts how it ended."""
        for left in reversed(range(self.tries)):
            connection, status, answer = door.ask(connection, method, path, body, headers)
            if status == expected or not left or (status is not None and status not in PASSING):
                break
            with self.lock:
                self.retried += 1
            time.sleep(0.5)
        self.count(name, status == expected, f"{status} {str(answer)[:200]}")
        return connection, status, answer

    def holds(self, ids):
        with self.lock:
            self.acknowledged += ids

    def count(self, name, well, answer=None):
        with self.lock:
            self.answers[name, well] += 1
            if not well:
                self.faults.append(f"{time.strftime('%H:%M:%S')} {name}: {answer}")

    @property
    def total(self):
        return sum(self.answers.values())

    @property
    def failed(self):
        return sum(count for (_, well), count in self.answers.items() if not well)


class Door:
    """A way in, as it is reached from this machine."""

    def __init__(self, address, host):
        self.address, self.host = address, host

    def connection(self):
        return http.client.HTTPConnection(self.address, timeout=30)

    def ask(self, connection, method, path, body=None, headers=None):
        """Returns the connection to go on with, the status, and the answer; no status when there was none."""
        headers = {"Host": self.host, "Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as fault:
            connection.close()
            return self.connection(), None, repr(fault)
        try:
            return connection, response.status, json.loads(text) if text else None
        except ValueError:
            return connection, response.status, text.decode(errors="replace")

    def opens(self, seconds=60):
        """Waits until it lets through; returns what it said last when it does not."""
        deadline = time.monotonic() + seconds
        while True:
            _, status, answer = self.ask(self.connection(), "GET", "/health")
            if status == 200:
                return None
            if time.monotonic() > deadline:
                return f"{status} {answer}"
            time.sleep(0.3)
