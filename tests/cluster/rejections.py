"""Releases that cannot start: the cluster reports the cause, and running pods are not affected."""

import re
import time

import image
from builds import PRESENT, load_programs
from cluster import TestError

MISSING = ("no-database", "no-nats", "no-tokens")
# The tag of an image that appears after its upgrade was abandoned.
LATE = "e2e-late"
# Time limit of Helm in seconds. The release never becomes ready.
TIMEOUT = 25


def install_without_secrets(system):
    """Events name each missing Secret, no container starts, and Helm removes all objects."""
    installation, cluster, report = system.installation, system.cluster, system.report
    started, name = time.monotonic(), "svc-without-secrets"
    keys = ("database.existingSecret", "nats.existingSecret", "secrets.existingSecret")
    options = [word for pair in zip(keys, MISSING) for word in ("--set", "=".join(pair))]
    expect_failure(
        lambda: installation.release(
            "install", PRESENT, *options, "--set", "ingress.enabled=false", "--atomic", name=name, seconds=TIMEOUT
        ),
        report, "installing without Secrets",
    )  # fmt: skip
    messages = " ".join(event["message"] for event in cluster.get("events")["items"])
    for secret in MISSING:
        if f'secret "{secret}" not found' not in messages:
            report.fail(f"no event reports the missing Secret {secret}")
    started_containers = [event for event in cluster.get("events")["items"] if belongs(event, name, "Started")]
    if started_containers:
        report.fail(f"a container started without Secrets: {started_containers[0]['message']}")
    kinds = "deployments,jobs,services,serviceaccounts,networkpolicies,poddisruptionbudgets,configmaps,secrets,ingresses"
    remaining = cluster.get(kinds, "--selector", f"app.kubernetes.io/instance={name}")["items"]
    if remaining:
        report.fail(f"objects of the failed installation remain: {[each['metadata']['name'] for each in remaining]}")
    report.step("install without Secrets", started, f"rejected; the events name {', '.join(MISSING)}; no objects remain")


def upgrade_on_another_version(system):
    """Under load: the schema does not support the build, and the streams have too few replicas. After the repair, the same upgrade runs the
    migrations again."""
    installation, cluster = system.installation, system.cluster
    table = "identity.schema_migrations"

    def upgrade():
        sql(
            cluster,
            f"insert into {table} (version, description, success, checksum, execution_time)"
            f" select max(version) + 2, 'of the future', true, '', 0 from {table}",
        )
        expect_failure(
            lambda: installation.release(
                "upgrade", PRESENT, "--set", "nats.stream.replicas=3", seconds=TIMEOUT
            ),
            system.report, "upgrading on another version",
        )  # fmt: skip
        outputs = [termination_message(cluster, "identity-migration"), cluster.log_of_new("ingest")]
        expected = ("but this binary was built for", "num_replicas: expected at least 3")
        for sentence, output in zip(expected, outputs):
            if sentence not in output:
                system.report.fail(f"expected {sentence!r} in {output[-300:]!r}")
        sql(cluster, f"delete from {table} where description = 'of the future'")
        installation.release("upgrade", PRESENT)
        return "rejected with the cause; after the repair, the upgrade ran the failed migration again"

    system.disturb("upgrade on a schema and stream of another version", upgrade)


def upgrade_with_leftover_job(system):
    """A Job with the name of the next migration is left, as after a failed upgrade, `helm uninstall` and a new installation."""
    installation, cluster, started = system.installation, system.cluster, time.monotonic()
    upgrade = ("upgrade", cluster.release, installation.chart(PRESENT), *installation.values_options(PRESENT))
    rendered = cluster.helm(*upgrade, "--dry-run=server")
    name = re.search(r"^  name: (\S+-identity-migrate-\w+)$", rendered, re.M)[1]
    # A copy of a Job of this release that never completes.
    existing = cluster.get("jobs")["items"][0]
    template = {"spec": existing["spec"]["template"]["spec"]}
    metadata = {"name": name, **{key: existing["metadata"][key] for key in ("annotations", "labels")}}
    cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": True, "template": template}})
    installation.release("upgrade", PRESENT, seconds=60)
    cluster.kubectl("delete", "job", name)
    system.report.step("upgrade with a Job of an earlier installation", started, "ran the migrations")


def upgrade_after_abandoned_one(system):
    """An upgrade to an image that the registry does not have is abandoned. Later the image is there. Its migration does not run."""
    installation, cluster, started = system.installation, system.cluster, time.monotonic()
    component = "app.kubernetes.io/component=identity-migration"
    before = job_names(cluster, component)
    expect_failure(
        lambda: installation.release("upgrade", PRESENT, "--set", f"image.tag={LATE}", seconds=TIMEOUT),
        system.report, "an upgrade to an image that does not exist",
    )  # fmt: skip
    (abandoned,) = job_names(cluster, component) - before
    # Helm forgets the Job, so that Kubernetes must delete it after `helm uninstall`.
    if [each["kind"] for each in cluster.get("job", abandoned)["metadata"].get("ownerReferences", [])] != ["ServiceAccount"]:
        system.report.fail(f"the Job {abandoned} has no owner and would remain after helm uninstall")
    installation.release("upgrade", PRESENT)
    load_programs(installation.work, system.report, LATE, image.ROOT, ["svc-identity"], "the image of the abandoned upgrade")
    # kubelet tries at most five minutes later to start the container.
    cluster.kubectl("wait", "--for=condition=complete", "--timeout=360s", f"job/{abandoned}")
    output = cluster.kubectl("logs", f"job/{abandoned}")
    if "no migration runs, because the current release has another Job" not in output:
        system.report.fail(f"the migration of an abandoned upgrade ran: {output[-300:]!r}")
    cluster.kubectl("delete", "job", abandoned)
    system.report.step("upgrade after an abandoned one", started, "the late Job of the abandoned upgrade ran no migration")


def job_names(cluster, selector):
    return {each["metadata"]["name"] for each in cluster.get("jobs", "--selector", selector)["items"]}


def expect_failure(action, report, name):
    try:
        action()
    except TestError:
        return
    report.fail(f"{name} succeeded unexpectedly")


def belongs(event, release, reason):
    return event["reason"] == reason and event["involvedObject"]["name"].startswith(f"{release}-")


def termination_message(cluster, component):
    """Returns the termination messages of the containers of a component."""
    messages = [
        status["state"]["terminated"].get("message", "")
        for pod in cluster.pods(component)
        for status in pod["status"].get("containerStatuses", [])
        if "terminated" in status["state"]
    ]
    return " ".join(messages)


def sql(cluster, statement):
    address = cluster.secret("svc-database", "identity-migrator-url")
    cluster.kubectl("exec", "deployment/postgres", "--", "psql", address, "--quiet", "--command", statement)
