"""Generated files of the chart are up to date."""

import subprocess
import sys
import unittest

import chart
import test_notes


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

    def test_required_values_of_the_readme_and_the_production_example_show_no_warning(self):
        readme = (chart.CHART / "README.md").read_text()
        required = chart.yaml.load(readme.split("```yaml\n")[1].split("```")[0], chart.LOADER)
        for values in (required, chart.MATRIX["production example"]):
            run = chart.template(values)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertNotIn("WARNING", test_notes.notes(values))

    def test_chart_version_is_the_workspace_version(self):
        about = chart.yaml.load((chart.CHART / "Chart.yaml").read_text(), chart.LOADER)
        self.assertIn(f'\nversion = "{about["appVersion"]}"\n', (chart.ROOT / "Cargo.toml").read_text())
