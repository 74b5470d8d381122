"""Runs in a pod: reads the events that wait for the durable `consumer` with the credential of that consumer.

Prints the id of each event, then the number of messages in AUDIT, which an administrator reads.
"""

import asyncio
import os

import nats

NAME = "consumer"


async def main():
    consumer = await nats.connect(os.environ["CONSUMER_URL"])
    events = await consumer.jetstream().pull_subscribe_bind(NAME, stream="UDM")
    waiting = (await events.consumer_info()).num_pending
    while waiting > 0:
        for event in await events.fetch(min(waiting, 100), timeout=30):
            await event.ack_sync()
            print((event.headers or {}).get("ce-id", "-"))
            waiting -= 1
    await consumer.close()
    administrator = await nats.connect(os.environ["AUDIT_ADMINISTRATOR_URL"])
    print((await administrator.jetstream().stream_info("AUDIT")).state.messages)
    await administrator.close()


asyncio.run(main())
