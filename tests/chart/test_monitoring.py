"""Alerts fire when they must and lead to a page; dashboards are whole. What they ask is compared with real metrics by live.py."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import chart
import monitoring

PROMTOOL = chart.TOOLS.get("promtool")
TESTS = Path(__file__).with_name("alerts")
HEADINGS = ["## Meaning", "## Diagnosis", "## Action"]


def names_in(directory, suffix):
    return {path.name.removesuffix(suffix) for path in directory.iterdir()}


class Alerts(unittest.TestCase):
    def test_each_is_a_file_with_a_page_and_a_test(self):
        alerts = {rule["alert"] for rule in monitoring.alerts()}
        self.assertEqual(alerts, names_in(chart.CHART / "alerts", ".yaml"))
        self.assertEqual(alerts, names_in(monitoring.RUNBOOKS, ".md"))
        self.assertEqual(alerts, names_in(TESTS, ".yaml"))

    def test_each_says_how_bad_it_is_what_happens_and_where_to_read_on(self):
        for rule in monitoring.alerts():
            with self.subTest(rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
                self.assertEqual(set(rule["annotations"]), {"summary", "runbook_url"})
                self.assertEqual(
                    rule["annotations"]["runbook_url"], f"https://docs.example.com/svc/{rule['alert']}.md"
                )

    def test_each_page_says_what_it_means_how_to_look_and_what_to_do(self):
        for page in monitoring.RUNBOOKS.iterdir():
            lines = page.read_text().splitlines()
            with self.subTest(page.name):
                self.assertEqual(lines[0], f"# {page.stem}")
                self.assertEqual([line for line in lines if line.startswith("## ")], HEADINGS)

    def test_every_component_that_is_installed_is_missed_when_it_is_away(self):
        for values, expected in (({}, set(chart.COMPONENTS)), (chart.MATRIX["ingest alone"], {"ingest"})):
            objects = chart.render({**values, "monitoring": {"alerts": {"enabled": True}}})
            (group,) = chart.named(objects, "PrometheusRule", "svc")["spec"]["groups"]
            missed = {rule["labels"]["process"] for rule in group["rules"] if rule["alert"] == "SvcDown"}
            self.assertEqual(missed, expected)

    def test_one_that_is_disabled_is_left_out(self):
        objects = chart.render({"monitoring": {"alerts": {"enabled": True, "disabled": ["SvcHighLatency"]}}})
        (group,) = chart.named(objects, "PrometheusRule", "svc")["spec"]["groups"]
        left = {rule["alert"] for rule in group["rules"]}
        self.assertEqual(names_in(chart.CHART / "alerts", ".yaml") - left, {"SvcHighLatency"})

    @unittest.skipUnless(PROMTOOL, "promtool is not on this machine")
    def test_each_fires_when_it_must_and_only_then(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "rules.yaml").write_text(json.dumps(monitoring.rules()))
            for test in TESTS.iterdir():
                Path(directory, test.name).write_text(test.read_text())
            self.promtool(directory, "check", "rules", "rules.yaml")
            for test in sorted(TESTS.iterdir()):
                with self.subTest(test.stem):
                    said = test.read_text()
                    self.assertIn("exp_labels:", said, "it never fires")
                    self.assertIn("exp_alerts: []", said, "it always fires")
                    self.assertEqual({test.stem}, set(re.findall(r"alertname: (\w+)", said)))
                    self.promtool(directory, "test", "rules", test.name)

    def promtool(self, directory, *arguments):
        run = subprocess.run([PROMTOOL, *arguments], cwd=directory, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


class Dashboards(unittest.TestCase):
    def test_each_file_comes_as_it_is_in_a_config_map_that_the_sidecar_finds(self):
        found = monitoring.config_maps()
        texts = {name: text for each in found for name, text in each["data"].items()}
        files = {f"svc-{path.name}": path.read_text().strip() for path in (chart.CHART / "dashboards").iterdir()}
        self.assertEqual(texts, files)
        self.assertEqual({each["metadata"]["annotations"]["grafana_folder"] for each in found}, {"svc"})

    def test_each_is_one_of_its_kind_and_asks_the_chosen_source_about_the_chosen_namespace(self):
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
                        for metric, asked in selectors:
                            self.assertIn(("namespace", "=", "$namespace"), monitoring.matchers(asked), metric)

    def test_panels_lie_beside_each_other(self):
        for name, dashboard in monitoring.dashboards():
            taken = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertLessEqual(at["x"] + at["w"], 24, f"{name}: {panel['title']}")
                self.assertFalse(cells & taken, f"{name}: {panel['title']} lies over another")
                taken |= cells

    def test_alerts_that_a_dashboard_names_exist(self):
        known = {rule["alert"] for rule in monitoring.alerts()}
        named = {word for _, each in monitoring.dashboards() for word in re.findall(r"\bSvc\w+", json.dumps(each))}
        self.assertTrue(named)
        self.assertLessEqual(named, known)
