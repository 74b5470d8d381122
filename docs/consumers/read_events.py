#!/usr/bin/env python3
"""Prints the events of a durable consumer. Needs Python 3.9 and nats-py 2.3 or newer.

NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it. Several
processes can share the events of a consumer.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from urllib.parse import unquote

import nats
import nats.errors

NAME = os.environ["NATS_USER"]
MAX_PAYLOAD = 100_000
# Few, because the events of a batch wait for each other.
BATCH = 10
# Larger events remain in their stream, and a dead letter refers to them.
MAX_COPY = 4096
# Seconds until an event that could not be handled is delivered again.
RETRY_DELAY = 30


class Rejected(Exception):
    """No attempt can succeed."""


def handle(event):
    """Replace this. It may block. An event that was handled before is delivered again after a crash."""
    if len(event.data) > MAX_PAYLOAD:
        raise Rejected("too large for this consumer")
    source = unquote(event.headers["ce-source"])
    print(tenant(event), source, event.headers["ce-id"], event.headers["ce-type"], flush=True)


def tenant(event):
    return event.subject.split(".")[3]


def event_types(info):
    """Returns the types that the durable is for, or none for all. Events of other types can have the subject of GENERIC_EVENT."""
    # Older versions of nats-py do not read the metadata.
    metadata = getattr(info.config, "metadata", None) or {}
    return json.loads(metadata.get("svc-definition", "{}")).get("event_types", [])


async def dead_letter(stream, event, reason):
    """Keeps the event for `svc events dlq`. Returns after it is stored."""
    headers = {name: value for name, value in event.headers.items() if not name.startswith("Nats-")}
    sequence = event.metadata.sequence.stream
    headers["Nats-Msg-Id"] = f"{NAME}-{event.metadata.stream}-{sequence}"
    headers["Udm-Dlq-Stream"] = event.metadata.stream
    headers["Udm-Dlq-Sequence"] = str(sequence)
    headers["Udm-Dlq-Reason"] = reason[:500]
    headers["Udm-Dlq-Attempts"] = str(event.metadata.num_delivered)
    data = event.data if len(event.data) <= MAX_COPY else b""
    await stream.publish(f"udm.dlq.v1.{tenant(event)}.{NAME}", data, headers=headers)


async def extend(waiting, ack_wait):
    """Extends the time for the acknowledgements of the events that wait or are handled."""
    while True:
        await asyncio.sleep(ack_wait / 3)
        for event in list(waiting):
            with contextlib.suppress(nats.errors.Error):
                await event.in_progress()


async def acknowledge(event, ack_wait):
    """Acknowledges an event, also while the broker restarts. Returns whether the broker has confirmed it."""
    for _ in range(int(ack_wait)):
        with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
            await event.ack_sync(timeout=1)
            return True
        await asyncio.sleep(0.5)
    return False


async def process(stream, event, types, ack_wait):
    """Handles an event. Returns whether the broker knows that it was delivered."""
    is_for_this = event.headers.get("Udm-Replay-For", NAME) == NAME
    is_selected = not types or event.headers["ce-type"] in types
    try:
        if is_for_this and is_selected:
            # In a thread, so that a handler that blocks does not delay `extend`.
            await asyncio.get_running_loop().run_in_executor(None, handle, event)
    except Rejected as error:
        try:
            await dead_letter(stream, event, str(error))
        except (nats.errors.Error, asyncio.TimeoutError) as failure:
            # For example a tenant with too many dead letters. The event remains, and others are handled.
            print(f"no dead letter: {failure}", file=sys.stderr)
            await event.nak(delay=RETRY_DELAY)
            return True
    except Exception as error:
        print(f"failed, will be tried again: {error}", file=sys.stderr)
        await event.nak(delay=RETRY_DELAY)
        return True
    return await acknowledge(event, ack_wait)


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Without a limit of reconnections, the program survives an outage of the broker, and waits for its start.
    connect = asyncio.create_task(
        nats.connect(os.environ["NATS_URL"], user=NAME, password=os.environ["NATS_PASSWORD"], max_reconnect_attempts=-1)
    )
    await asyncio.wait([connect, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
    if not connect.done():
        return
    broker = await connect
    stream = broker.jetstream()
    events = await stream.pull_subscribe("", durable=NAME, stream=os.environ.get("NATS_STREAM", "UDM"))
    info = await events.consumer_info()
    types, ack_wait = event_types(info), info.config.ack_wait
    waiting = []
    extending = asyncio.create_task(extend(waiting, ack_wait))
    while not stop.is_set():
        if broker.is_closed:
            # nats-py does not connect again after the broker has ended the login. A supervisor starts the program again.
            sys.exit("connection closed")
        try:
            waiting += await events.fetch(BATCH, timeout=2)
        except asyncio.TimeoutError:
            continue
        except nats.errors.Error as error:
            print(error, file=sys.stderr)
            await asyncio.sleep(1)
            continue
        while waiting and not stop.is_set():
            if await process(stream, waiting[0], types, ack_wait):
                del waiting[0]
            else:
                # The durable was reset: the rest is delivered again too.
                waiting.clear()
    extending.cancel()
    # The rest is delivered again at once.
    for event in waiting:
        await event.nak()
    await broker.flush()
    await broker.close()


asyncio.run(main())
