"""Runs in a pod: prints the id of every event that the stream UDM holds, then how many those are, and how many AUDIT holds."""

import asyncio
import os

import nats


async def main():
    connection = await nats.connect(os.environ["NATS_URL"])
    jetstream = connection.jetstream()
    held = (await jetstream.stream_info("UDM")).state.messages
    # Ordered and without acknowledgement: nothing is consumed, so it can be read again.
    subscription = await jetstream.subscribe("udm.v1.>", stream="UDM", ordered_consumer=True)
    for _ in range(held):
        message = await subscription.next_msg(timeout=30)
        print((message.headers or {}).get("ce-id", "-"))
    print(held, (await jetstream.stream_info("AUDIT")).state.messages)
    await connection.close()


asyncio.run(main())
