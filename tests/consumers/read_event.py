"""A consumer that depends on NATS only: prints the messages of the stream UDM as JSON, oldest first.

Usage: read_event.py <nats url> <count>
"""

import asyncio
import json
import sys

import nats


async def main(url, count):
    client = await nats.connect(url)
    try:
        subscription = await client.jetstream().subscribe("udm.v1.>", stream="UDM", ordered_consumer=True)
        messages = [await subscription.next_msg(timeout=30) for _ in range(count)]
    finally:
        await client.close()
    print(json.dumps([
        {"subject": message.subject, "headers": message.headers, "payload": message.data.decode("utf-8")}
        for message in messages
    ]))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
