"""Generated files of the chart are up to date."""

import re
import subprocess
import sys
import unittest

import chart
import test_notes
import test_render

IPV6 = {"to": [{"ipBlock": {"cidr": "fd00:10:1::/48"}}]}


def documented():
    """Returns the required values of the README and those of the production example."""
    readme = (chart.CHART / "README.md").read_text()
    return chart.yaml.load(readme.split("```yaml\n")[1].split("```")[0], chart.LOADER), chart.MATRIX["production example"]


class Generated(unittest.TestCase):
    def test_schema_and_readme_are_up_to_date(self):
        run = subprocess.run(
            [sys.executable, chart.ROOT / "helm/generate.py", "--check"], capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_every_value_is_in_the_readme(self):
        readme = (chart.CHART / "README.md").read_text()
        for path in (
            "publicUrl",
            "ingress.tls",
            "identity.lifecycle.preStopSeconds",
            "ingest.lifecycle.terminationGracePeriodSeconds",
        ):
            self.assertIn(f"| `{path}` |", readme)

    def test_documented_values_show_no_warning(self):
        for values in documented():
            run = chart.template(values)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertNotIn("WARNING", test_notes.notes(values))

    def test_documented_values_render_with_both_stream_modes_and_ipv6(self):
        validators = test_render.Validators(test_render.versions()[test_render.OLDEST])
        networks = {
            "trustedProxyHops": 0,
            "trustedProxies": ["fd00:10:244:7::/64"],
            "networkPolicy": {"egress": {"enabled": True, **{name: [IPV6] for name in ("database", "nats", "mail")}}},
            "tests": {"hostAliases": [{"ip": "fd00:10:96::1", "hostnames": ["svc.example.com"]}]},
        }
        for values in documented():
            for mode in ("ensure", "verify"):
                both = chart.merged(values, {**networks, "nats": {"stream": {"mode": mode}}})
                objects = chart.render(both)
                for each in objects:
                    validators.of(each)(each)
                ingest = chart.named(objects, "Deployment", "svc-ingest")["spec"]["template"]["spec"]["containers"][0]
                env = {variable["name"]: variable.get("value") for variable in ingest["env"]}
                found = [env[name] for name in ("SVC_STREAM_MODE", "SVC_LISTEN", "SVC_TRUSTED_PROXIES")]
                self.assertEqual(found, [mode, "[::]:8080", "fd00:10:244:7::/64"])
                self.assertEqual("streams apply" in test_notes.notes(both), mode == "verify")

    def test_documented_settings_render_together(self):
        blocks = re.findall(r"```yaml\n(.*?)```", (chart.ROOT / "docs/kubernetes.md").read_text(), re.S)
        self.assertGreater(len(blocks), 1)
        values = {**chart.INGRESS, "openshift": True}
        for block in blocks:
            values = chart.merged(values, chart.yaml.load(block, chart.LOADER))
        objects = chart.render(values)
        self.assertEqual(len(chart.of_kind(objects, "BackendConfig")), 1)
        for job in chart.of_kind(objects, "Job", "Pod"):
            metadata = job["spec"]["template"]["metadata"] if job["kind"] == "Job" else job["metadata"]
            self.assertEqual(metadata["labels"]["sidecar.istio.io/inject"], "false")

    def test_chart_version_is_the_workspace_version(self):
        about = chart.yaml.load((chart.CHART / "Chart.yaml").read_text(), chart.LOADER)
        self.assertIn(f'\nversion = "{about["appVersion"]}"\n', (chart.ROOT / "Cargo.toml").read_text())
