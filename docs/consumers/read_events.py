#!/usr/bin/env python3
"""Prints the events of a durable consumer. Needs Python 3.9 and nats-py 2.13 or newer.

NATS_URL (nats://host:4222), NATS_USER (the name of the consumer) and NATS_PASSWORD configure it. SIGINT or SIGTERM stops it.
"""

import asyncio
import json
import os
import signal
import sys
import uuid
from urllib.parse import unquote

import nats
from nats.js.errors import APIError

NAME = os.environ["NATS_USER"]
MAX_PAYLOAD = 100_000
# Other users of the broker cannot guess the message ids of dead letters, which would suppress them.
RUN_ID = uuid.uuid4()


class Rejected(Exception):
    """No attempt can succeed."""


def handle(event):
    """Replace this. An event that was handled before is delivered again after a crash."""
    tenant = event.subject.split(".")[3]
    if len(event.data) > MAX_PAYLOAD:
        raise Rejected("too large for this consumer")
    source = unquote(event.headers["ce-source"])
    print(tenant, source, event.headers["ce-id"], event.headers["ce-type"], flush=True)


async def event_types(events):
    """Returns the types that the durable is for, or none for all. Events of other types can have the subject of GENERIC_EVENT."""
    metadata = (await events.consumer_info()).config.metadata or {}
    return json.loads(metadata.get("svc-definition", "{}")).get("event_types", [])


async def dead_letter(stream, event, reason):
    """Keeps the event for `svc events dlq`. Returns after it is stored."""
    headers = {name: value for name, value in event.headers.items() if not name.startswith("Nats-")}
    sequence = event.metadata.sequence.stream
    headers["Nats-Msg-Id"] = f"{NAME}-{event.metadata.stream}-{sequence}-{RUN_ID}"
    headers["Udm-Dlq-Reason"] = reason
    headers["Udm-Dlq-Attempts"] = str(event.metadata.num_delivered)
    tenant = event.subject.split(".")[3]
    await stream.publish(f"udm.dlq.v1.{tenant}.{NAME}", event.data, headers=headers)


async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    broker = await nats.connect(
        os.environ["NATS_URL"],
        user=NAME,
        password=os.environ["NATS_PASSWORD"],
        inbox_prefix=f"_INBOX.{NAME}".encode(),
    )
    stream = broker.jetstream(prefix="JS.API")
    events = await stream.pull_subscribe_bind(NAME, stream=os.environ.get("NATS_STREAM", "UDM"))
    types = await event_types(events)
    while not stop.is_set():
        try:
            batch = await events.fetch(100, timeout=2)
        except asyncio.TimeoutError:
            continue
        except APIError as error:
            print(error, file=sys.stderr)
            await asyncio.sleep(1)
            continue
        for event in batch:
            is_for_this = event.headers.get("Udm-Replay-For", NAME) == NAME
            is_selected = not types or event.headers["ce-type"] in types
            try:
                if is_for_this and is_selected:
                    handle(event)
            except Rejected as error:
                await dead_letter(stream, event, str(error))
            # Without an acknowledgement, for example after another exception, the event is delivered again after 30 s.
            await event.ack()
    # Sends the last acknowledgements.
    await broker.flush()
    await broker.close()


asyncio.run(main())
