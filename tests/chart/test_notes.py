"""NOTES.txt: `helm template` does not render it, so a copy of the chart renders it as an object."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import chart


def notes(over):
    """Returns the notes for the required values, overridden with `over`."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "svc")
        shutil.copytree(chart.CHART, copy)
        text = (copy / "templates/NOTES.txt").read_text()
        (copy / "templates/_notes.tpl").write_text('{{- define "notes" -}}' + text + "{{- end -}}")
        (copy / "templates/notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | quote }}\n')
        objects = chart.render(over, "--show-only", "templates/notes.yaml", folder=copy)
    return objects[0]["text"]


class Notes(unittest.TestCase):
    def test_show_the_address_and_the_commands_for_the_first_administrator(self):
        text = notes({**chart.INGRESS, **chart.PUBLIC_FROM})
        self.assertIn("Address: https://svc.example.com\n", text)
        self.assertIn("svc tenants create", text)
        self.assertIn("""-o 'go-template={{ index .data "platform-token" | base64decode }}'""", text)
        self.assertNotIn("WARNING", text)

    def test_show_the_body_size_that_the_proxy_must_accept(self):
        for route in (chart.INGRESS, chart.GATEWAY):
            self.assertIn("10 MiB", notes(route))

    def test_warn_about_development_settings(self):
        text = notes(chart.MATRIX["development"])
        for warning in (
            "the services are not reachable from outside the cluster",
            "publicUrl is not https",
            "mails are written",
            "durability is dev",
        ):
            self.assertIn(f"WARNING: {warning}", text)
        for component in chart.COMPONENTS:
            self.assertIn(f"WARNING: {component} has 1 pod", text)

    def test_show_the_sum_of_database_connections(self):
        scaled = {"identity": {"autoscaling": {"enabled": True, "maxReplicas": 12}}, "session": {"replicas": 3}}
        # (12 + 1) * 10, (3 + 1) * 10, and one for each of the two migrations.
        self.assertIn("up to 172 connections to Postgres, 10 each", notes({"database": {"connections": 10}, **scaled}))
        self.assertNotIn("Postgres", notes(chart.MATRIX["ingest alone"]))

    def test_warn_if_alerts_have_no_link_to_their_runbooks(self):
        monitoring = {"podMonitor": {"enabled": True}, "alerts": {"enabled": True}}
        values = {"monitoring": monitoring, "networkPolicy": {"adminFrom": [{"namespaceSelector": {}}]}}
        warning = "WARNING: the alerts have no link to their runbooks"
        self.assertIn(warning, notes(values))
        self.assertNotIn(warning, notes(chart.merged(values, {"monitoring": {"alerts": {"runbookUrl": "https://docs.example.com/svc"}}})))

    def test_show_how_to_check_that_a_gateway_accepted_the_route(self):
        self.assertIn("get httproute svc -o", notes(chart.GATEWAY))
        self.assertNotIn("httproute", notes(chart.INGRESS))

    def test_of_a_trial_do_not_mention_its_connections(self):
        text = notes(chart.TRIAL)
        self.assertNotIn("max_connections", text)
        self.assertNotRegex(text, r"[^\n]\nWARNING")

    def test_read_the_platform_token_from_its_key(self):
        self.assertIn('index .data "PLATFORM"', notes(chart.MATRIX["other keys"]))

    def test_warn_if_any_pod_reaches_a_routed_service(self):
        for route in (chart.INGRESS, chart.GATEWAY):
            self.assertIn("WARNING: any pod within trustedProxies can choose its client address", notes(route))
        self.assertNotIn("any pod within trustedProxies", notes({}))

    def test_show_how_to_create_the_streams_that_the_services_only_verify(self):
        verify = {"nats": {"stream": {"mode": "verify"}}}
        for service, user, file in (("ingest", "administrator", "admin-url"), ("identity", "audit-administrator", "audit-admin-url")):
            text = notes(verify)
            command = f"exec --stdin deployment/svc-{service} -- \\\n    /usr/bin/svc-{service} streams apply --nats-url-file /dev/stdin < {file}\n"
            self.assertIn(command, text)
            self.assertIn(f"of the user {user} in the file {file}:", text)
            self.assertNotIn("svc-identity", notes(chart.merged(chart.MATRIX["ingest alone"], verify)))
        self.assertNotIn("streams apply", notes({}))

    def test_show_how_to_create_a_tenant_with_the_operator(self):
        text = notes({**chart.INGRESS, **chart.PUBLIC_FROM, "operator": {"enabled": True}})
        manifest = text.split("echo '")[1].split("'")[0]
        self.assertEqual(json.loads(manifest)["kind"], "SvcTenant")
        self.assertIn("kubectl --namespace there get secret svc-invite-acme", text)
        self.assertNotIn("SVC_PLATFORM_TOKEN", text)
        self.assertNotIn("WARNING", text)
        self.assertIn("WARNING: operator has 1 pod", notes({"operator": {"enabled": True, "replicas": 1}}))

    def test_are_empty_if_the_chart_is_disabled(self):
        self.assertEqual(notes({"enabled": False}).strip(), "")

    def test_warn_if_network_policies_are_disabled(self):
        self.assertIn("WARNING: network policies are disabled", notes({"networkPolicy": {"enabled": False}}))
