"""Runs in a pod: prints the id of every event in the stream UDM, then the number of messages in UDM and in AUDIT."""

import asyncio
import os

import nats


async def main():
    connection = await nats.connect(os.environ["NATS_URL"])
    jetstream = connection.jetstream()
    count = (await jetstream.stream_info("UDM")).state.messages
    # An ordered consumer does not acknowledge, so the stream can be read again.
    subscription = await jetstream.subscribe("udm.v1.>", stream="UDM", ordered_consumer=True)
    for _ in range(count):
        message = await subscription.next_msg(timeout=30)
        print((message.headers or {}).get("ce-id", "-"))
    print(count, (await jetstream.stream_info("AUDIT")).state.messages)
    await connection.close()


asyncio.run(main())
