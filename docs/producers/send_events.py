#!/usr/bin/env python3
"""Sends the events on standard input, one JSON object per line. Needs Python 3.9 and no package.

SVC_BASE_URL and SVC_API_KEY configure it. Prints the errors of lines that are no events and of rejected events, sends all others,
and then exits with 1.
"""

import gzip
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ["SVC_BASE_URL"].rstrip("/") + "/api/v1/events/batch"
HEADERS = {
    "Authorization": "Bearer " + os.environ["SVC_API_KEY"],
    "Content-Type": "application/json",
    "Content-Encoding": "gzip",
}
MAX_EVENTS, MAX_BYTES = 500, 4 * 1024 * 1024
# The service detects a repeated event for 120 s.
RETRY_SECONDS = 100


def post(events):
    """Returns status, Retry-After in seconds and the body as JSON. The status is 503 without a response."""
    request = urllib.request.Request(URL, gzip.compress(json.dumps(events).encode()), HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, headers, body = response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        status, headers, body = error.code, error.headers, error.read()
    except OSError as error:
        return 503, 0, {"detail": str(error)}
    try:
        body = json.loads(body)
    except ValueError:
        body = {"detail": f"HTTP {status}"}
    after = headers.get("Retry-After", "0")
    return status, min(int(after), 60) if after.isdigit() else 0, body


def send(events):
    """Sends a batch and retries temporary errors with the same ids. Returns the rejected events and their errors."""
    rejected, started, attempt = [], time.monotonic(), 0
    while True:
        status, retry_after, body = post(events)
        if "results" in body:
            failed = [(events[result["index"]], result) for result in body["results"] if result["status"] == "rejected"]
        else:
            retryable = status in (408, 429, 502, 503, 504)
            failed = [(event, {"message": body.get("detail"), "retryable": retryable}) for event in events]
        rejected += [(event, error) for event, error in failed if not error["retryable"]]
        failed = [(event, error) for event, error in failed if error["retryable"]]
        pause = retry_after + random.uniform(0, min(0.25 * 2**attempt, 30))
        if not failed or time.monotonic() - started + pause > RETRY_SECONDS:
            return rejected + failed
        time.sleep(pause)
        if time.monotonic() - started > RETRY_SECONDS:
            # The process was suspended: the service could store the events twice.
            return rejected + failed
        events, attempt = [event for event, _ in failed], attempt + 1


def id_name(event):
    """`event_id` and `eventId` are the same field."""
    return "eventId" if "eventId" in event else "event_id"


def batches(lines, invalid):
    """Adds the numbers of lines without an event to `invalid`."""
    events, size = [], 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError("not an object")
            # Python reads NaN, Infinity and 1e999, which JSON does not have.
            json.dumps(event, allow_nan=False)
        except ValueError as error:
            print(f"line {number}: {error}", file=sys.stderr)
            invalid.append(number)
            continue
        if len(events) == MAX_EVENTS or size + len(line) > MAX_BYTES:
            yield events
            events, size = [], 0
        if event.get(id_name(event)) is None:
            event[id_name(event)] = str(uuid.uuid4())
        events.append(event)
        size += len(line)
    if events:
        yield events


if __name__ == "__main__":
    invalid = []
    rejects = [reject for events in batches(sys.stdin.buffer, invalid) for reject in send(events)]
    for event, error in rejects:
        print(event[id_name(event)], error.get("code"), error["message"], file=sys.stderr)
    sys.exit(1 if rejects or invalid else 0)
