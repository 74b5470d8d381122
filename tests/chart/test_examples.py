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
        for source in (chart.case("production example"), documents("cloudnative-pg.yaml"), documents("nats-values.yaml")):
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
        self.assertEqual(monitor["selector"]["matchLabels"], {"cnpg.io/cluster": "svc-postgres"})


    def test_the_documented_recovery_reads_the_archive_of_the_cluster_and_has_another_name(self):
        (block,) = re.findall(r"```yaml\n(.*?)```", (chart.ROOT / "docs/postgres.md").read_text(), re.DOTALL)
        recovered = chart.yaml.load(block, chart.LOADER)
        (origin,) = recovered["spec"]["externalClusters"]
        recovery, (plugin,) = recovered["spec"]["bootstrap"]["recovery"], self.cluster["plugins"]
        self.assertEqual((recovery["source"], recovery["database"]), (origin["name"], self.cluster["bootstrap"]["initdb"]["database"]))
        parameters = {**plugin["parameters"], "serverName": "svc-postgres"}
        self.assertEqual(origin["plugin"], {"name": plugin["name"], "parameters": parameters})
        self.assertNotEqual(recovered["metadata"]["name"], "svc-postgres")

    def test_alerts_fit_the_sizes_of_the_cluster(self):
        (rule,) = documents("postgres-alerts.yaml")
        expressions = {each["alert"]: each["expr"].strip() for each in rule["spec"]["groups"][0]["rules"]}
        self.assertTrue(expressions["PostgresStandbyMissing"].endswith(f"< {self.cluster['instances'] - 1}"))
        tenth = int(gibibytes(self.cluster["storage"]["size"]) / 10)
        self.assertTrue(expressions["PostgresSlotBehind"].endswith(f"> {tenth} * 1024 * 1024 * 1024"))
        self.assertEqual(set(expressions), set(POSTGRES_ALERTS))

    @unittest.skipUnless(test_monitoring.PROMTOOL, "promtool is not on this machine")
    def test_every_alert_fires_only_under_its_condition(self):
        (rule,) = documents("postgres-alerts.yaml")
        tests = []
        for alert, (firing, quiet, labels, summary) in POSTGRES_ALERTS.items():
            expected = {"exp_labels": {"namespace": "svc", **labels}, "exp_annotations": {"summary": summary}}
            for series, alerts in ((firing, [expected]), (quiet, [])):
                tests.append({
                    "interval": "1m",
                    "input_series": [{"series": name, "values": f"{value}x2400"} for name, value in series.items()],
                    "alert_rule_test": [{"eval_time": "40h", "alertname": alert, "exp_alerts": alerts}],
                })  # fmt: skip
        check_rules(self, rule, json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))


def check_rules(case, rule, test):
    """Evaluates the alerts of a PrometheusRule with the series of a test of promtool."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "rules.yaml").write_text(json.dumps(rule["spec"]))
        Path(directory, "test.yaml").write_text(test)
        for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "test.yaml"]):
            run = subprocess.run([test_monitoring.PROMTOOL, *arguments], cwd=directory, capture_output=True, text=True)
            case.assertEqual(run.returncode, 0, run.stdout + run.stderr)


def metric(name, **labels):
    """Returns a series of the first pod of the cluster."""
    named = {"namespace": "svc", "pod": "svc-postgres-1", **labels}
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in named.items()) + "}"


FREE, SIZE = (metric(f"kubelet_volume_stats_{name}_bytes", persistentvolumeclaim="svc-postgres-1") for name in ("available", "capacity"))
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
        {"severity": "critical", "pod": "svc-postgres-1", "persistentvolumeclaim": "svc-postgres-1"},
        "Less than 20 % of the volume svc-postgres-1 is free. Postgres stops when it is full.",
    ),
    "PostgresStandbyMissing": (
        {STANDBYS: 1}, {STANDBYS: 2}, {"severity": "warning"},
        "A standby of Postgres is missing. Without the last one, no write completes.",
    ),
    "PostgresArchiveFailing": (
        {FAILED: 200, ARCHIVED: 100}, {FAILED: 100, ARCHIVED: 200}, {"severity": "critical", "pod": "svc-postgres-1"},
        "svc-postgres-1 cannot archive its WAL. A restore loses the changes since then, and the WAL fills the volume.",
    ),
    # The clock of the test starts at 0.
    "PostgresBackupOld": (
        {BACKUP: 0}, {BACKUP: 5 * 3600}, {"severity": "warning"}, "The last base backup of Postgres is older than 36 hours.",
    ),
    "PostgresLongTransaction": (
        {TRANSACTION: 601}, {TRANSACTION: 599},
        {"severity": "warning", "pod": "svc-postgres-1", "usename": "reports", "application_name": "psql"},
        "A transaction of reports on svc-postgres-1 is older than ten minutes. It keeps deleted rows in all tables.",
    ),
    "PostgresSlotBehind": (
        {SLOT: 2 * 1024**3 + 1}, {SLOT: 2 * 1024**3 - 1}, {"severity": "warning", "slot_name": "cdc"},
        "The replication slot cdc keeps more than 2 GiB of WAL.",
    ),
    "PostgresTransactionIdsOld": (
        {AGE: 500_000_001}, {AGE: 499_999_999}, {"severity": "warning", "datname": "svc"},
        "The database svc has not been vacuumed for 500 million transactions.",
    ),
}  # fmt: skip

VOLUME_TEST = """
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'kubelet_volume_stats_available_bytes{namespace="svc", persistentvolumeclaim="nats-js-nats-0"}', values: '5x30'}
      - {series: 'kubelet_volume_stats_capacity_bytes{namespace="svc", persistentvolumeclaim="nats-js-nats-0"}', values: '100x30'}
      - {series: 'kubelet_volume_stats_available_bytes{namespace="svc", persistentvolumeclaim="nats-js-nats-1"}', values: '10x30'}
      - {series: 'kubelet_volume_stats_capacity_bytes{namespace="svc", persistentvolumeclaim="nats-js-nats-1"}', values: '100x30'}
    alert_rule_test:
      - eval_time: 20m
        alertname: NatsVolumeNearlyFull
        exp_alerts:
          - exp_labels: {severity: critical, namespace: svc, persistentvolumeclaim: nats-js-nats-0}
            exp_annotations:
              summary: "5% of the volume nats-js-nats-0 is free. On a full volume, NATS stores no event."
"""


class Nats(unittest.TestCase):
    @unittest.skipUnless(test_monitoring.PROMTOOL, "promtool is not on this machine")
    def test_alert_fires_for_a_volume_that_has_less_space_than_full_streams_leave(self):
        (rule,) = documents("nats-alerts.yaml")
        check_rules(self, rule, VOLUME_TEST)
        store = self.values["config"]["jetstream"]["fileStore"]
        left = 1 - gibibytes(store["maxSize"]) / gibibytes(store["pvc"]["size"])
        threshold = float(re.search(r"< (\S+)$", rule["spec"]["groups"][0]["rules"][0]["expr"].strip())[1])
        self.assertLess(threshold, left)

    def setUp(self):
        (self.values,) = documents("nats-values.yaml")

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
        used = set(re.findall(r"\$(SVC_NATS_\w+)", (chart.ROOT / "deploy/nats/accounts.conf").read_text()))
        self.assertEqual({name for name in self.values["container"]["env"] if name.startswith("SVC_")}, used)

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
