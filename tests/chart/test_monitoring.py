"""Alerts fire under the right conditions and link to a runbook; dashboards are complete. live.py compares expressions with real metrics."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import chart
import monitoring

METRICS = (chart.ROOT / "docs/metrics.md").read_text()
PROMTOOL = chart.TOOLS.get("promtool")
TESTS = Path(__file__).with_name("alerts")
HEADINGS = ["## Meaning", "## Diagnosis", "## Action"]


def names_in(directory, suffix):
    return {path.name.removesuffix(suffix) for path in directory.iterdir()}


class Alerts(unittest.TestCase):
    def test_every_alert_has_a_file_a_runbook_and_a_test(self):
        alerts = {rule["alert"] for rule in monitoring.alerts()}
        self.assertEqual(alerts, names_in(chart.CHART / "alerts", ".yaml"))
        self.assertEqual(alerts, names_in(monitoring.RUNBOOKS, ".md"))
        self.assertEqual(alerts, names_in(TESTS, ".yaml"))

    def test_every_alert_has_a_severity_a_summary_and_a_runbook_url(self):
        for rule in monitoring.alerts():
            with self.subTest(rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
                self.assertEqual(set(rule["annotations"]), {"summary", "runbook_url"})
                self.assertEqual(
                    rule["annotations"]["runbook_url"], f"https://docs.example.com/svc/{rule['alert']}.md"
                )

    def test_documents_alerts_and_dashboards_name_existing_metrics(self):
        # A test compares the table of docs/metrics.md with the metrics of the running system.
        table = re.findall(r"^\| `(svc_\w+)` ", (chart.ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
        suffixes = ("", "_bucket", "_count", "_sum")
        metrics = {name + suffix for name in table for suffix in suffixes}
        # Metric names have two words or more; tokens and two roles of Postgres begin with one of these.
        tokens = {"svc_identity_migrator", "svc_session_migrator", "svc_st_", "svc_iv_", "svc_pt_", "svc_ak_", "svc_rt_", "svc_dc_", "svc_ch_"}
        pages = [*chart.ROOT.glob("*.md"), *chart.ROOT.glob("docs/**/*.md"), *(chart.CHART / "alerts").iterdir()]
        for page in [*pages, *(chart.CHART / "dashboards").iterdir()]:
            named = {name for name in re.findall(r"\bsvc_[a-z]+_[a-z_]*\b", page.read_text())}
            with self.subTest(page.name):
                self.assertFalse({name for name in named - metrics if not name.startswith(tuple(tokens))})

    def test_every_runbook_has_the_same_headings(self):
        for page in monitoring.RUNBOOKS.iterdir():
            lines = page.read_text().splitlines()
            with self.subTest(page.name):
                self.assertEqual(lines[0], f"# {page.stem}")
                self.assertEqual([line for line in lines if line.startswith("## ")], HEADINGS)

    def test_every_enabled_component_has_an_alert_for_its_absence(self):
        cases = (
            ({}, set(chart.COMPONENTS)),
            (chart.MATRIX["ingest alone"], {"ingest"}),
            ({"operator": {"enabled": True}}, {*chart.COMPONENTS, "operator"}),
        )
        for values, expected in cases:
            objects = chart.render({**values, **monitoring.alone({})})
            (group,) = chart.named(objects, "PrometheusRule", "svc")["spec"]["groups"]
            watched = {rule["labels"]["process"] for rule in group["rules"] if rule["alert"] == "SvcDown"}
            self.assertEqual(watched, expected)

    def test_alerts_without_the_address_of_the_runbooks_have_no_link(self):
        objects = chart.render(monitoring.alone({}))
        (group,) = chart.named(objects, "PrometheusRule", "svc")["spec"]["groups"]
        self.assertEqual({name for rule in group["rules"] for name in rule["annotations"]}, {"summary"})

    def test_the_documented_command_writes_the_rules_of_the_chart(self):
        (block,) = [each for each in re.findall(r"```sh\n(.*?)```", METRICS, re.DOTALL) if "svc-rules.yaml" in each]
        command = block.removesuffix("promtool check rules svc-rules.yaml\n").replace("> svc-rules.yaml", "")
        self.assertNotIn("svc-rules.yaml", command)
        run = subprocess.run(["sh", "-c", command], cwd=chart.ROOT, capture_output=True, text=True, check=True)
        objects = chart.render(monitoring.alone({"runbookUrl": re.search(r"runbooks=(\S+)", block)[1]}))
        expected = json.dumps(chart.named(objects, "PrometheusRule", "svc")["spec"]).replace(monitoring.NAMESPACE, "svc")
        self.assertEqual(chart.yaml.load(run.stdout, chart.LOADER), json.loads(expected))

    @unittest.skipUnless(PROMTOOL, "promtool is not on this machine")
    def test_the_documented_configuration_adds_the_labels_of_a_pod_monitor(self):
        (block,) = [each for each in re.findall(r"```yaml\n(.*?)```", METRICS, re.DOTALL) if "scrape_configs" in each]
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "svc-rules.yaml").write_text(json.dumps(monitoring.rules()))
            Path(directory, "prometheus.yaml").write_text(block)
            self.promtool(directory, "check", "config", "prometheus.yaml")
        (job,) = chart.yaml.load(block, chart.LOADER)["scrape_configs"]
        self.assertEqual({tuple(each["labels"]) for each in job["static_configs"]}, {("namespace", "pod")})

    def test_disabled_alert_is_omitted(self):
        objects = chart.render(monitoring.alone({"disabled": ["SvcHighLatency"]}))
        (group,) = chart.named(objects, "PrometheusRule", "svc")["spec"]["groups"]
        rendered = {rule["alert"] for rule in group["rules"]}
        self.assertEqual(names_in(chart.CHART / "alerts", ".yaml") - rendered, {"SvcHighLatency"})

    @unittest.skipUnless(PROMTOOL, "promtool is not on this machine")
    def test_every_alert_fires_only_under_its_condition(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "rules.yaml").write_text(json.dumps(monitoring.rules()))
            for test in TESTS.iterdir():
                Path(directory, test.name).write_text(test.read_text())
            self.promtool(directory, "check", "rules", "rules.yaml")
            for test in sorted(TESTS.iterdir()):
                with self.subTest(test.stem):
                    text = test.read_text()
                    self.assertIn("exp_labels:", text, "no case in which the alert fires")
                    self.assertIn("exp_alerts: []", text, "no case in which the alert does not fire")
                    self.assertEqual({test.stem}, set(re.findall(r"alertname: (\w+)", text)))
                    self.promtool(directory, "test", "rules", test.name)

    def promtool(self, directory, *arguments):
        run = subprocess.run([PROMTOOL, *arguments], cwd=directory, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


class Dashboards(unittest.TestCase):
    def test_every_dashboard_is_a_config_map_that_the_sidecar_selects(self):
        found = monitoring.config_maps()
        texts = {name: text for each in found for name, text in each["data"].items()}
        files = {f"svc-{path.name}": path.read_text().strip() for path in (chart.CHART / "dashboards").iterdir()}
        self.assertEqual(texts, files)
        self.assertEqual({each["metadata"]["annotations"]["grafana_folder"] for each in found}, {"svc"})

    def test_every_dashboard_has_a_unique_uid_and_queries_the_selected_source_and_namespace(self):
        dashboards = dict(monitoring.dashboards())
        self.assertEqual(len({each["uid"] for each in dashboards.values()}), len(dashboards))
        for name, dashboard in dashboards.items():
            variables = [variable["name"] for variable in dashboard["templating"]["list"]]
            self.assertEqual(variables, ["datasource", "namespace"], name)
            for panel in dashboard["panels"]:
                with self.subTest(f"{name}: {panel['title']}"):
                    self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"})
                    for target in panel["targets"]:
                        selectors = monitoring.SELECTOR.findall(target["expr"])
                        self.assertTrue(selectors)
                        for metric, matchers in selectors:
                            self.assertIn(("namespace", "=", "$namespace"), monitoring.matchers(matchers), metric)

    def test_panels_do_not_overlap(self):
        for name, dashboard in monitoring.dashboards():
            taken = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertLessEqual(at["x"] + at["w"], 24, f"{name}: {panel['title']}")
                self.assertFalse(cells & taken, f"{name}: {panel['title']} overlaps another panel")
                taken |= cells

    def test_alerts_in_dashboards_exist(self):
        known = {rule["alert"] for rule in monitoring.alerts()}
        named = {word for _, each in monitoring.dashboards() for word in re.findall(r"\bSvc\w+", json.dumps(each))}
        self.assertTrue(named)
        self.assertLessEqual(named, known)
