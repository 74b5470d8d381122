"""What does not fit the cluster: the real API server and kubelet say what is wrong, and what runs goes on untouched."""

import time

from builds import TAGS
from cluster import Failure

MISSING = ("no-database", "no-nats", "no-tokens")
# What Helm waits for does not come, so this is waited for in vain.
IN_VAIN = 25


def first_installation_without_secrets(installation, report):
    """Each Secret that is missing is named, no program starts, and Helm leaves nothing behind."""
    started, cluster, name = time.monotonic(), installation.cluster, "without-secrets"
    keys = ("database.existingSecret", "nats.existingSecret", "secrets.existingSecret")
    chosen = [word for pair in zip(keys, MISSING) for word in ("--set", "=".join(pair))]
    refused(
        lambda: installation.release(
            "install", TAGS[0], *chosen, "--set", "ingress.enabled=false", "--atomic", name=name, seconds=IN_VAIN
        ),
        report, "installing without Secrets",
    )  # fmt: skip
    said = " ".join(event["message"] for event in cluster.get("events")["items"])
    for secret in MISSING:
        if f'secret "{secret}" not found' not in said:
            report.complain(f"nobody says that the Secret {secret} is missing")
    started_programs = [event for event in cluster.get("events")["items"] if belongs(event, name, "Started")]
    if started_programs:
        report.complain(f"without Secrets something started: {started_programs[0]['message']}")
    kinds = "deployments,jobs,services,serviceaccounts,networkpolicies,poddisruptionbudgets,configmaps,secrets,ingresses"
    left = cluster.get(kinds, "--selector", f"app.kubernetes.io/instance={name}")["items"]
    if left:
        report.complain(f"after a refused installation there are still {[each['metadata']['name'] for each in left]}")
    report.step("install without Secrets", started, f"refused; the events name {', '.join(MISSING)}; nothing left")


def upgrade_on_another_version(installation, disturbances):
    """Under load: the schema is two versions ahead of the new build, and the stream is not as it is told to be."""
    cluster = installation.cluster
    table = "identity.schema_migrations"

    def upgrade():
        sql(
            cluster,
            f"insert into {table} (version, description, success, checksum, execution_time)"
            f" select max(version) + 2, 'of the future', true, '', 0 from {table}",
        )
        refused(
            lambda: installation.release(
                "upgrade", TAGS[1], "--set", "nats.stream.maxBytes=512MiB", seconds=IN_VAIN
            ),
            disturbances.report, "upgrading on another version",
        )  # fmt: skip
        said = [final_word(cluster, "identity-migration"), cluster.log_of_new("ingest")]
        expected = ("but this binary was built for", "is not as it must be: max_bytes")
        for sentence, words in zip(expected, said):
            if sentence not in words:
                disturbances.report.complain(f"nobody says {sentence!r}, but {words[-300:]!r}")
        sql(cluster, f"delete from {table} where description = 'of the future'")
        installation.rollback()
        return "refused, each with its reason; rolled back"

    disturbances.disturb("upgrade on a schema and stream of another version", upgrade)


def refused(what, report, name):
    try:
        what()
    except Failure:
        return
    report.complain(f"{name} was not refused")


def belongs(event, release, reason):
    return event["reason"] == reason and event["involvedObject"]["name"].startswith(f"{release}-")


def final_word(cluster, component):
    """What the last program of a component said when it ended, as its pod's status shows it."""
    ended = [
        status["state"]["terminated"].get("message", "")
        for pod in cluster.pods(component)
        for status in pod["status"].get("containerStatuses", [])
        if "terminated" in status["state"]
    ]
    return " ".join(ended)


def sql(cluster, statement):
    address = cluster.secret("svc-database", "identity-migrator-url")
    cluster.kubectl("exec", "deployment/postgres", "--", "psql", address, "--quiet", "--command", statement)
