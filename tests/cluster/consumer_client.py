"""Runs in a pod: clients of consumers with the default options of nats-py. The arguments are a mode and names of consumers.

`first`: each consumer reads one event. Prints how many did.
`witness`: keeps connections open, and prints `open`, then the time at which the server has closed the first one.
`declared`: connects with a Secret of the operator, prints `open`, reads one event, prints `read`, then the time at which the server has closed the
connection.
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


async def declared(_):
    login = {}
    for key in ("url", "user", "password", "stream", "durable"):
        with open(f"/logins/{key}") as file:
            login[key] = file.read()
    closed = asyncio.Event()

    async def disconnected():
        closed.set()

    client = await nats.connect(
        login["url"], user=login["user"], password=login["password"], disconnected_cb=disconnected, allow_reconnect=False
    )
    events = await client.jetstream().pull_subscribe_bind(login["durable"], stream=login["stream"])
    print("open", flush=True)
    await (await events.fetch(1, timeout=60))[0].ack_sync()
    print("read", flush=True)
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


asyncio.run({"first": first, "witness": witness, "declared": declared, "survivor": survivor}[sys.argv[1]](sys.argv[2:]))
