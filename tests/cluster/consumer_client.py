"""Runs in a pod: clients of consumers with the default options of nats-py. The arguments are a mode and names of consumers.

`first`: each consumer reads one event. Prints how many did.
`witness`: keeps connections open, and prints `open`, then the time at which the server has closed the first one.
`declared`: connects with the variables of a Secret of the operator, prints `open`, reads one event, prints `read`, then the time at which the
server has closed the connection.
`survivor`: reads until it has the event with the id in the variable LAST and no event is left, whatever happens to the servers. Prints `open` at the
start, and at the end how many events it handled, and how many different ones.
`mover`: as an administrator, moves the leaders of the stream and of the durable MOVES (a variable) times. Prints `open` at the start, and at the
end how many leaders have moved.
"""

import asyncio
import contextlib
import json
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
    url, user, password, stream, durable = (os.environ[f"NATS_{key}"] for key in ("URL", "USER", "PASSWORD", "STREAM", "DURABLE"))
    closed = asyncio.Event()

    async def disconnected():
        closed.set()

    client = await nats.connect(url, user=user, password=password, disconnected_cb=disconnected, allow_reconnect=False)
    events = await client.jetstream().pull_subscribe_bind(durable, stream=stream)
    print("open", flush=True)
    await (await events.fetch(1, timeout=60))[0].ack_sync()
    print("read", flush=True)
    await closed.wait()
    print(time.time())


async def survivor(names):
    client, handled = await connected(names[0]), []
    events = await subscribed(client, names[0])
    print("open", flush=True)
    while True:
        try:
            info = await events.consumer_info()
            if os.environ["LAST"] in handled and info.num_pending == info.num_ack_pending == 0:
                break
            for event in await events.fetch(10, timeout=5):
                handled.append(event.headers["ce-id"])
                await acknowledge(event)
        except (nats.errors.Error, asyncio.TimeoutError) as error:
            print(repr(error), file=sys.stderr)
            await asyncio.sleep(0.2)
    print(f"{len(handled)}/{len(set(handled))}")


async def acknowledge(event):
    """Repeats an acknowledgement that is not confirmed, as docs/consumers/read_events.py does."""
    for _ in range(30):
        with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
            return await event.ack_sync(timeout=1)
        await asyncio.sleep(0.5)


async def mover(names):
    client, count = await connected("administrator-url"), int(os.environ["MOVES"])
    stream = client.jetstream()
    print("open", flush=True)
    for _ in range(count):
        await move(client, "STREAM.LEADER.STEPDOWN.UDM", lambda: stream.stream_info("UDM"))
        await move(client, f"CONSUMER.LEADER.STEPDOWN.UDM.{names[0]}", lambda: stream.consumer_info("UDM", names[0]))
    print(2 * count)


async def move(client, request, info):
    """Moves a leader. Returns when another server leads."""
    previous = await elected(info, None)
    response = json.loads((await client.request(f"$JS.API.{request}", b"", timeout=10)).data)
    if not response.get("success"):
        raise RuntimeError(response)
    await elected(info, previous)


async def elected(info, previous):
    """Waits until a server other than the previous one leads. Returns its name."""
    for _ in range(300):
        with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError):
            leader = (await info()).cluster.leader
            if leader and leader != previous:
                return leader
        await asyncio.sleep(0.1)
    raise RuntimeError(f"no leader other than {previous}")


MODES = {"first": first, "witness": witness, "declared": declared, "survivor": survivor, "mover": mover}
asyncio.run(MODES[sys.argv[1]](sys.argv[2:]))
