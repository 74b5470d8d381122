"""The operator when its leader is killed or paused, and producers while the API server does not respond."""

import time

from client import is_active
from cluster import NODE, run, signal_processes
from managed import (
    SVC_PRODUCERS, SVC_TENANTS, TENANT, accept_invite, apply, event, in_namespace, leader, operator, producer, send, tenant, token_of_pod, wait_ready, wait_until,
)  # fmt: skip
from managed_rights import check_rights
from rotation import superuser

# Seconds between a new tenant and the SIGKILL of the leader.
KILLS = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
PAUSE = 60
API_SERVER_PAUSE = 90
API_SERVER = '[ "$(cat $p/comm 2>/dev/null)" = kube-apiserver ]'


def disturb_operator(system):
    with operator(system) as apps:
        replace_leader(system)
        delete_lease(system)
        if not NODE:
            system.report.step("operator: killed and paused processes", time.monotonic(), "not run: set E2E_NODE_EXEC")
            return
        kill_leader(system)
        pause_leader(system, apps)
        token = token_of_pod(system, apps)
        pause_nats(system, apps, token)
        pause_api_server(system, token)
        check_rights(system)


def replace_leader(system):
    """A leader that is deleted gives its lease up."""
    cluster, holder = system.cluster, leader(system.cluster)
    started = time.monotonic()
    cluster.kubectl("delete", "pod", holder["metadata"]["name"], "--wait=false")
    cluster.apply(tenant("next"))
    wait_ready(SVC_TENANTS, "next")
    seconds = time.monotonic() - started
    if leader(cluster)["metadata"]["name"] == holder["metadata"]["name"]:
        system.report.fail("operator: the deleted pod still holds the lease")
    system.report.step("operator: the leader is deleted", started, f"the next tenant was ready after {seconds:.1f} s")


def delete_lease(system):
    """A pod creates the Lease if it is missing, as after an installation with Argo CD."""
    cluster, started = system.cluster, time.monotonic()
    cluster.kubectl("delete", "lease", f"{cluster.release}-operator")
    leader(cluster)
    system.report.step("operator: the Lease is deleted", started, "a pod holds another one")


def kill_leader(system):
    """A leader that is killed while it creates a tenant leaves one tenant with one invite and a valid token."""
    cluster, started, slowest = system.cluster, time.monotonic(), 0
    for number, seconds in enumerate(KILLS):
        holder, name = leader(cluster), f"killed-{number}"
        cluster.apply(tenant(name))
        time.sleep(seconds)
        killed = time.monotonic()
        cluster.signal(holder, "KILL")
        wait_ready(SVC_TENANTS, name)
        slowest = max(slowest, time.monotonic() - killed)
        accept_invite(system, name)
    invites = int(superuser(cluster, "select count(*) from identity.invites where tenant_id like 'killed-%'"))
    if invites != len(KILLS):
        system.report.fail(f"operator: {invites} invites of {len(KILLS)} tenants")
    system.report.step("operator: SIGKILL of the leader", started, f"{len(KILLS)} times; a tenant was ready after at most {slowest:.1f} s")


def pause_leader(system, apps):
    """A leader that was paused does not undo what the next one wrote."""
    cluster, started = system.cluster, time.monotonic()
    cluster.apply(tenant(TENANT))
    cluster.apply(tenant("renamed", adoption="IfUnowned"))
    cluster.apply(tenant("removed", adoption="IfUnowned", deletionPolicy="Suspend"))
    apply(in_namespace(producer(), apps))
    for name in (TENANT, "renamed", "removed"):
        wait_ready(SVC_TENANTS, name)
    wait_ready(SVC_PRODUCERS, "collector", "--namespace", apps)
    paused = leader(cluster)
    cluster.signal(paused, "STOP")
    stopped = time.monotonic()
    cluster.apply(tenant("renamed", adoption="IfUnowned", displayName="Renamed"))
    run("kubectl", "delete", SVC_TENANTS, "removed", "--timeout=60s")
    run("kubectl", "delete", SVC_PRODUCERS, "collector", "--namespace", apps)
    wait_ready(SVC_TENANTS, "renamed")
    wait_until("another replica writes", lambda: state(cluster) == EXPECTED)
    taken_over = time.monotonic() - stopped
    time.sleep(max(0, PAUSE - (time.monotonic() - stopped)))
    before = resource_version("renamed")
    cluster.signal(paused, "CONT")
    # The next tenant shows that the leader works. The paused one had the same time.
    cluster.apply(tenant("later"))
    wait_ready(SVC_TENANTS, "later")
    name = paused["metadata"]["name"]
    wait_until("the paused pod is ready or replaced", lambda: is_ready_or_gone(cluster, name))
    if (found := state(cluster)) != EXPECTED or resource_version("renamed") != before:
        system.report.fail(f"operator: after the pause of its former leader, the state is {found}, not {EXPECTED}")
    system.report.step("operator: the leader is paused", started, f"the next one had written after {taken_over:.1f} s; nothing was undone")


EXPECTED = "removed|Managed|suspended renamed|Renamed|active 0"


def state(cluster):
    """Returns the two tenants, and the number of producers."""
    statement = """select tenant_id, display_name, status from identity.tenants where tenant_id in ('removed', 'renamed') order by 1;
        select count(*) from session.producers where deleted_at is null"""
    return " ".join(superuser(cluster, statement).split())


def pause_nats(system, apps, token):
    """Without invalidations, a deleted producer is rejected when its cache entry expires."""
    cluster, started, seconds = system.cluster, time.monotonic(), []
    nats = cluster.get("pods", "--selector", "app=nats")["items"][0]
    for _ in range(3):
        cluster.signal(nats, "STOP")
        try:
            run("kubectl", "delete", SVC_PRODUCERS, "collector", "--namespace", apps, "--wait=false")
            deleted = time.monotonic()
            # 403 for another source shows that the token is still accepted.
            wait_until("the token of a deleted producer is rejected", lambda: send(system, token, "other") == 401)
            seconds.append(time.monotonic() - deleted)
        finally:
            cluster.signal(nats, "CONT")
        apply(in_namespace(producer(), apps))
        wait_until("the token of the pod is accepted", lambda: send(system, token) == 202)
    detail = f"a deleted producer was rejected after at most {max(seconds):.1f} s"
    system.report.step("operator: NATS is paused", started, detail)


def pause_api_server(system, token):
    """Without the API server, known tokens are accepted for a minute, and then get 503, because they cannot be checked."""
    started, statuses, inactive = time.monotonic(), [], 0
    signal_processes(API_SERVER, "STOP")
    paused = time.monotonic()
    try:
        while (seconds := time.monotonic() - paused) < API_SERVER_PAUSE:
            status, retry_after = event(system, token)
            statuses.append((seconds, status, retry_after))
            inactive += not is_active(system.entries[0], system.tokens[0])
            time.sleep(0.5)
    finally:
        signal_processes(API_SERVER, "CONT")
    if inactive:
        system.report.fail(f"operator: {inactive} checks of a session failed while the API server was paused")
    unexpected = [each for each in statuses if each[1] not in (202, 503) or (each[1] == 503 and not each[2])]
    rejected = [seconds for seconds, status, _ in statuses if status == 503]
    if unexpected or not rejected or rejected[0] > 75 or statuses[-1][1] != 503:
        system.report.fail(f"operator: events while the API server was paused: {statuses}")
    wait_until("the token of the pod is accepted again", lambda: send(system, token) == 202)
    detail = f"accepted for {rejected[0] if rejected else API_SERVER_PAUSE:.0f} s, then 503 with Retry-After; sessions not affected"
    system.report.step("operator: the API server is paused", started, detail)


def resource_version(name):
    return run("kubectl", "get", SVC_TENANTS, name, "--output=jsonpath={.metadata.resourceVersion}")


def is_ready_or_gone(cluster, name):
    found = [pod for pod in cluster.pods("operator") if pod["metadata"]["name"] == name]
    return not found or all(status["ready"] for status in found[0]["status"].get("containerStatuses", []))
