"""Every value of values.schema.json: none can be null or missing, and each reaches the objects with the type and the digits of the values file."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import chart
import test_operator
import test_render

SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())
DEFAULTS = chart.yaml.load((chart.CHART / "values.yaml").read_text(), chart.LOADER)


def resolved(schema):
    """Returns a schema without its reference to a definition."""
    for reference in (schema, *schema.get("allOf", [])):
        if "$ref" in reference:
            return SCHEMA["$defs"][reference["$ref"].removeprefix("#/$defs/")]
    return schema


def keys(schema, path=()):
    """Yields the path and the schema of each key of the values."""
    if schema.get("additionalProperties") is False:
        for key, below in schema.get("properties", {}).items():
            if below.get("allOf") != [{"$ref": "#/$defs/resources"}]:
                yield (*path, key), resolved(below)
                yield from keys(resolved(below), (*path, key))
            else:
                yield (*path, key), resolved(below)


KEYS = dict(keys(SCHEMA))


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


def at(values, path):
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def is_named(message, path):
    """Returns whether the error of Helm 3 or 4 names a required key."""
    parent = ".".join(path[:-1])
    helm_3 = f"- {parent or '(root)'}: {path[-1]} is required"
    helm_4 = rf"- at '/?{'/'.join(path[:-1])}': missing propert[^\n]*'{path[-1]}'"
    return helm_3 in message or bool(re.search(helm_4, message))


def strings(values, path=()):
    """Yields the path and the schema of each string in values that has no fixed form."""
    for key, value in values.items():
        schema = KEYS.get((*path, key), {})
        if isinstance(value, dict):
            yield from strings(value, (*path, key))
        elif isinstance(value, str) and value and "enum" not in schema:
            yield (*path, key), schema


def texts(objects):
    """Yields each string of the objects."""
    if isinstance(objects, dict):
        for key, value in objects.items():
            yield from (key, *texts(value))
    elif isinstance(objects, list):
        for value in objects:
            yield from texts(value)
    elif isinstance(objects, str):
        yield objects


class Values(unittest.TestCase):
    def test_null_is_one_clear_error_for_every_key(self):
        self.assertGreater(len(KEYS), 300)
        for depth in range(1, 1 + max(map(len, KEYS))):
            of_depth = [path for path in KEYS if len(path) == depth]
            values = {}
            for path in of_depth:
                values = chart.merged(values, nested(path, None))
            run = chart.template(values)
            self.assertNotEqual(run.returncode, 0, depth)
            self.assertNotIn("nil pointer", run.stderr)
            self.assertEqual([path for path in of_depth if not is_named(run.stderr, path)], [], run.stderr)

    def test_missing_keys_are_clear_errors(self):
        """`helm upgrade --reuse-values` renders with the defaults of the former version of the chart."""
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(chart.CHART, Path(folder, "svc"))
            (copy / "values.yaml").write_text("identity: {enabled: true}\n")
            run = chart.template(chart.LEAST, folder=copy)
        self.assertNotIn("nil pointer", run.stderr)
        for path in (("networkPolicy",), ("session",), ("identity", "autoscaling"), ("nats", "stream", "replicas")):
            self.assertTrue(is_named(run.stderr, path), run.stderr)

    def test_numbers_keep_their_digits(self):
        """A values file contains floats, which Go prints with an exponent from 1,000,000."""
        large = {}
        for path, schema in KEYS.items():
            if schema.get("type") == "integer" and "enum" not in schema and path[0] != "nats":
                large = chart.merged(large, nested(path, min(schema.get("maximum", 12000000), 12000000)))
        for component in chart.COMPONENTS:
            large = chart.merged(large, {component: {"podDisruptionBudget": {"maxUnavailable": 3000000}, "lifecycle": {"preStopSeconds": 2000000}}})
        variables = {"SVC_MAX_USERS": 2000000, "SVC_ARGON2_MEMORY_COST": 65536, "SVC_INVITE_TTL": "48h"}
        large = chart.merged(large, {"identity": {"env": variables}, "ingest": {"env": {"SVC_DEFAULT_EVENTS_PER_SECOND": 10000000}}})
        large = chart.merged(chart.merged(chart.OPERATOR, {"trustedProxies": []}), large)
        large = chart.merged(large, {"monitoring": {"traces": {"ratio": 0.000001}}})
        for autoscaling in (False, True):
            values = chart.merged(large, chart.each({"autoscaling": {"enabled": autoscaling}}))
            run = chart.template(chart.merged(chart.LEAST, values))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(re.findall(r".*\d[eE]\+\d+.*", re.sub(r"[0-9a-f]{10}$", "", run.stdout, flags=re.M)), [])
            objects = [each for each in chart.yaml.load_all(run.stdout, chart.LOADER) if each]
            validators = test_render.Validators(test_render.versions()[test_render.OLDEST])
            for each in objects:
                validators.of(each)(each)
            found = set(texts(objects))
            self.assertLessEqual({"2000000", "65536", "48h", "10000000"}, found)

    def test_on_and_off_need_no_quotes(self):
        """YAML 1.1 reads them as booleans. No variable has the value `true` or `false`."""
        values = {"identity": {"env": {"SVC_MAIL_COMMANDS": True, "SVC_LIMIT_LOGIN": False}}, "ingest": {"env": {"SVC_DEFAULT_EVENTS_PER_SECOND": False}}}
        objects = chart.render(values)
        found = test_operator.environment(objects, "identity") | test_operator.environment(objects, "ingest")
        self.assertEqual([found["SVC_MAIL_COMMANDS"], found["SVC_LIMIT_LOGIN"], found["SVC_DEFAULT_EVENTS_PER_SECOND"]], ["on", "off", "off"])
        self.assertFalse({"true", "false"} & set(found.values()))

    def test_a_slash_at_the_end_of_the_public_address_is_no_path(self):
        found = test_operator.environment(chart.render({"publicUrl": "https://svc.example.com/"}), "session")
        self.assertEqual(found["SVC_PUBLIC_URL"], "https://svc.example.com")

    def test_a_number_that_a_float_cannot_hold_is_rejected(self):
        for value in (2**53, -(2**53), 2**64):
            self.assertIn("SVC_MAX_USERS", chart.error({"identity": {"env": {"SVC_MAX_USERS": value}}}))

    def test_strings_that_look_like_other_types_stay_strings(self):
        """The strings of the values become digits, `true` or an exponent, and the objects are still valid."""
        validators = test_render.Validators(test_render.versions()[test_render.OLDEST])
        tried = set()
        for name, case in (chart.MATRIX | chart.TRIALS).items():
            values = chart.merged(chart.merged(DEFAULTS, chart.LEAST), case)
            changed, expected = values, {}
            for number, (path, schema) in enumerate(strings(values)):
                for text in (f"{number + 100}", f"{number + 1}e{number + 10}"):
                    if path[0] not in ("publicUrl", "extraObjects", "log") and self.is_free(path, schema, text):
                        changed, expected[path] = chart.merged(changed, nested(path, text)), text
                        tried.add(path)
                        break
            run = chart.template(changed)
            self.assertEqual(run.returncode, 0, f"{name}: {run.stderr}")
            for each in [each for each in chart.yaml.load_all(run.stdout, chart.LOADER) if each]:
                if each["kind"] not in test_render.FOREIGN:
                    validators.of(each)(each)
        self.assertGreater(len(tried), 60)

    def is_free(self, path, schema, text):
        if "pattern" in schema and not re.search(schema["pattern"], text):
            return False
        # Quantities, and settings that the chart reads.
        return not {"resources", "alerts", "env", "lifecycle"} & set(path) and path[-1] not in ("endpoint", "baseUrl", "volumeSize")

    def test_malformed_names_are_rejected_with_their_key(self):
        """What the API server would reject half-way through an installation."""
        found = 0
        for path, schema in KEYS.items():
            if "pattern" in schema and re.search(schema["pattern"], "svc-tokens") and not re.search(schema["pattern"], "Svc_Tokens!"):
                message = chart.error(nested(path, "Svc_Tokens!"))
                self.assertIn(path[-1], message)
                self.assertIn("values don't meet the specifications of the schema", message)
                found += 1
        self.assertGreater(found, 40)
