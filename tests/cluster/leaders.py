"""The leaders of the stream and of a durable move between three NATS servers while events are sent and read. Each event is handled once."""

import time
import uuid

import certificates
import consumers
import nats_cluster
from builds import PRESENT
from client import first_client
from cluster import Cluster
from installation import Installation
from system import System

NAME = "moved"
# How often each of the two leaders moves.
MOVES = 5
THREE_SERVERS = ["--set", "nats.stream.replicas=3", "--set", "nats.stream.durability=standard"]


def move_leaders(namespace, work, report):
    cluster = Cluster(f"{namespace}-leaders")
    installation = Installation(cluster, work, report, None)
    try:
        installation.prepare()
        cluster.apply(installation.postgres)
        replace_nats(cluster, work)
        installation.release("install", PRESENT, *THREE_SERVERS)
        read(System(installation, [], first_client(cluster, work), [], report))
    finally:
        cluster.delete_namespace()


def replace_nats(cluster, work):
    """Replaces the NATS server of a development cluster by three."""
    # Foreground: the command returns when the pod is deleted.
    cluster.kubectl("delete", "deployment", nats_cluster.NAME, "--cascade=foreground")
    certificates.create(cluster, work)
    nats_cluster.create(cluster)


def read(system):
    """Sends events until the leaders have moved, while a client with its default options reads."""
    cluster, report, started, last = system.cluster, system.report, time.monotonic(), str(uuid.uuid4())
    consumers.created(system, [NAME], "--start", "new")
    reader = consumers.start(cluster, "survivor", NAME, LAST=last)
    consumers.opened(cluster, reader)
    mover = consumers.start(cluster, "mover", NAME, secret="svc-nats", MOVES=MOVES)
    consumers.opened(cluster, mover)
    while cluster.get("pod", mover)["status"]["phase"] == "Running":
        consumers.send(system)
    moves = consumers.finished(cluster, mover)
    consumers.send(system, last)
    sent, result = len(system.acknowledged), consumers.finished(cluster, reader)
    if result != f"{sent}/{sent}":
        report.fail(f"leaders: {sent} events were sent; handled and different ones: {result}")
    report.step("leaders", started, f"{moves} moves; {sent} events sent, handled and different ones: {result}")
