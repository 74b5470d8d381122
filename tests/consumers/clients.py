"""Reads with the calls of nats-py that a program usually has, with default options. Exits with 1 if a call has another result.

Usage: clients.py <filter of the durable>. NATS_URL, NATS_USER and NATS_PASSWORD are those of the consumer.
"""

import asyncio
import os
import sys

import nats

NAME = os.environ["NATS_USER"]
NO_CONSUMER = f"login `{NAME}` cannot create a consumer: read its durable `{NAME}`"


async def first(subscription):
    (event,) = await subscription.fetch(1, timeout=10)
    await event.ack_sync()
    return event.headers["ce-id"]


async def read(stream, subject):
    """Yields calls with what their result or error contains."""
    yield "event-", first(await stream.pull_subscribe("", durable=NAME, stream="UDM"))
    yield "event-", first(await stream.pull_subscribe(subject, durable=NAME))
    yield "event-", first(await stream.pull_subscribe_bind(NAME, "UDM"))
    yield "UDM", stream.find_stream_name_by_subject(subject)
    yield "name='UDM'", stream.stream_info("UDM")
    yield "name='UDM'", stream.streams_info()
    yield f"name='{NAME}'", stream.consumer_info("UDM", NAME)
    yield f"name='{NAME}'", stream.consumers_info("UDM")
    yield "streams=", stream.account_info()
    yield NO_CONSUMER, stream.subscribe(subject)
    yield NO_CONSUMER, stream.subscribe(subject, ordered_consumer=True)
    # Without a subject of deliveries, the client itself rejects the durable.
    yield "deliver_subject is required", stream.subscribe(subject, durable=NAME, stream="UDM")


async def main(subject):
    broker = await nats.connect(os.environ["NATS_URL"], user=NAME, password=os.environ["NATS_PASSWORD"])
    failures = 0
    async for expected, call in read(broker.jetstream(), subject):
        try:
            result = str(await call)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        if expected not in result:
            print(f"{call.__qualname__}: {result!r} instead of {expected!r}")
            failures += 1
    await broker.close()
    sys.exit(failures > 0)


asyncio.run(main(sys.argv[1]))
