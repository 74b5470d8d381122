"""Runs in a pod: clients of consumers with the default options of nats-py. The arguments are a mode and names of consumers.

`first`: each consumer reads one event. Prints how many did.
`witness`: keeps connections open, and prints `open`, then the time at which the server has closed the first one.
`survivor`: reads until it has the number of different events in the variable EVENTS, whatever happens to the server. Prints `open` at the start.
"""

import asyncio
import os
import sys
import time

import nats


async def connected(name, **options):
    with open(f"/logins/{name}") as file:
        return await nats.connect(file.read(), **options)


async def subscribed(client, name):
    return await client.jetstream().pull_subscribe_bind(name, stream="UDM")


async def first(names):
    async def read(name):
        client = await connected(name)
        event = (await (await subscribed(client, name)).fetch(1, timeout=30))[0]
        await event.ack_sync()
        await client.close()

    await asyncio.gather(*map(read, names))
    print(len(names))


async def witness(names):
    closed = asyncio.Event()

    async def disconnected():
        closed.set()

    for name in names:
        await connected(name, disconnected_cb=disconnected, allow_reconnect=False)
    print("open", flush=True)
    await closed.wait()
    print(time.time())


async def survivor(names):
    client, ids = await connected(names[0]), set()
    events = await subscribed(client, names[0])
    print("open", flush=True)
    while len(ids) < int(os.environ["EVENTS"]):
        try:
            for event in await events.fetch(10, timeout=5):
                await event.ack_sync()
                ids.add(event.headers["ce-id"])
        except (nats.errors.Error, asyncio.TimeoutError) as error:
            print(repr(error), file=sys.stderr)
            await asyncio.sleep(0.2)
    print(len(ids))


asyncio.run({"first": first, "witness": witness, "survivor": survivor}[sys.argv[1]](sys.argv[2:]))
