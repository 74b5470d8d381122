"""Load on the ingress during a disturbance: events, session checks, logins and logouts.

A request is sent once. With `attempts`, temporary errors are retried with the same ids, like in the transport library. In
parallel, `svc` sends events with the transport library and its default retries.
"""

import collections
import http.client
import json
import threading
import time
import uuid

# Small, so that the log of the reader can list every event of a run.
BATCH = 10
TEMPORARY = {429, 502, 503, 504}


class Traffic:
    """`entries` are used in parallel; `client` is a `client.Client`; `pause` is the time between two requests in seconds."""

    def __init__(self, entries, client, account, token, attempts=1, pause=0.05):
        self.entries, self.client, self.account, self.attempts, self.pause = entries, client, account, attempts, pause
        self.bearer = {"Authorization": f"Bearer {token}"}
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.errors = []
        self.acknowledged = []
        self.retried = 0

    def __enter__(self):
        first = self.entries[0]
        work = [(self.events, entry) for entry in [first, *self.entries]]
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

    def loop(self, work, entry):
        # Each thread keeps its connection open, so that connection close during a rollout is tested.
        connection = entry.connection()
        while not self.stop.is_set():
            connection = work(entry, connection)
            time.sleep(self.pause)
        connection.close()

    def events(self, entry, connection):
        ids = [str(uuid.uuid4()) for _ in range(BATCH)]
        batch = [{"source_id": f"e2e-{i % 4}", "event_id": each} for i, each in enumerate(ids)]
        connection, status, body = self.request(
            entry, connection, "events", "POST", "/events/batch", batch, self.bearer, 202
        )
        if status in (202, 207):
            self.acknowledge([each["event_id"] for each in body["results"] if each["status"] == "accepted"])
        return connection

    def checks(self, entry, connection):
        return self.request(entry, connection, "session", "GET", "/auth/session", None, self.bearer, 200)[0]

    def logins(self, entry, connection):
        """Logs in and out: a user has at most fifty sessions, and the test checks the oldest ones."""
        time.sleep(0.5)
        credentials = {"email": self.account["email"], "password": self.account["password"]}
        tenant = {"X-Tenant-ID": self.account["tenant"]}
        connection, status, body = self.request(
            entry, connection, "login", "POST", "/auth/password/login", credentials, tenant, 200
        )
        if status != 200:
            return connection
        session = {"X-Session-ID": body["session_id"]}
        return self.request(entry, connection, "logout", "POST", "/auth/sessions/logout", None, session, 204)[0]

    def transport(self, _, connection):
        ids = [str(uuid.uuid4()) for _ in range(2 * BATCH)]
        try:
            self.client.send(ids)
            self.acknowledge(ids)
            self.count("svc", True)
        except Exception as error:  # an exception would end this thread silently
            self.count("svc", False, error)
        return connection

    def request(self, entry, connection, name, method, path, body, headers, expected):
        """Sends one request with retries and counts its result."""
        for left in reversed(range(self.attempts)):
            connection, status, response = entry.request(connection, method, path, body, headers)
            if status == expected or not left or (status is not None and status not in TEMPORARY):
                break
            with self.lock:
                self.retried += 1
            time.sleep(0.5)
        self.count(name, status == expected, f"{status} {str(response)[:200]}")
        return connection, status, response

    def acknowledge(self, ids):
        with self.lock:
            self.acknowledged += ids

    def count(self, name, succeeded, error=None):
        with self.lock:
            self.counts[name, succeeded] += 1
            if not succeeded:
                self.errors.append(f"{time.strftime('%H:%M:%S')} {name}: {error}")

    @property
    def total(self):
        return sum(self.counts.values())

    @property
    def failed(self):
        return sum(count for (_, succeeded), count in self.counts.items() if not succeeded)


class Entry:
    """A route into the cluster: the address from this machine, and the host name."""

    def __init__(self, address, host):
        self.address, self.host = address, host

    def connection(self):
        return http.client.HTTPConnection(self.address, timeout=30)

    def request(self, connection, method, path, body=None, headers=None):
        """Returns the connection for the next request, the status, and the body.

        After a network error, the status is `None` and the body is the error.
        """
        headers = {"Host": self.host, "Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return self.connection(), None, repr(error)
        try:
            return connection, response.status, json.loads(text) if text else None
        except ValueError:
            return connection, response.status, text.decode(errors="replace")

    def wait_until_open(self, seconds=60):
        """Waits for a successful health check. Returns None, or the last response after a timeout."""
        deadline = time.monotonic() + seconds
        while True:
            _, status, body = self.request(self.connection(), "GET", "/health")
            if status == 200:
                return None
            if time.monotonic() > deadline:
                return f"{status} {body}"
            time.sleep(0.3)
