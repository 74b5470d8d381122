"""What Helm tells after an installation: `helm template` leaves it out, so a copy of the chart renders it as an object."""

import shutil
import tempfile
import unittest
from pathlib import Path

import chart


def notes(over):
    """The notes for the least values with others over them."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "svc")
        shutil.copytree(chart.CHART, copy)
        text = (copy / "templates/NOTES.txt").read_text()
        (copy / "templates/_notes.tpl").write_text('{{- define "notes" -}}' + text + "{{- end -}}")
        (copy / "templates/notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | quote }}\n')
        objects = chart.render(over, "--show-only", "templates/notes.yaml", folder=copy)
    return objects[0]["text"]


class Notes(unittest.TestCase):
    def test_they_say_the_address_and_how_to_get_the_first_administrator(self):
        said = notes(chart.INGRESS)
        self.assertIn("Address: https://svc.example.com\n", said)
        self.assertIn("svc tenants create", said)
        self.assertIn("""-o 'go-template={{ index .data "platform-token" | base64decode }}'""", said)
        self.assertNotIn("WARNING", said)

    def test_they_name_the_size_of_bodies_that_the_proxy_must_let_through(self):
        for door in (chart.INGRESS, chart.GATEWAY):
            self.assertIn("10 MiB", notes(door))

    def test_they_warn_of_what_is_only_for_development(self):
        said = notes(chart.MATRIX["development"])
        for warning in (
            "nothing outside the cluster",
            "publicUrl is not https",
            "mails are written",
            "durability is dev",
        ):
            self.assertIn(f"WARNING: {warning}", said)
        for component in chart.COMPONENTS:
            self.assertIn(f"WARNING: {component} has 1 pod", said)

    def test_they_warn_when_no_policy_guards_the_internal_api(self):
        self.assertIn("WARNING: without network policies", notes({"networkPolicy": {"enabled": False}}))
