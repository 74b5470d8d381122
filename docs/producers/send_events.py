#!/usr/bin/env python3
"""Sends the events on standard input, one JSON object per line. Needs Python 3.9 and no package.

Sends the bytes of each line, and adds an id to an event without one. SVC_BASE_URL and SVC_API_KEY configure it. Prints the errors of
lines that are no events and of rejected events, sends all others, and then exits with 1.
"""

import gzip
import json
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ["SVC_BASE_URL"].rstrip("/") + "/api/v1/events/batch"
HEADERS = {
    "Authorization": "Bearer " + os.environ["SVC_API_KEY"],
    "Content-Type": "application/x-ndjson",
    "Content-Encoding": "gzip",
}
MAX_EVENTS, MAX_BYTES = 500, 4 * 1024 * 1024
# The service detects a repeated event for 120 s.
RETRY_SECONDS = 100
EVENT_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
SEPARATORS = re.compile(r"[\s:,]*")


def invalid_number(text):
    raise ValueError(f"{text} is not JSON")


# Python reads NaN and Infinity, which JSON does not have.
DECODER = json.JSONDecoder(parse_constant=invalid_number)


def post(events):
    """Sends ids and lines of events. Returns status, Retry-After in seconds and the body as JSON. The status is 503 without a response."""
    request = urllib.request.Request(URL, gzip.compress(b"\n".join(line for _, line in events)), HEADERS)
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


def members(text):
    """Yields name, value, start and end of the value of each member of a JSON object."""
    at = SEPARATORS.match(text, text.index("{") + 1).end()
    while text[at] != "}":
        name, at = DECODER.raw_decode(text, at)
        start = SEPARATORS.match(text, at).end()
        value, end = DECODER.raw_decode(text, start)
        yield name, value, start, end
        at = SEPARATORS.match(text, end).end()


def parse(line):
    """Returns the id of an event and its line. Adds an id unless it has one."""
    text = line.decode("utf-8-sig").strip()
    if not isinstance(DECODER.decode(text), dict):
        raise ValueError("not an object")
    start = end = text.index("{") + 1
    new_id = str(uuid.uuid4())
    added = f'"event_id":"{new_id}"' + ("" if text[start:].lstrip() == "}" else ",")
    metadata_id = None
    for name, value, value_start, value_end in members(text):
        # Both names are the same field.
        if name in ("event_id", "eventId"):
            if value is not None:
                return value, text.encode()
            start, end, added = value_start, value_end, f'"{new_id}"'
        elif name == "metadata" and isinstance(value, dict):
            metadata_id = value.get("id")
    if isinstance(metadata_id, str) and EVENT_ID.fullmatch(metadata_id):
        # The service uses it as the id of the event.
        return metadata_id, text.encode()
    return new_id, (text[:start] + added + text[end:]).encode()


def batches(lines, invalid):
    """Adds the numbers of lines without an event to `invalid`."""
    events, size = [], 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = parse(line)
        except (ValueError, RecursionError) as error:
            print(f"line {number}: {error}", file=sys.stderr)
            invalid.append(number)
            continue
        length = len(event[1])
        if events and (len(events) == MAX_EVENTS or size + length > MAX_BYTES):
            yield events
            events, size = [], 0
        events.append(event)
        size += length
    if events:
        yield events


if __name__ == "__main__":
    invalid = []
    rejects = [reject for events in batches(sys.stdin.buffer, invalid) for reject in send(events)]
    for (event_id, _), error in rejects:
        print(event_id, error.get("code"), error["message"], file=sys.stderr)
    sys.exit(1 if rejects or invalid else 0)
