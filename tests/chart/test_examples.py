"""The examples for Postgres, NATS and Secrets fit each other, the chart, and the software that they configure.

The chart of NATS is in no package index: NATS_CHART is the directory of a copy. Without it, its tests are skipped. test_custom_resources.py
checks the fields of the objects.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import chart
import test_monitoring
import test_notes
import test_render

EXAMPLES = chart.ROOT / "deploy/examples"
NATS_CHART = os.environ.get("NATS_CHART")


def documents(name):
    return [each for each in chart.yaml.load_all((EXAMPLES / name).read_text(), chart.LOADER) if each]


def secrets():
    """Returns the keys of each printed Secret."""
    run = subprocess.run([EXAMPLES / "print_secrets.py"], capture_output=True, text=True, check=True)
    return {each["metadata"]["name"]: each for each in json.loads(run.stdout)["items"]}


def named_secrets(value):
    """Yields the name and the keys of each reference to a Secret: in a volume, a variable, or a field of an object."""
    if isinstance(value, list):
        for each in value:
            yield from named_secrets(each)
    elif isinstance(value, dict):
        if "passwordSecret" in value:
            yield value["passwordSecret"]["name"], {"username", "password"}
        if "secret" in value and "items" in value["secret"]:
            # In a projected volume, or in a separate one.
            secret = value["secret"]
            yield secret.get("name") or secret["secretName"], {item["key"] for item in secret["items"]}
        if "secretKeyRef" in value:
            yield value["secretKeyRef"]["name"], {value["secretKeyRef"]["key"]}
        for each in value.values():
            yield from named_secrets(each)


# Certificates and the account of the mail server and of the bucket come from elsewhere.
FOREIGN = {"svc-postgres-ca", "svc-nats-tls", "svc-mail", "svc-postgres-backup"}


class Secrets(unittest.TestCase):
    def test_contain_every_key_that_the_examples_use(self):
        printed = {name: set(each["stringData"]) for name, each in secrets().items()}
        used = {}
        examples = ("cloudnative-pg.yaml", "nats-values.yaml", "nats-backup.yaml")
        for source in (chart.case("production example"), *map(documents, examples)):
            for name, keys in named_secrets(source):
                used.setdefault(name, set()).update(keys)
        self.assertEqual({name: keys for name, keys in used.items() if name not in FOREIGN}, printed)
        self.assertLessEqual({"svc-postgres-ca", "svc-nats-tls"}, set(used))

    def test_passwords_of_urls_roles_and_users_are_equal(self):
        printed = {name: each["stringData"] for name, each in secrets().items()}
        for key, url in printed["svc-database"].items():
            role = printed[f"svc-postgres-{key.removesuffix('-url')}"]
            self.assertEqual(url, f"postgres://{role['username']}:{role['password']}@svc-postgres-rw:5432/svc")
        for key, url in printed["svc-nats"].items():
            user = key.removesuffix("-url")
            self.assertEqual(url, f"nats://{user}:{printed['svc-nats-passwords'][user]}@nats:4222")

    def test_documented_rotations_write_existing_secrets_and_keys(self):
        printed = {name: set(each["stringData"]) for name, each in secrets().items()}
        written = set()
        for name in ("docs/kubernetes.md", "docs/postgres.md"):
            for users, commands in rotations((chart.ROOT / name).read_text()):
                patches = r"""printf '{"stringData": {"([^"]+)".*?kubectl patch secret (\S+) --namespace svc """
                for key, secret in re.findall(patches, commands, re.S):
                    written |= {(secret, key.replace("%s", user)) for user in users}
        unknown = {(secret, key) for secret, key in written if key not in printed[secret]}
        self.assertEqual(unknown, set())
        self.assertLessEqual({("svc-nats-passwords", user) for user in printed["svc-nats-passwords"]}, written)
        self.assertLessEqual({("svc-nats", key) for key in printed["svc-nats"]}, written)
        self.assertLessEqual({("svc-database", "session-url"), ("svc-postgres-session", "password")}, written)

    def test_the_documented_copy_has_every_secret_that_nothing_creates_again(self):
        text = (chart.ROOT / "docs/operations.md").read_text().replace("\\\n", "")
        (copied,) = re.findall(r"kubectl get secret ([^>]*?) --namespace svc --output yaml > svc-secrets.yaml", text)
        self.assertEqual(set(copied.split()), {*secrets(), "svc-mail", "svc-postgres-backup"})


class Monitors(unittest.TestCase):
    def test_have_the_labels_that_prometheus_selects_in_the_production_example(self):
        monitoring = chart.MATRIX["production example"]["monitoring"]
        labels = monitoring["podMonitor"]["labels"]
        self.assertEqual(monitoring["alerts"]["labels"], labels)
        objects = [each for path in EXAMPLES.glob("*.yaml") for each in documents(path.name) if each.get("kind") in ("PodMonitor", "PrometheusRule")]
        self.assertEqual(sorted(each["metadata"]["name"] for each in objects), ["nats", "svc-postgres", "svc-postgres"])
        for each in objects:
            self.assertEqual(each["metadata"].get("labels"), labels, each["kind"])
        (nats,) = documents("nats-values.yaml")
        self.assertEqual(nats["promExporter"]["podMonitor"]["merge"], {"metadata": {"labels": labels}})


def rotations(text):
    """Yields the blocks of commands of a page, each with the values of the variable of its loop."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        loop = re.search(r"for user in (.*?); do", block)
        yield loop[1].split() if loop else [""], block


class Scaling(unittest.TestCase):
    def test_the_documented_scaler_is_an_extra_object_and_its_query_reads_an_exposed_metric(self):
        blocks = re.findall(r"```yaml\n(.*?)```", (chart.ROOT / "docs/consumers.md").read_text(), re.DOTALL)
        (example,) = [chart.yaml.load(block, chart.LOADER) for block in blocks if "kind: ScaledObject" in block]
        rendered = chart.named(chart.render({"extraObjects": [example]}), "ScaledObject", "acme-siem")
        self.assertEqual(rendered, example)
        (trigger,) = rendered["spec"]["triggers"]
        (metric,) = re.findall(r"svc_\w+", trigger["metadata"]["query"])
        self.assertIn(f"| `{metric}` | gauge | `consumer` |", (chart.ROOT / "docs/metrics.md").read_text())


class Postgres(unittest.TestCase):
    def setUp(self):
        self.objects = documents("cloudnative-pg.yaml")
        self.cluster = chart.named(self.objects, "Cluster", "svc-postgres")["spec"]

    def test_accepts_the_connections_of_the_production_example(self):
        text = test_notes.notes(chart.MATRIX["production example"])
        needed = int(re.search(r"up to (\d+) connections", text)[1])
        self.assertIn(f"({needed} with values-production.yaml)", (EXAMPLES / "cloudnative-pg.yaml").read_text())
        # Some connections are for superusers, the operator and its exporter.
        self.assertGreater(int(self.cluster["postgresql"]["parameters"]["max_connections"]), needed + 20)

    def test_sets_the_password_of_every_role(self):
        listed = re.search(r"foreach name in array array\[(.*?)\]", (chart.ROOT / "deploy/postgres/roles.sql").read_text())[1]
        roles = {role["name"]: role for role in self.cluster["managed"]["roles"]}
        self.assertEqual(set(roles), set(re.findall(r"\w+", listed)))
        for name, role in roles.items():
            self.assertEqual(role["passwordSecret"]["name"], "svc-postgres-" + name.removeprefix("svc_").replace("_", "-"))
            # As in roles.sql.
            self.assertEqual((role["login"], role["inherit"]), (True, False))

    def test_chart_reads_the_secrets_of_the_roles_with_the_values_of_the_comment(self):
        text = (EXAMPLES / "cloudnative-pg.yaml").read_text()
        comment = re.search(r"#   database:\n(#     .*\n)+", text)[0]
        objects = chart.render(chart.yaml.load(re.sub("^# ", "", comment, flags=re.M), chart.LOADER))
        read = {(name, key) for name, keys in named_secrets(objects) for key in keys if name.startswith("svc-postgres")}
        roles = [role["passwordSecret"]["name"] for role in self.cluster["managed"]["roles"]]
        self.assertEqual(read, {(name, key) for name in roles for key in ("username", "password")})

    def test_runs_the_scripts_of_the_repository(self):
        initdb = self.cluster["bootstrap"]["initdb"]
        keys = [each["key"] for name in ("postInitSQLRefs", "postInitApplicationSQLRefs") for each in initdb[name]["configMapRefs"]]
        self.assertEqual(sorted(keys), sorted(path.name for path in (chart.ROOT / "deploy/postgres").iterdir()))

    def test_objects_refer_to_each_other(self):
        (plugin,) = self.cluster["plugins"]
        chart.named(self.objects, "ObjectStore", plugin["parameters"]["barmanObjectName"])
        backup = chart.named(self.objects, "ScheduledBackup", "svc-postgres")["spec"]
        self.assertEqual((backup["cluster"]["name"], backup["pluginConfiguration"]["name"]), ("svc-postgres", plugin["name"]))
        monitor = chart.named(self.objects, "PodMonitor", "svc-postgres")["spec"]
        # A label of the pods of every cluster, also of one with another name after a recovery.
        self.assertEqual(monitor["selector"], {"matchLabels": {"cnpg.io/podRole": "instance"}})

    def test_the_documented_recovery_reads_the_archive_of_the_cluster_and_has_another_name(self):
        _, recovered = self.documented_parts()
        (origin,) = recovered["spec"]["externalClusters"]
        recovery, (plugin,) = recovered["spec"]["bootstrap"]["recovery"], self.cluster["plugins"]
        self.assertEqual((recovery["source"], recovery["database"]), (origin["name"], self.cluster["bootstrap"]["initdb"]["database"]))
        parameters = {**plugin["parameters"], "serverName": "svc-postgres"}
        self.assertEqual(origin["plugin"], {"name": plugin["name"], "parameters": parameters})
        self.assertNotEqual(recovered["metadata"]["name"], "svc-postgres")

    def documented_parts(self):
        """Returns the second role and the recovered cluster of docs/postgres.md."""
        blocks = re.findall(r"```yaml\n(.*?)```", (chart.ROOT / "docs/postgres.md").read_text(), re.DOTALL)
        return [chart.yaml.load(block, chart.LOADER) for block in blocks]

    def test_the_documented_second_role_has_the_privileges_of_the_first_one(self):
        ((role,), _) = self.documented_parts()
        (first,) = role["inRoles"]
        self.assertIn(first, {each["name"] for each in self.cluster["managed"]["roles"]})
        self.assertEqual((role["name"], role["login"], role.get("inherit", True)), (f"{first}_2", True, True))
        created = f'"name": "{role["passwordSecret"]["name"]}", "labels": {{"cnpg.io/reload": "true"}}'
        self.assertIn(created, (chart.ROOT / "docs/postgres.md").read_text())

    def test_alerts_fit_the_sizes_of_the_cluster(self):
        (rule,) = documents("postgres-alerts.yaml")
        expressions = {each["alert"]: each["expr"].strip() for each in rule["spec"]["groups"][0]["rules"]}
        self.assertTrue(expressions["PostgresStandbyMissing"].endswith(f"< {self.cluster['instances'] - 1}"))
        tenth = int(gibibytes(self.cluster["storage"]["size"]) / 10)
        self.assertTrue(expressions["PostgresSlotBehind"].endswith(f"> {tenth} * 1024 * 1024 * 1024"))
        self.assertEqual(set(expressions), {"PostgresWithoutMetrics", *POSTGRES_ALERTS})

    @unittest.skipUnless(test_monitoring.PROMTOOL, "promtool is not on this machine")
    def test_every_alert_fires_only_under_its_condition_for_each_cluster_of_the_namespace(self):
        (rule,) = documents("postgres-alerts.yaml")
        nothing = {"severity": "critical", "namespace": "svc"}, "Prometheus has no metrics of Postgres."
        cases = [("PostgresWithoutMetrics", {}, nothing), ("PostgresWithoutMetrics", {UP: 1}, None)]
        for alert, (firing, quiet, labels, summary) in POSTGRES_ALERTS.items():
            first = {name.replace(CLUSTER, "svc-postgres"): value for name, value in quiet.items()}
            expected = {"namespace": "svc", **labels}, summary
            cases += [(alert, {**first, **firing}, expected), (alert, {**first, **quiet}, None)]
        labels, summary = POSTGRES_ALERTS["PostgresBackupOld"][2:]
        cases.append(("PostgresBackupOld", {UP: 1}, ({"namespace": "svc", **labels}, summary)))
        check_rules(self, rule, alert_tests(cases, "40h"))


def alert_tests(cases, time):
    """Returns a test of promtool. Each case has an alert, its series, and its labels and summary at this time if it fires then."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": f"{value}x2400"} for name, value in series.items()],
            "alert_rule_test": [{
                "eval_time": time, "alertname": alert,
                "exp_alerts": [{"exp_labels": expected[0], "exp_annotations": {"summary": expected[1]}}] if expected else [],
            }],
        }
        for alert, series, expected in cases
    ]  # fmt: skip
    return json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})


def check_rules(case, rule, test):
    """Evaluates the alerts of a PrometheusRule with the series of a test of promtool."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "rules.yaml").write_text(json.dumps(rule["spec"]))
        Path(directory, "test.yaml").write_text(test)
        for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "test.yaml"]):
            run = subprocess.run([test_monitoring.PROMTOOL, *arguments], cwd=directory, capture_output=True, text=True)
            case.assertEqual(run.returncode, 0, run.stdout + run.stderr)


# The cluster of the documented recovery, next to the one of the example.
CLUSTER = "svc-recovered"


def metric(name, **labels):
    """Returns a series of the first pod of the recovered cluster."""
    named = {"namespace": "svc", "pod": f"{CLUSTER}-1", **labels}
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in named.items()) + "}"


FREE, SIZE = (metric(f"kubelet_volume_stats_{name}_bytes", persistentvolumeclaim=f"{CLUSTER}-1-wal") for name in ("available", "capacity"))
UP = metric("cnpg_collector_up")
STANDBYS = metric("cnpg_pg_replication_streaming_replicas")
FAILED, ARCHIVED = (metric(f"cnpg_pg_stat_archiver_last_{name}_time") for name in ("failed", "archived"))
BACKUP = metric("barman_cloud_cloudnative_pg_io_last_available_backup_timestamp")
TRANSACTION = metric("cnpg_backends_max_tx_duration_seconds", usename="reports", application_name="psql")
SLOT = metric("cnpg_pg_replication_slots_pg_wal_lsn_diff", slot_name="cdc")
AGE = metric("cnpg_pg_database_xid_age", datname="svc")
# For each alert: series with which it fires after 40 hours, series with which it does not, its labels and its summary.
POSTGRES_ALERTS = {
    "PostgresVolumeNearlyFull": (
        {FREE: 19, SIZE: 100}, {FREE: 21, SIZE: 100},
        {"severity": "critical", "pod": f"{CLUSTER}-1", "persistentvolumeclaim": f"{CLUSTER}-1-wal"},
        f"Less than 20 % of the volume {CLUSTER}-1-wal is free. Postgres stops when it is full.",
    ),
    "PostgresStandbyMissing": (
        {STANDBYS: 1}, {STANDBYS: 2}, {"severity": "warning", "cluster": CLUSTER},
        f"A standby of {CLUSTER} is missing. Without the last one, no write completes.",
    ),
    "PostgresArchiveFailing": (
        {FAILED: 200, ARCHIVED: 100}, {FAILED: 100, ARCHIVED: 200}, {"severity": "critical", "pod": f"{CLUSTER}-1"},
        f"{CLUSTER}-1 cannot archive its WAL. A restore loses the changes since then, and the WAL fills the volume.",
    ),
    # The clock of the test starts at 0.
    "PostgresBackupOld": (
        {BACKUP: 0}, {BACKUP: 5 * 3600}, {"severity": "warning", "cluster": CLUSTER}, f"{CLUSTER} has no base backup of the last 36 hours.",
    ),
    "PostgresLongTransaction": (
        {TRANSACTION: 601}, {TRANSACTION: 599},
        {"severity": "warning", "pod": f"{CLUSTER}-1", "usename": "reports", "application_name": "psql"},
        f"A transaction of reports on {CLUSTER}-1 is older than ten minutes. It keeps deleted rows in all tables.",
    ),
    "PostgresSlotBehind": (
        {SLOT: 2 * 1024**3 + 1}, {SLOT: 2 * 1024**3 - 1}, {"severity": "warning", "pod": f"{CLUSTER}-1", "slot_name": "cdc"},
        f"The replication slot cdc of {CLUSTER}-1 keeps more than 2 GiB of WAL.",
    ),
    "PostgresTransactionIdsOld": (
        {AGE: 500_000_001}, {AGE: 499_999_999}, {"severity": "warning", "cluster": CLUSTER, "datname": "svc"},
        f"The database svc of {CLUSTER} has not been vacuumed for 500 million transactions.",
    ),
}  # fmt: skip

VOLUME = 'kubelet_volume_stats_{}_bytes{{namespace="svc", persistentvolumeclaim="nats-js-nats-{}"}}'
SERVER = 'nats_varz_mem{{namespace="svc", pod="nats-{}"}}'
REPLICA = 'nats_stream_last_seq{{namespace="svc", pod="nats-{}", account="events", stream_name="UDM"}}'
CONTAINER = 'kube_pod_container_status_ready{{namespace="svc", pod="nats-0", container="{}"}}'
BACKED_UP, CREATED = (
    f'kube_cronjob_{name}{{namespace="svc", cronjob="nats-backup"}}' for name in ("status_last_successful_time", "created")
)
# For each alert: series with which it fires after 38 hours, series with which it does not, its labels and its summary.
NATS_ALERTS = {
    "NatsVolumeNearlyFull": (
        {VOLUME.format("available", 0): "5", VOLUME.format("capacity", 0): "100", VOLUME.format("available", 1): "10", VOLUME.format("capacity", 1): "100"},
        {VOLUME.format("available", 1): "10", VOLUME.format("capacity", 1): "100"},
        {"severity": "critical", "namespace": "svc", "persistentvolumeclaim": "nats-js-nats-0"},
        "5% of the volume nats-js-nats-0 is free. On a full volume, NATS stores no event.",
    ),
    "NatsServerMissing": (
        {SERVER.format(0): "9", SERVER.format(2): "9"}, {SERVER.format(0): "9", SERVER.format(1): "9", SERVER.format(2): "9"},
        {"severity": "warning", "namespace": "svc"}, "2 of 3 nats-servers have metrics. Without two servers, no event is stored.",
    ),
    "NatsReplicaBehind": (
        {REPLICA.format(0): "0+60", REPLICA.format(1): "0+60", REPLICA.format(2): "0+30"},
        {REPLICA.format(0): "0+60", REPLICA.format(1): "-300+60", REPLICA.format(2): "0+60"},
        {"severity": "warning", "namespace": "svc", "pod": "nats-2", "account": "events", "stream_name": "UDM"},
        "nats-2 is more than ten minutes behind the other replicas of UDM.",
    ),
    "NatsContainerNotReady": (
        {CONTAINER.format("accounts"): "0", CONTAINER.format("nats"): "1"},
        {CONTAINER.format("accounts"): "1", CONTAINER.format("nats"): "1"},
        {"severity": "warning", "namespace": "svc", "pod": "nats-0", "container": "accounts"},
        "The container accounts of nats-0 is not ready. Without accounts and reloader, logins of consumers do not change, and none is suspended.",
    ),
    # The clock of the test starts at 0.
    "NatsBackupOld": (
        {BACKED_UP: "0", CREATED: "0"}, {BACKED_UP: "7200", CREATED: "0"},
        {"severity": "warning", "namespace": "svc", "cronjob": "nats-backup"},
        "NATS has no backup of the last 36 hours. The log of the last Job of the CronJob nats-backup shows why.",
    ),
}  # fmt: skip


class Nats(unittest.TestCase):
    def setUp(self):
        (self.values,) = documents("nats-values.yaml")
        (self.rule,) = documents("nats-alerts.yaml")
        self.expressions = {each["alert"]: each["expr"].strip() for each in self.rule["spec"]["groups"][0]["rules"]}

    def test_alerts_fit_the_number_and_the_volumes_of_the_servers(self):
        servers = self.values["config"]["cluster"]["replicas"]
        self.assertTrue(self.expressions["NatsServerMissing"].endswith(f" < {servers}"))
        store = self.values["config"]["jetstream"]["fileStore"]
        # Full streams leave more space.
        left = 1 - gibibytes(store["maxSize"]) / gibibytes(store["pvc"]["size"])
        threshold = float(re.search(r"< (\S+)$", self.expressions["NatsVolumeNearlyFull"])[1])
        self.assertLess(threshold, left)

    @unittest.skipUnless(test_monitoring.PROMTOOL, "promtool is not on this machine")
    def test_every_alert_fires_only_under_its_condition(self):
        self.assertEqual(set(self.expressions), set(NATS_ALERTS))
        cases = [case for alert, (firing, quiet, *expected) in NATS_ALERTS.items() for case in ((alert, firing, expected), (alert, quiet, None))]
        # No server has metrics.
        labels, summary = NATS_ALERTS["NatsServerMissing"][2:]
        cases.append(("NatsServerMissing", {}, (labels, summary.replace("2 of 3", "0 of 3"))))
        # The stream was created again less than ten minutes before.
        cases.append(("NatsReplicaBehind", {REPLICA.format(server): "0+60x2270 0+60" for server in range(3)}, None))
        # It was created again long before, and a replica is behind since.
        again = {REPLICA.format(0): "9000x2 0+60", REPLICA.format(1): "9000x2 0+60", REPLICA.format(2): "9000x2 0+30"}
        cases.append(("NatsReplicaBehind", again, NATS_ALERTS["NatsReplicaBehind"][2:]))
        # No backup has ever succeeded.
        cases.append(("NatsBackupOld", {CREATED: "0"}, NATS_ALERTS["NatsBackupOld"][2:]))
        check_rules(self, self.rule, alert_tests(cases, "38h"))

    def test_volume_holds_the_streams_of_the_production_example(self):
        limit = chart.MATRIX["production example"]["nats"]["stream"]["maxBytes"]
        # UDM, an eighth for each of UDM_DLQ and AUDIT, a 64th for AUDIT_ANONYMOUS (docs/streams.md).
        reserved = gibibytes(limit) * (1 + 1 / 8 + 1 / 8 + 1 / 64)
        store = self.values["config"]["jetstream"]["fileStore"]
        self.assertIn(f"reserve {reserved:.1f} GiB", (EXAMPLES / "nats-values.yaml").read_text())
        self.assertLess(reserved, gibibytes(store["maxSize"]))
        self.assertLess(gibibytes(store["maxSize"]), gibibytes(store["pvc"]["size"]))
        self.assertLessEqual(gibibytes(limit), 0.75 * gibibytes(store["maxSize"]))

    def test_memory_of_the_servers_is_bounded_below_the_limit_of_the_container(self):
        # With GOGC alone, the heap could grow to five times its live part.
        container = self.values["container"]
        self.assertLess(gibibytes(container["env"]["GOMEMLIMIT"]), gibibytes(container["merge"]["resources"]["limits"]["memory"]))

    def test_servers_get_the_password_of_every_user(self):
        accounts = (chart.ROOT / "deploy/nats/accounts.conf").read_text() + self.values["configMap"]["merge"]["data"]["consumers.conf"]
        used = set(re.findall(r"\$(SVC_NATS_\w+)", accounts))
        self.assertEqual({name for name in self.values["container"]["env"] if name.startswith("SVC_")}, used)

    def test_no_consumer_can_have_the_name_of_a_user(self):
        source = (chart.ROOT / "services/ingest/src/app/consumers.rs").read_text()
        reserved = re.search(r"SERVICE_USERS:[^=]*=\s*\[(.*?)\]", source, re.S)[1]
        self.assertEqual(set(re.findall(r'"([\w-]+)"', reserved)), set(secrets()["svc-nats-passwords"]["stringData"]))

    def test_documented_upgrades_have_the_options_of_the_installation(self):
        def command(text, verb):
            found = re.search(rf"helm {verb} nats .*?accounts\.conf'", re.sub(r"\\\n[# ]*", "", text), re.S)
            return found and found[0].replace(f"helm {verb}", "helm").replace(" --version '<version>'", "")

        installation = command((EXAMPLES / "nats-values.yaml").read_text(), "install")
        sections = (chart.ROOT / "docs/nats.md").read_text().split("\n## ")
        upgrades = {section.split("\n")[0]: command(section, "upgrade") for section in sections if "helm upgrade nats " in section}
        self.assertEqual(upgrades, {"Larger volumes": installation, "Upgrade": installation})

    def test_backup_keeps_the_last_complete_copy_of_three_days_and_deletes_none_for_a_much_smaller_one(self):
        job = chart.named(documents("nats-backup.yaml"), "CronJob", "nats-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (script,) = job["containers"][0]["args"]
        with tempfile.TemporaryDirectory() as home:
            # Fails for the account AUDIT if a file exists.
            fails = f"case $3 in */audit) test ! -e {home}/broken;; esac"
            for name, text in (
                ("nats", f'test "$1 $2" = "account backup"; {fails}; mkdir -p "$3/$NATS_USER-$NATS_PASSWORD"; cp {home}/size "$3"'),
                ("date", f"cat {home}/now"),
            ):
                Path(home, name).write_text(f"#!/bin/sh -e\n{text}\n")
                Path(home, name).chmod(0o755)
            Path(home, "backup").mkdir()
            passwords = {"NATS_USER": "administrator", "NATS_PASSWORD": "a", "AUDIT_PASSWORD": "b"}
            command = ["sh", "-ec", script.replace("/backup", f"{home}/backup")]
            environment = {"PATH": f"{home}:{os.environ['PATH']}", "HOSTNAME": "nats-backup-1", **passwords}

            def backup(time, size):
                Path(home, "now").write_text(time)
                Path(home, "size").write_bytes(b"x" * size)
                return subprocess.run(command, env=environment, capture_output=True, text=True)

            # That of another Job which runs, and that of one that was killed.
            other, killed = (Path(home, "backup", f"nats-backup-{name}.incomplete") for name in ("other", "killed"))
            for each in (other, killed):
                each.mkdir()
            os.utime(killed, (0, 0))
            times = [f"2026110{day}T013000Z" for day in range(1, 6)]
            # Several copies of a day count as one.
            for time in (*times, "20261105T080000Z", "20261105T090000Z", "20261105T100000Z"):
                run = backup(time, 900_000)
                self.assertEqual(run.returncode, 0, run.stderr)
            Path(home, "broken").touch()
            self.assertNotEqual(backup("20261106T013000Z", 900_000).returncode, 0)
            Path(home, "broken").unlink()
            kept = ["20261103T013000Z", "20261104T013000Z", "20261105T100000Z"]

            def copies():
                return sorted(path.name for path in Path(home, "backup").iterdir() if path != other)

            self.assertEqual(copies(), kept)
            self.assertTrue(other.exists())
            parts = sorted(str(path.relative_to(home)) for path in Path(home, "backup", kept[0]).glob("*/*-*"))
            self.assertEqual([part.split("Z/")[1] for part in parts], ["audit/audit-administrator-b", "udm/administrator-a"])
            # The streams are empty: of these copies, the last one remains next to the others.
            for day in (6, 7, 8, 9):
                time = f"2026110{day}T013000Z"
                run = backup(time, 100_000)
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertIn(f"rename {time}.smaller to {time}", run.stderr)
                self.assertEqual(copies(), [*kept, f"{time}.smaller"])
            Path(home, "backup", f"{time}.smaller").rename(Path(home, "backup", time))
            self.assertEqual(backup("20261110T013000Z", 100_000).returncode, 0)
            self.assertEqual(copies(), [kept[-1], time, "20261110T013000Z"])

    def test_the_volume_of_the_backup_holds_its_copies_of_full_streams(self):
        reserved = float(re.search(r"reserve ([\d.]+) GiB", (EXAMPLES / "nats-values.yaml").read_text())[1])
        claim = chart.named(documents("nats-backup.yaml"), "PersistentVolumeClaim", "nats-backup")["spec"]
        self.assertGreater(gibibytes(claim["resources"]["requests"]["storage"]), 4.5 * reserved)

    @unittest.skipUnless(NATS_CHART, "NATS_CHART is not set")
    def test_backup_has_the_image_of_the_command_line_of_the_chart(self):
        objects = documents("nats-backup.yaml")
        validators = test_render.Validators(test_render.versions()[test_render.OLDEST])
        for each in objects:
            validators.of(each)(each)
        job = chart.named(objects, "CronJob", "nats-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        box = chart.named(nats_objects(), "Deployment", "nats-box")["spec"]["template"]["spec"]
        self.assertEqual(job["containers"][0]["image"], box["containers"][0]["image"])

    @unittest.skipUnless(NATS_CHART, "NATS_CHART is not set")
    def test_documented_claims_are_those_of_the_servers(self):
        servers = chart.named(nats_objects(), "StatefulSet", "nats")["spec"]
        (claim,) = servers["volumeClaimTemplates"]
        names = [f"{claim['metadata']['name']}-nats-{number}" for number in range(servers["replicas"])]
        self.assertIn(f"for claim in {' '.join(names)}; do", (chart.ROOT / "docs/nats.md").read_text())

    @unittest.skipUnless(NATS_CHART, "NATS_CHART is not set")
    def test_chart_renders_objects_that_are_valid_for_kubernetes(self):
        validators = test_render.Validators(test_render.versions()[test_render.OLDEST])
        objects = nats_objects()
        for each in objects:
            if each["kind"] != "PodMonitor":
                with self.subTest(kind=each["kind"], name=each["metadata"]["name"]):
                    validators.of(each)(each)
        pod = chart.named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]
        keys = {each["topologyKey"] for each in pod["topologySpreadConstraints"]}
        self.assertEqual(keys, {"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
        for container in pod["containers"]:
            self.assertIs(container["securityContext"]["readOnlyRootFilesystem"], True, container["name"])
            self.assertIn("memory", container["resources"]["limits"], container["name"])
        self.assertEqual(set(dict(named_secrets(chart.of_kind(objects, "Pod", "Deployment")))), {"svc-nats-passwords"})
        keep = next(each for each in pod["containers"] if each["name"] == "accounts")
        self.assertEqual(keep["args"][:2], ["accounts", "keep"])
        server = next(each for each in pod["containers"] if each["name"] == "nats")
        monitor = next(port["containerPort"] for port in server["ports"] if port["name"] == "monitor")
        self.assertEqual(keep["args"][-2:], ["--monitor", f"http://127.0.0.1:{monitor}"])
        self.assertIs(pod["shareProcessNamespace"], True)

    @unittest.skipUnless(NATS_CHART, "NATS_CHART is not set")
    def test_reloader_watches_every_file_of_the_configuration(self):
        objects = nats_objects()
        pod = chart.named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]
        (reloader,) = [each for each in pod["containers"] if each["name"] == "reloader"]
        files = chart.named(objects, "ConfigMap", "nats-config")["data"]
        self.assertEqual(set(files), {"nats.conf", "accounts.conf", "consumers.conf"})
        self.assertLessEqual({f"/etc/nats-config/{name}" for name in files}, set(reloader["args"]))

    @unittest.skipUnless(NATS_CHART, "NATS_CHART is not set")
    def test_server_accepts_the_rendered_configuration(self):
        objects = nats_objects()
        with tempfile.TemporaryDirectory() as home:
            run = subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=nats",
                 "-keyout", f"{home}/tls.key", "-out", f"{home}/tls.crt"], capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(run.returncode, 0, run.stderr)
            Path(home, "ca.crt").write_bytes(Path(home, "tls.crt").read_bytes())
            for name, text in chart.named(objects, "ConfigMap", "nats-config")["data"].items():
                text = text.replace("../nats-accounts", "accounts")
                Path(home, name).write_text(re.sub(r"/etc/nats-(ca-cert|certs/\w+)|/data|/var/run/nats", home, text))
            Path(home, "accounts").mkdir()
            Path(home, "accounts/consumers.conf").write_bytes((chart.ROOT / "deploy/nats/consumers.conf").read_bytes())
            passwords = secrets()["svc-nats-passwords"]["stringData"]
            environment = {f"SVC_NATS_{user.upper().replace('-', '_')}_PASSWORD": password for user, password in passwords.items()}
            environment["SERVER_NAME"] = "nats-0"
            checked = subprocess.run(
                [chart.TOOLS["nats_server"], "-t", "-c", f"{home}/nats.conf"], env=environment, capture_output=True, text=True
            )
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


def nats_objects():
    """Returns the objects that the command of the example installs."""
    files = [f"--set-file=configMap.merge.data.accounts\\.conf={chart.ROOT}/deploy/nats/accounts.conf"]
    options = ["--namespace", "svc", "--values", EXAMPLES / "nats-values.yaml", "--kube-version", test_render.OLDEST]
    run = chart.helm("template", "nats", NATS_CHART, *options, *files)
    assert run.returncode == 0, run.stderr
    return [each for each in chart.yaml.load_all(run.stdout, chart.LOADER) if each]


def gibibytes(size):
    number, unit = re.match(r"(\d+)([MGT])iB?$", size).groups()
    return int(number) * {"M": 1 / 1024, "G": 1, "T": 1024}[unit]
