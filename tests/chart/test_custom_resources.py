"""The custom resources of the chart and of the examples are valid for the definitions (CRDs) of their operators.

The definitions are in no package index: CRDS is a list of directories with copies. Without it, the test is skipped.
"""

import json
import os
import re
import unittest
from pathlib import Path

import fastjsonschema

import chart
import test_examples

CRDS = os.environ.get("CRDS", "").split()


class Loader(chart.LOADER):
    """Reads the text `=`, an operator of Alertmanager, as a string."""


Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def definitions():
    """Returns the schema of each custom resource by version and kind."""
    schemas = {}
    for path in (path for directory in CRDS for path in Path(directory).glob("*.yaml")):
        for each in chart.of_kind(chart.yaml.load_all(path.read_text(), Loader), "CustomResourceDefinition"):
            for version in each["spec"]["versions"]:
                key = f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"]
                schemas[key] = version["schema"]["openAPIV3Schema"]
    return schemas


def strict(schema):
    """Returns a schema of Kubernetes as a JSON Schema that rejects unknown fields. The API server drops them without an error."""
    schema = {key: value for key, value in schema.items() if key not in ("description", "default")}
    if "properties" in schema:
        schema["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = strict(schema[key])
    if schema.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    if "pattern" in schema:
        schema["pattern"] = portable(schema["pattern"])
    return schema


def portable(pattern):
    """Returns a regular expression of Go for Python: flags come first, and fastjsonschema replaces each `$`."""
    pattern = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace("$", r"\x24"), pattern)
    return "(?i)" + pattern.replace("(?i)", "") if "(?i)" in pattern else pattern


def custom_resources():
    """Yields each custom resource with its source."""
    sources = {name: chart.case(name) for name in (*chart.MATRIX, *chart.TRIALS)}
    examples = ("cloudnative-pg.yaml", "external-secrets.yaml", "nats-alerts.yaml", "postgres-alerts.yaml")
    sources |= {name: test_examples.documents(name) for name in examples}
    if test_examples.NATS_CHART:
        sources["nats-values.yaml"] = test_examples.nats_objects()
    for name, objects in sources.items():
        for each in objects:
            # Groups of Kubernetes have no dot, or end with k8s.io.
            group = each["apiVersion"].rpartition("/")[0]
            if "." in group and (not group.endswith(".k8s.io") or group.startswith("gateway.")):
                yield name, each


@unittest.skipUnless(CRDS, "CRDS is not set")
class CustomResources(unittest.TestCase):
    def test_are_valid_for_their_definitions(self):
        schemas, compiled = definitions(), {}
        for source, each in custom_resources():
            key = each["apiVersion"], each["kind"]
            with self.subTest(source=source, kind=each["kind"]):
                self.assertIn(key, schemas, "no directory of CRDS has its definition")
                if key not in compiled:
                    compiled[key] = fastjsonschema.compile(
                        strict(schemas[key]), use_default=False, use_formats=False, detailed_exceptions=False
                    )
                compiled[key](each)
        self.assertEqual(
            {kind for _, kind in compiled},
            {"HTTPRoute", "PodMonitor", "PrometheusRule", "ExternalSecret", "Cluster", "ObjectStore", "ScheduledBackup"},
        )
        unknown = json.loads(json.dumps(test_examples.documents("cloudnative-pg.yaml")[0]))
        unknown["spec"]["postgresql"]["parameter"] = {}
        with self.assertRaises(fastjsonschema.JsonSchemaException):
            compiled["postgresql.cnpg.io/v1", "Cluster"](unknown)
