"""Rendered objects: valid for Kubernetes, routes from the path table, sufficient grace periods, unique names."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import fastjsonschema

import chart
import monitoring

SCHEMAS = Path(chart.TOOLS["kubernetes_schemas"])
OLDEST = "1.31"
# Custom resources without a schema in the list; other tests check them.
FOREIGN = {"ExternalSecret"}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
HTTP_ROUTE = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "gateway.networking.k8s.io/v1"},
        "kind": {"const": "HTTPRoute"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["parentRefs", "hostnames", "rules"],
            "additionalProperties": False,
            "properties": {
                # Items with all fields that have a default, so that Argo CD reports no difference.
                "parentRefs": {"type": "array", "maxItems": 32, "items": {"type": "object", "required": ["group", "kind", "name"]}},
                "hostnames": {"type": "array", "maxItems": 16, "items": {"type": "string"}},
                "rules": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 16,
                    "items": {
                        "type": "object",
                        "required": ["matches", "backendRefs"],
                        "additionalProperties": False,
                        "properties": {
                            "matches": {
                                "type": "array",
                                "maxItems": 8,
                                "items": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "properties": {
                                        "path": {
                                            "type": "object",
                                            "additionalProperties": False,
                                            "required": ["type", "value"],
                                            "properties": {"type": {"enum": ["PathPrefix", "Exact"]}, "value": {"pattern": "^/"}},
                                        }
                                    },
                                },
                            },
                            "backendRefs": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["group", "kind", "name", "port", "weight"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "group": {"const": ""},
                                        "kind": {"const": "Service"},
                                        "name": {"type": "string"},
                                        "port": {"type": "integer"},
                                        "weight": {"const": 1},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}

POD_MONITOR = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": "PodMonitor"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["selector", "podMetricsEndpoints"],
            "additionalProperties": False,
            "properties": {
                "selector": {"type": "object", "required": ["matchLabels", "matchExpressions"]},
                "podMetricsEndpoints": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {name: {"type": "string"} for name in ("port", "path", "interval")},
                    },
                },
            },
        },
    },
}

PROMETHEUS_RULE = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": "PrometheusRule"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["groups"],
            "additionalProperties": False,
            "properties": {
                "groups": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "rules"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "rules": {
                                "type": "array",
                                "minItems": 1,
                                "items": {
                                    "type": "object",
                                    "required": ["alert", "expr", "labels", "annotations"],
                                    "additionalProperties": False,
                                    "properties": {
                                        **{name: {"type": "string"} for name in ("alert", "expr", "for")},
                                        **{
                                            name: {"type": "object", "additionalProperties": {"type": "string"}}
                                            for name in ("labels", "annotations")
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


PROCESSES = (*chart.COMPONENTS, "operator")
# For each test: the values of both renderings, the tested values, and the expected content of fields. A field is named by kind/name of its object
# and the keys of its path, separated by spaces. If the name of the object ends with a digest, its beginning is enough. The content None
# means that the field must not exist.
FIELDS = {
    "trustedProxyHops": (
        chart.PUBLIC_FROM, {"trustedProxyHops": 2},
        {f"Deployment/svc-{name} spec template spec containers {name} env SVC_TRUSTED_PROXY_HOPS value": "2" for name in chart.COMPONENTS},
    ),
    "log": (
        {"operator": {"enabled": True}}, {"log": "info,identity=debug"},
        {f"Deployment/svc-{name} spec template spec containers {name} env SVC_LOG value": "info,identity=debug" for name in PROCESSES},
    ),
    "mail.toFiles": ({}, {"mail": {"toFiles": True}}, {
        "Deployment/svc-identity spec template spec containers identity env SVC_MAIL_DIR value": "/var/lib/svc/mail",
        "Deployment/svc-identity spec template spec containers identity volumeMounts mail mountPath": "/var/lib/svc/mail",
        "Deployment/svc-identity spec template spec volumes mail emptyDir": {"sizeLimit": "64Mi"},
    }),
    "migrations.activeDeadlineSeconds": (
        {}, {"migrations": {"activeDeadlineSeconds": 600}},
        {f"Job/svc-{name}-migrate- spec activeDeadlineSeconds": 600 for name in ("identity", "session")},
    ),
    "migrations.ttlSecondsAfterFinished": (
        {}, {"migrations": {"ttlSecondsAfterFinished": 600}},
        {f"Job/svc-{name}-migrate- spec ttlSecondsAfterFinished": 600 for name in ("identity", "session")},
    ),
    "autoscaling": (
        chart.each({"autoscaling": {"enabled": True}}), chart.each({"autoscaling": {"minReplicas": 4, "maxReplicas": 9, "targetCPU": 55}}),
        {
            f"HorizontalPodAutoscaler/svc-{name} spec {path}": expected for name in chart.COMPONENTS
            for path, expected in {"minReplicas": 4, "maxReplicas": 9, "metrics 0 containerResource target averageUtilization": 55}.items()
        },
    ),
    "podDisruptionBudget.maxUnavailable": (
        {"operator": {"enabled": True}}, {name: {"podDisruptionBudget": {"maxUnavailable": "25%"}} for name in PROCESSES},
        {f"PodDisruptionBudget/svc-{name} spec maxUnavailable": "25%" for name in PROCESSES},
    ),
    "podDisruptionBudget.enabled": (
        {"operator": {"enabled": True}}, {name: {"podDisruptionBudget": {"enabled": False}} for name in PROCESSES},
        {f"PodDisruptionBudget/svc-{name}": None for name in PROCESSES},
    ),
    "topologySpreadConstraints": (
        {"operator": {"enabled": True}}, {name: {"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack"}]} for name in PROCESSES},
        {f"Deployment/svc-{name} spec template spec topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack"}] for name in PROCESSES},
    ),
    "ingress": (
        chart.INGRESS,
        {"ingress": {"className": "traefik", "annotations": {"example.com/a": "b"}, "tls": [{"secretName": "svc-tls", "hosts": ["svc.example.com"]}]}},
        {
            "Ingress/svc spec ingressClassName": "traefik",
            "Ingress/svc metadata annotations": {"example.com/a": "b"},
            "Ingress/svc spec tls": [{"secretName": "svc-tls", "hosts": ["svc.example.com"]}],
        },
    ),
    "gateway.annotations": (
        chart.GATEWAY, {"gateway": {"annotations": {"example.com/a": "b"}}},
        {"HTTPRoute/svc metadata annotations": {"example.com/a": "b"}},
    ),
    "tests.baseUrl": (
        {**chart.INGRESS, "tests": {"existingSecret": "svc-test"}}, {"tests": {"baseUrl": "http://traefik.traefik"}},
        {
            f"Pod/svc-test-{path} env SVC_BASE_URL value": "http://traefik.traefik"
            for path in ("ingress spec containers health", "login-and-send spec initContainers login", "login-and-send spec containers send")
        },
    ),
    "labels of the monitoring": (
        monitoring.alone({}),
        {"monitoring": {"podMonitor": {"labels": {"release": "metrics"}}, "alerts": {"labels": {"release": "alerts"}}}},
        {"PodMonitor/svc metadata labels release": "metrics", "PrometheusRule/svc metadata labels release": "alerts"},
    ),
}  # fmt: skip


def field(objects, path):
    """Returns the content of a field, or None. An element of a list has its name or its number as key."""
    owner, *keys = path.split(" ")
    found = [each for each in objects if f"{each['kind']}/{each['metadata']['name']}".startswith(owner)]
    assert len(found) < 2, f"{owner}: {len(found)} objects"
    content = found[0] if found else None
    for key in keys:
        if isinstance(content, list):
            content = {str(number): each for number, each in enumerate(content)} | {each["name"]: each for each in content if "name" in each}
        content = (content or {}).get(key)
    return content


def versions():
    """Returns the schema directories of the oldest supported and the newest available version of Kubernetes."""
    found = {re.match(r"v(\d+\.\d+)", path.name)[1]: path for path in SCHEMAS.glob("v*-local-strict")}
    newest = max(found, key=lambda version: tuple(map(int, version.split("."))))
    assert OLDEST in found and newest != OLDEST, sorted(found)
    return {OLDEST: found[OLDEST], newest: found[newest]}


class Validators:
    """Compiled schemas, one per kind and version."""

    def __init__(self, directory):
        self.directory = directory
        self.definitions = json.loads(self.text("_definitions.json"))["$defs"]
        self.compiled = {
            "HTTPRoute": fastjsonschema.compile(HTTP_ROUTE),
            "PodMonitor": fastjsonschema.compile(POD_MONITOR),
            "PrometheusRule": fastjsonschema.compile(PROMETHEUS_RULE),
        }

    def text(self, name):
        # All references point to one file of definitions.
        return (self.directory / name).read_text().replace("/api/_definitions.json#", "#")

    def of(self, each):
        if each["kind"] not in self.compiled:
            version = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", each["apiVersion"])
            schema = json.loads(self.text(f"{each['kind'].lower()}-{version}.json"))
            schema["$defs"] = self.definitions
            # Otherwise references would be resolved against that URL.
            del schema["$id"]
            self.compiled[each["kind"]] = fastjsonschema.compile(
                schema, use_default=False, use_formats=False, detailed_exceptions=False
            )
        return self.compiled[each["kind"]]


class Rendering(unittest.TestCase):
    def test_helm_lint_strict_passes(self):
        dev = chart.helm("lint", "--strict", chart.CHART, "--values", chart.CHART / "values-dev.yaml")
        self.assertEqual(dev.returncode, 0, dev.stdout + dev.stderr)

    def test_objects_are_valid_for_the_oldest_and_newest_kubernetes(self):
        for version, directory in versions().items():
            validators = Validators(directory)
            for name in (*chart.MATRIX, *chart.TRIALS):
                for each in chart.case(name):
                    if each["kind"] in FOREIGN:
                        continue
                    with self.subTest(version=version, case=name, kind=each["kind"], name=each["metadata"]["name"]):
                        validators.of(each)(each)

    def test_schema_rejects_an_unknown_field(self):
        validators = Validators(versions()[OLDEST])
        deployment = chart.named(chart.case("required values only"), "Deployment", "svc-identity")
        invalid = json.loads(json.dumps(deployment))
        invalid["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
        with self.assertRaises(fastjsonschema.JsonSchemaException):
            validators.of(invalid)(invalid)

    def test_objects_are_unique_and_in_the_release_namespace(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            seen = set()
            for each in chart.case(name):
                key = each["kind"], each["metadata"]["name"]
                self.assertNotIn(key, seen, name)
                seen.add(key)
                if each["metadata"]["name"] not in ("svc-more", "svc-tokens"):
                    namespace = None if each["kind"] in CLUSTER_SCOPED else "there"
                    self.assertEqual(each["metadata"].get("namespace"), namespace, key)

    def test_rendering_is_deterministic(self):
        self.assertEqual(chart.render(chart.EVERYTHING), chart.case("all features"))

    def test_long_names_fit_into_63_characters(self):
        objects = chart.render({"fullnameOverride": "x" * 35, "nameOverride": ""})
        longest = max((each["metadata"]["name"] for each in objects), key=len)
        self.assertLessEqual(len(longest), 63, longest)

    def test_disabled_component_renders_no_object(self):
        for each in chart.case("ingest alone"):
            self.assertIn(each["metadata"]["labels"]["app.kubernetes.io/component"], ("ingest", "route", "test", "token-review"))

    def test_disabled_chart_renders_nothing(self):
        for name in ("all features", "gateway"):
            self.assertEqual(chart.render({**chart.MATRIX[name], "enabled": False}), [], name)
        self.assertEqual(chart.template({"enabled": False}).returncode, 0)

    def test_every_image_has_a_repository_and_a_digest(self):
        digest = "sha256:" + "b" * 64
        image = {"repository": "other.example/a/b", "digest": digest}
        values = {**chart.each({"image": image}), "image": {"registry": ""}, "tests": {"existingSecret": "user", "image": image}}
        objects = chart.render({**chart.INGRESS, **values})
        images = {container["image"] for _, _, pod in chart.pods(objects) for container in chart.containers(pod)}
        self.assertEqual(images, {f"other.example/a/b@{digest}"})

    def test_version_label_is_the_tag(self):
        for tag, label in (("9.9.9", "9.9.9"), ("", "0.1.0"), ("x" * 62 + "-1", "x" * 62)):
            objects = chart.render({"image": {"tag": tag}})
            labels = {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in objects}
            self.assertEqual(labels, {label})

    def test_labels_annotations_and_priority_reach_every_pod(self):
        wanted = {"podLabels": {"team": "platform"}, "podAnnotations": {"example.com/scrape": "no"}, "priorityClassName": "high"}
        for values in ({**chart.INGRESS, "tests": {"existingSecret": "svc-test"}}, chart.TRIAL):
            names = []
            for each in chart.render({**values, **wanted}):
                pod = each if each["kind"] == "Pod" else each.get("spec", {}).get("template", {})
                if "containers" in pod.get("spec", {}):
                    names.append(each["metadata"]["name"])
                    self.assertEqual(pod["metadata"]["labels"].get("team"), "platform", names[-1])
                    self.assertEqual(pod["metadata"].get("annotations", {}).get("example.com/scrape"), "no", names[-1])
                    self.assertEqual(pod["spec"].get("priorityClassName"), "high", names[-1])
            self.assertGreater(len(names), 6)

    def test_a_more_specific_label_or_annotation_replaces_the_general_one(self):
        common, own = {"example.com/team": "platform"}, {"example.com/team": "own"}
        pods = {"podLabels": own, "podAnnotations": own}
        values = {
            "commonLabels": common, "podAnnotations": common, "migrations": pods, "tests": pods,
            "monitoring": {"podMonitor": {"labels": own}, "alerts": {"labels": own}, "dashboards": {"labels": own}},
        }  # fmt: skip
        for case in (chart.merged(chart.EVERYTHING, chart.OPERATOR), chart.GATEWAY, *chart.TRIALS.values()):
            for each in chart.render(chart.merged(case, values)):
                team = each["metadata"].get("labels", {}).get("example.com/team")
                is_own = each["kind"] in ("PodMonitor", "PrometheusRule", "Pod") or "-dashboard-" in each["metadata"]["name"]
                if each["metadata"]["name"] not in ("svc-more", "svc-test-event"):
                    self.assertEqual(team, "own" if is_own else "platform", each["metadata"]["name"])

    def test_jobs_of_a_trial_have_another_name_with_other_labels(self):
        before, after = (
            {each["metadata"]["name"] for each in chart.of_kind(chart.render({**chart.TRIAL, **values}), "Job")}
            for values in ({}, {"podLabels": {"team": "platform"}})
        )
        self.assertFalse(before & after)

    def test_tests_trust_the_configured_ca(self):
        for ca, kind in (({"secret": "route-ca"}, "secret"), ({"configMap": "route-ca", "key": "ca.pem"}, "configMap")):
            tests = {"tests": {"existingSecret": "svc-test", "ca": ca}}
            for pod in chart.of_kind(chart.render({**chart.INGRESS, **tests}), "Pod"):
                (source,) = [each for volume in pod["spec"]["volumes"] for each in volume.get("projected", {}).get("sources", [])]
                key = ca.get("key", "ca.crt")
                self.assertEqual(source, {kind: {"name": "route-ca", "items": [{"key": key, "path": "tls/ca.crt"}]}})
                for container in chart.containers(pod["spec"]):
                    env = {variable["name"]: variable.get("value") for variable in container["env"]}
                    self.assertEqual(env["SVC_CA_FILE"], "/etc/svc/secrets/tls/ca.crt")
                    self.assertIn("/etc/svc/secrets", [mount["mountPath"] for mount in container["volumeMounts"]])
        for pod in chart.of_kind(chart.case("ingress"), "Pod"):
            self.assertNotIn("SVC_CA_FILE", json.dumps(pod))

    def test_digest_takes_precedence_over_the_tag(self):
        objects = chart.case("all features")
        image = chart.named(objects, "Deployment", "svc-identity")["spec"]["template"]["spec"]["containers"][0]["image"]
        self.assertEqual(image, "registry.example/svc/svc-identity@sha256:" + "a" * 64)
        image = chart.named(objects, "Deployment", "svc-session")["spec"]["template"]["spec"]["containers"][0]["image"]
        self.assertEqual(image, "registry.example/svc/svc-session:1.2.3")

    def test_autoscaling_replaces_replicas(self):
        objects = chart.case("high availability")
        for component in chart.COMPONENTS:
            self.assertNotIn("replicas", chart.named(objects, "Deployment", f"svc-{component}")["spec"])
            scaler = chart.named(objects, "HorizontalPodAutoscaler", f"svc-{component}")["spec"]
            self.assertEqual(scaler["scaleTargetRef"]["name"], f"svc-{component}")
            # Not the sum of the pod: a sidecar without a request would stop the scaling.
            self.assertEqual([metric["containerResource"]["container"] for metric in scaler["metrics"]], [component])

    def test_values_set_their_fields(self):
        for name, (others, values, fields) in FIELDS.items():
            without, objects = chart.render(others), chart.render(chart.merged(others, values))
            self.assertTrue(fields, name)
            for path, expected in fields.items():
                with self.subTest(name, path=path):
                    self.assertEqual(field(objects, path), expected)
                    self.assertNotEqual(field(without, path), expected, "the field has this content without the value too")

    def test_annotations_reach_only_the_service_of_the_public_port(self):
        values = {name: {"service": {"annotations": {"cloud.google.com/backend-config": name}}} for name in chart.COMPONENTS}
        found = {each["metadata"]["name"]: each["metadata"].get("annotations") for each in chart.of_kind(chart.render(values), "Service")}
        annotated = {f"svc-{name}": {"cloud.google.com/backend-config": name} for name in chart.COMPONENTS}
        self.assertEqual(found, {**annotated, "svc-identity-internal": None, "svc-session-internal": None})

    def test_pull_policy_reaches_every_container(self):
        for values in (chart.TRIAL, {**chart.INGRESS, "tests": {"existingSecret": "svc-test"}, "operator": {"enabled": True}}):
            objects = chart.render({**values, "image": {"pullPolicy": "Never"}})
            policies = [container["imagePullPolicy"] for _, _, pod in chart.pods(objects) for container in chart.containers(pod)]
            self.assertGreater(len(policies), 8)
            self.assertEqual(set(policies), {"Never"})

    def test_selectors_match_exactly_their_pods(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            objects = chart.case(name)
            for each in chart.of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
                spec = each["spec"]
                wanted = spec.get("selector", spec.get("podSelector"))
                wanted = wanted.get("matchLabels", wanted)
                found = {
                    labels["app.kubernetes.io/component"]
                    for _, labels, _ in chart.pods(objects)
                    if wanted.items() <= labels.items()
                }
                self.assertEqual(
                    found, {wanted["app.kubernetes.io/component"]}, f"{name}: {each['kind']}/{each['metadata']['name']}"
                )


class Variables(unittest.TestCase):
    def test_variables_are_unique(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            for owner, _, pod in chart.pods(chart.case(name)):
                for container in chart.containers(pod):
                    names = [variable["name"] for variable in container.get("env", [])]
                    self.assertEqual(len(names), len(set(names)), f"{name}: {owner}")

    def test_every_variable_is_known_to_the_service(self):
        known = json.loads((chart.CHART / "files/variables.json").read_text())
        for name in chart.MATRIX:
            for each in chart.of_kind(chart.case(name), "Deployment", "Job"):
                component = each["metadata"]["labels"]["app.kubernetes.io/component"].removesuffix("-migration")
                read = known[component]["plain"] + [f"{secret}_FILE" for secret in known[component]["secret"]]
                # A URL without user and password is no secret.
                read += [name.replace("_LOGIN", "_URL") for name in read if name.endswith("_LOGIN")]
                for container in chart.containers(each["spec"]["template"]["spec"]):
                    for variable in container["env"]:
                        if variable["name"].startswith("SVC_"):
                            self.assertIn(variable["name"], read, f"{name}: {each['metadata']['name']}")

    def test_required_variables_are_set(self):
        objects = chart.case("required values only")
        for component, wanted in {
            "identity": {
                "SVC_DATABASE_URL_FILE",
                "SVC_NATS_URL_FILE",
                "SVC_SERVICE_TOKEN_FILE",
                "SVC_PLATFORM_TOKEN_FILE",
                "SVC_LIMITER_KEY_FILE",
                "SVC_FACTOR_KEY_FILE",
                "SVC_SESSION_URL",
                "SVC_PUBLIC_URL",
            },
            "session": {
                "SVC_DATABASE_URL_FILE",
                "SVC_NATS_URL_FILE",
                "SVC_SERVICE_TOKEN_FILE",
                "SVC_IDENTITY_URL",
                "SVC_PUBLIC_URL",
            },
            "ingest": {"SVC_NATS_URL_FILE", "SVC_STREAM_MAX_BYTES", "SVC_SERVICE_TOKEN_FILE", "SVC_SESSION_URL"},
        }.items():
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            self.assertLessEqual(wanted, {variable["name"] for variable in spec["containers"][0]["env"]}, component)

    def test_only_identity_gets_the_mail_server_and_its_egress_rule(self):
        objects = chart.case("mail")
        for component in ("identity", "session", "ingest"):
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
            policy = chart.named(objects, "NetworkPolicy", f"svc-{component}")["spec"]
            actual = (env.get("SVC_SMTP_URL_FILE"), env.get("SVC_MAIL_FROM"), chart.SUBMISSION in policy["egress"])
            expected = ("/etc/svc/secrets/svc-mail/smtp-url", "svc <no-reply@svc.example.com>", True)
            self.assertEqual(actual, expected if component == "identity" else (None, None, False), component)
            self.assertEqual("svc-mail" in json.dumps(spec), component == "identity", component)

    def test_only_identity_gets_the_branding_and_only_configured_values(self):
        names = {"SVC_PRODUCT_NAME", "SVC_ACCENT_COLOR", "SVC_SUPPORT_ADDRESS", "SVC_LANGUAGE", "SVC_LOGO_FILE", "SVC_LOGO_DARK_FILE", "SVC_APP_URL", "SVC_MAIL_COMMANDS"}
        configured = {
            "SVC_PRODUCT_NAME": "Acme Cloud", "SVC_ACCENT_COLOR": "#7a1f5c", "SVC_SUPPORT_ADDRESS": "help@acme.example",
            "SVC_LANGUAGE": "de", "SVC_LOGO_FILE": "/etc/svc/branding/logo.png",
            "SVC_LOGO_DARK_FILE": "/etc/svc/branding/dark.png", "SVC_APP_URL": "https://app.acme.example",
            "SVC_MAIL_COMMANDS": "off",
        }  # fmt: skip
        for case, component, expected in (
            ("all features", "identity", configured),
            ("all features", "session", {}),
            ("required values only", "identity", {}),
        ):
            spec = chart.named(chart.case(case), "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"] if "value" in variable}
            self.assertEqual({name: env[name] for name in names & env.keys()}, expected, (case, component))
            volumes = [volume for volume in spec["volumes"] if volume["name"] == "branding"]
            expected_volumes = [{"name": "branding", "configMap": {"name": "branding"}}] if expected else []
            self.assertEqual(volumes, expected_volumes, (case, component))

    def test_ingest_and_identity_get_the_settings_of_their_streams(self):
        configured = {
            "SVC_STREAM_MODE": "verify", "SVC_STREAM_REPLICAS": "5", "SVC_STREAMS": "4", "SVC_STREAM_MAX_BYTES": "2TiB",
            "SVC_STREAM_MAX_AGE": "24h", "SVC_DLQ_MAX_AGE": "7d",
            "SVC_STREAM_COMPRESSION": "s2", "SVC_NATS_DURABILITY": "strict",
        }  # fmt: skip
        configured_audit = {
            "SVC_STREAM_MODE": "verify", "SVC_STREAM_REPLICAS": "5", "SVC_STREAM_MAX_BYTES": "2TiB", "SVC_AUDIT_MAX_AGE": "30d",
            "SVC_STREAM_COMPRESSION": "s2",
        }  # fmt: skip
        defaults = {
            "SVC_STREAM_MODE": "ensure", "SVC_STREAM_REPLICAS": "3", "SVC_STREAMS": "1", "SVC_STREAM_MAX_BYTES": "20GiB",
            "SVC_STREAM_MAX_AGE": "72h", "SVC_DLQ_MAX_AGE": "14d",
            "SVC_STREAM_COMPRESSION": "none", "SVC_NATS_DURABILITY": "standard",
        }  # fmt: skip
        default_audit = {
            "SVC_STREAM_MODE": "ensure", "SVC_STREAM_REPLICAS": "3", "SVC_STREAM_MAX_BYTES": "20GiB", "SVC_AUDIT_MAX_AGE": "400d",
            "SVC_STREAM_COMPRESSION": "none",
        }  # fmt: skip
        names = configured.keys() | configured_audit.keys()
        for case, component, expected in (
            ("all features", "ingest", configured),
            ("all features", "identity", configured_audit),
            ("required values only", "ingest", defaults),
            ("required values only", "identity", default_audit),
            ("all features", "session", {}),
        ):
            spec = chart.named(chart.case(case), "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
            self.assertEqual({name: env[name] for name in names & env.keys()}, expected, (case, component))

    def test_every_file_of_a_variable_is_mounted(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            for owner, _, pod in chart.pods(chart.case(name)):
                sources = [
                    source
                    for volume in pod.get("volumes", [])
                    for source in volume.get("projected", {}).get("sources", [])
                ]
                items = [item for source in sources for each in source.values() for item in each.get("items", [])]
                paths = {f"/etc/svc/secrets/{item['path']}" for item in items}
                for container in chart.containers(pod):
                    own = {m["mountPath"] + "/" for m in container.get("volumeMounts", []) if m["name"] != "secrets"}
                    for variable in container.get("env", []):
                        if variable["name"].endswith("_FILE"):
                            path = variable["value"]
                            self.assertTrue(path in paths or path.startswith(tuple(own)), f"{name}: {owner}: {path}")

    def test_tls_files_reach_every_container_that_connects(self):
        objects = chart.case("TLS")
        directory = "/etc/svc/secrets/"
        verified = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": f"{directory}database-tls/ca.crt"}
        own = {"PGSSLCERT": f"{directory}database-tls/tls.crt", "PGSSLKEY": f"{directory}database-tls/tls.key"}
        nats = {"SVC_NATS_CA_FILE": f"{directory}nats-tls/ca.crt"}
        expected = {
            "identity": [{**verified, **own}, {**verified, **own, **nats}],
            "session": [verified, {**verified, **nats, "SVC_NATS_CLIENT_CERTIFICATE": f"{directory}nats-tls"}],
            "ingest": [{**nats, "SVC_NATS_CREDENTIALS_FILE": f"{directory}svc-nats/ingest.creds"}],
            "identity-migration": [{**verified, **own}],
            "session-migration": [verified],
        }
        sources = {
            "identity": {"postgres-ca/ca.pem", "postgres-identity/tls.crt", "postgres-identity/tls.key", "nats-ca/ca.crt"},
            "session": {"postgres-ca/ca.pem", "nats-session/tls.crt", "nats-session/tls.key", "nats-ca/ca.crt"},
            "ingest": {"nats-ca/ca.crt", "svc-nats/ingest.creds"},
            "identity-migration": {
                "postgres-ca/ca.pem", "postgres-identity-migrator/tls.crt", "postgres-identity-migrator/tls.key",
            },
            "session-migration": {"postgres-ca/ca.pem"},
        }  # fmt: skip
        for _, labels, pod in chart.pods(objects):
            component = labels["app.kubernetes.io/component"]
            found = [
                {v["name"]: v["value"] for v in container["env"] if v["name"].startswith(("PG", "SVC_NATS_C"))}
                for container in chart.containers(pod)
            ]
            self.assertEqual(found, expected[component], component)
            (volume,) = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "secrets"]
            each = [(source["name"], item["key"]) for entry in volume for source in entry.values() for item in source["items"]]
            keys = {f"{name}/{key}" for name, key in each if key not in chart.URLS_AND_TOKENS}
            self.assertEqual(keys, sources[component], component)

    def test_ssl_mode_is_set_without_a_ca(self):
        for values, mode in (({}, None), ({"sslMode": "verify-full"}, "verify-full"), ({"sslMode": "verify-ca", "ca": {"secret": "ca"}}, "verify-ca")):
            spec = chart.named(chart.render({"database": values}), "Deployment", "svc-session")["spec"]["template"]["spec"]
            for container in chart.containers(spec):
                env = {variable["name"]: variable.get("value") for variable in container["env"]}
                self.assertEqual(env.get("PGSSLMODE"), mode, values)

    def test_pool_size_reaches_the_services_with_a_database(self):
        for each in chart.of_kind(chart.case("TLS"), "Deployment"):
            env = {v["name"]: v.get("value") for v in each["spec"]["template"]["spec"]["containers"][0]["env"]}
            expected = None if each["metadata"]["name"] == "svc-ingest" else "12"
            self.assertEqual(env.get("SVC_DATABASE_CONNECTIONS"), expected, each["metadata"]["name"])

    def test_the_number_of_threads_follows_the_cpu_request(self):
        def cpus(objects, component):
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            return next((each for each in spec["containers"][0]["env"] if each["name"] == "SVC_CPUS"), None)

        for component in ("identity", "session", "ingest", "operator"):
            self.assertEqual(cpus(chart.case("operator"), component)["valueFrom"], {"resourceFieldRef": {"resource": "requests.cpu"}})
        own = chart.render({"session": {"env": {"SVC_CPUS": "4"}}, "ingest": {"resources": {"requests": {"cpu": None}}}})
        self.assertEqual((cpus(own, "session")["value"], cpus(own, "ingest")), ("4", None))
        self.assertIn("already set", chart.error({"session": {"extraEnv": [{"name": "SVC_CPUS", "value": "4"}]}}))

    def test_session_has_at_least_the_cpu_request_of_identity(self):
        # On a busy node, session checks wait for the hashes of identity otherwise.
        def millicores(objects, component):
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            cpu = spec["containers"][0]["resources"]["requests"]["cpu"]
            return int(cpu.removesuffix("m")) if cpu.endswith("m") else 1000 * int(cpu)

        for name in ("required values only", "development", "production example"):
            objects = chart.case(name)
            self.assertGreaterEqual(millicores(objects, "session"), millicores(objects, "identity"), name)

    def test_additions_reach_the_pods_and_the_migration_of_the_component(self):
        objects = chart.render(chart.SIDECAR)
        for owner, labels, pod in chart.pods(objects):
            component = labels["app.kubernetes.io/component"]
            own = component in ("identity", "identity-migration")
            names = [container["name"] for container in chart.containers(pod)]
            self.assertEqual("proxy" in names, own, owner)
            self.assertEqual("agent" in names, component == "identity", owner)
            self.assertEqual("socket" in [volume["name"] for volume in pod["volumes"]], own, owner)
            if own:
                self.assertEqual(names[0], "proxy", "runs before migrations and the wait for them")
            for container in chart.containers(pod):
                if container["name"] not in ("proxy", "agent"):
                    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
                    env = {variable["name"] for variable in container["env"]}
                    self.assertEqual(("/run/proxy" in mounts, "PGAPPNAME" in env), (own, own), owner)
        annotations = {
            each["metadata"]["name"]: each["metadata"].get("annotations") for each in chart.of_kind(objects, "ServiceAccount")
        }
        self.assertEqual(
            annotations, {"svc-identity": {"example.com/role": "identity"}, "svc-session": None, "svc-ingest": None}
        )

    def test_extra_volumes_are_mounted(self):
        objects = chart.case("breached passwords")
        for component in ("identity", "session", "ingest"):
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            mounted = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
            volumes = {volume["name"] for volume in spec["volumes"]}
            self.assertEqual(mounted.get("breached"), "/srv/breached" if component == "identity" else None)
            self.assertEqual("breached" in volumes, component == "identity", component)

    def test_secrets_come_from_the_configured_keys(self):
        objects = chart.case("other keys")
        for kind, name, expected in (
            ("Deployment", "svc-identity", {
                "SVC_DATABASE_URL_FILE": "svc-database/url", "SVC_NATS_URL_FILE": "svc-nats/identity-url",
                "SVC_SERVICE_TOKEN_FILE": "svc-tokens/SERVICE",
                "SVC_PLATFORM_TOKEN_FILE": "svc-tokens/PLATFORM", "SVC_LIMITER_KEY_FILE": "svc-tokens/limiter-key",
                "SVC_FACTOR_KEY_FILE": "svc-tokens/factor-key",
                "SVC_SMTP_URL_FILE": "svc-mail/url",
            }),
            ("Deployment", "svc-ingest", {
                "SVC_NATS_URL_FILE": "svc-nats/NATS_URL", "SVC_SERVICE_TOKEN_FILE": "svc-tokens/SERVICE",
                "SVC_PLATFORM_TOKEN_FILE": "svc-tokens/PLATFORM",
            }),
            ("Job", "svc-session-migrate", {"SVC_MIGRATOR_DATABASE_URL_FILE": "svc-database/session.migrator"}),
        ):  # fmt: skip
            (owner,) = [each for each in chart.of_kind(objects, kind) if each["metadata"]["name"].startswith(name)]
            variables = owner["spec"]["template"]["spec"]["containers"][0]["env"]
            files = {each["name"]: each["value"] for each in variables if each["name"].endswith("_FILE")}
            self.assertEqual(files, {variable: f"/etc/svc/secrets/{path}" for variable, path in expected.items()}, name)

    def test_users_and_passwords_come_from_one_secret_for_each_role(self):
        objects = chart.case("separate users and passwords")
        database = {"SVC_DATABASE_URL": "postgres://pg-rw:5432/app", "SVC_DATABASE_LOGIN": "/etc/svc/secrets/database-login"}
        migrator = {name.replace("SVC_", "SVC_MIGRATOR_"): value for name, value in database.items()}
        nats = {"SVC_NATS_URL": "nats://nats:4222", "SVC_NATS_LOGIN": "/etc/svc/secrets/nats-login"}
        expected = {
            "identity": ([database, {**database, **nats}], {"database": "pg-identity", "nats": "nats-identity"}),
            "session": ([database, {**database, **nats}], {"database": "pg-session", "nats": "nats-session"}),
            "ingest": ([nats], {"nats": "nats-ingest"}),
            "identity-migration": ([migrator], {"database": "pg-identity-migrator"}),
            "session-migration": ([migrator], {"database": "pg-session-migrator"}),
        }
        for _, labels, pod in chart.pods(objects):
            component = labels["app.kubernetes.io/component"]
            variables, secrets = expected[component]
            found = [
                {v["name"]: v["value"] for v in container["env"] if re.match("SVC_(MIGRATOR_)?(DATABASE|NATS)_(URL|LOGIN)", v["name"])}
                for container in chart.containers(pod)
            ]
            self.assertEqual(found, variables, component)
            (sources,) = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "secrets"]
            files = {
                item["path"]: (source["secret"]["name"], item["key"])
                for source in sources for item in source["secret"]["items"] if "login" in item["path"]
            }  # fmt: skip
            keys = {"database": {"username": "user", "password": "password"}, "nats": {"username": "username", "password": "password"}}
            wanted = {f"{use}-login/{file}": (secret, key) for use, secret in secrets.items() for file, key in keys[use].items()}
            self.assertEqual(files, wanted, component)

    def test_a_changed_secret_reaches_the_pods_without_a_rollout(self):
        for name in chart.MATRIX:
            for owner, _, pod in chart.pods(chart.case(name)):
                for container in chart.containers(pod):
                    for mount in container.get("volumeMounts", []):
                        self.assertNotIn("subPath", mount, f"{name}: {owner}: Kubernetes does not update a subPath")
            for each in chart.of_kind(chart.case(name), "Deployment"):
                annotations = each["spec"]["template"]["metadata"].get("annotations", {})
                self.assertFalse([key for key in annotations if "checksum" in key], name)

    def test_services_listen_on_ipv4_and_ipv6(self):
        for values, address in (({}, "[::]"), ({"listenAddress": "0.0.0.0"}, "0.0.0.0")):
            for each in chart.of_kind(chart.render(values), "Deployment"):
                env = {v["name"]: v.get("value") for v in each["spec"]["template"]["spec"]["containers"][0]["env"]}
                listening = {env[name] for name in ("SVC_LISTEN", "SVC_LISTEN_ADMIN")}
                self.assertEqual(listening, {f"{address}:8080", f"{address}:9090"})


class Routes(unittest.TestCase):
    def table(self):
        rust = re.search(r"PREFIXES: .*?\];", (chart.ROOT / "libs/contract/src/paths.rs").read_text(), re.S)[0]
        rows = re.findall(r'\("(/[^"]+)", Upstream::(\w+)\)', rust)
        self.assertGreater(len(rows), 10)
        return {f"/api/v1{path}": f"svc-{service.lower()}" for path, service in rows} | {"/api/v1": "svc-identity"}

    def test_ingress_matches_the_path_table(self):
        rules = chart.named(chart.case("ingress"), "Ingress", "svc")["spec"]["rules"]
        self.assertEqual([rule["host"] for rule in rules], ["svc.example.com"])
        paths = rules[0]["http"]["paths"]
        self.assertEqual({path["path"]: path["backend"]["service"]["name"] for path in paths}, self.table())
        self.assertEqual({path["pathType"] for path in paths}, {"Prefix"})

    def test_http_route_matches_the_path_table(self):
        rules = chart.named(chart.case("gateway"), "HTTPRoute", "svc")["spec"]["rules"]
        routed = {match["path"]["value"]: rule["backendRefs"][0]["name"] for rule in rules for match in rule["matches"]}
        self.assertEqual(routed, self.table())

    def test_start_page_adds_exact_paths(self):
        added = {("/", "Exact"), ("/device", "Exact"), ("/docs", "Exact"), ("/.well-known/change-password", "Exact")}
        for route in (chart.INGRESS, chart.GATEWAY):
            without, with_page = (self.paths(chart.render({**route, "startPage": page})) for page in (False, True))
            self.assertEqual(with_page - without, added)
            self.assertTrue(all(path.startswith("/api/v1") for path, _ in without))

    def test_with_the_start_page_devices_show_the_short_address(self):
        for page, shown in ((False, None), (True, "https://svc.example.com/device")):
            objects = chart.render({**chart.INGRESS, "startPage": page})
            spec = chart.named(objects, "Deployment", "svc-session")["spec"]["template"]["spec"]
            env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
            self.assertEqual(env.get("SVC_DEVICE_URL"), shown)

    def paths(self, objects):
        """Returns the paths of the Ingress or HTTPRoute with their types."""
        (route,) = chart.of_kind(objects, "Ingress", "HTTPRoute")
        if route["kind"] == "Ingress":
            return {(path["path"], path["pathType"]) for path in route["spec"]["rules"][0]["http"]["paths"]}
        return {(match["path"]["value"], match["path"]["type"]) for rule in route["spec"]["rules"] for match in rule["matches"]}

    def test_the_fields_of_a_parent_replace_the_defaults(self):
        mesh, gateway = {"name": "mesh", "group": "", "kind": "Service", "port": 8080}, {"name": "front"}
        route = chart.named(chart.render(chart.merged(chart.GATEWAY, {"gateway": {"parentRefs": [mesh, gateway]}})), "HTTPRoute", "svc")
        self.assertEqual(route["spec"]["parentRefs"], [mesh, {"group": "gateway.networking.k8s.io", "kind": "Gateway", **gateway}])

    def test_internal_and_admin_ports_are_not_routed(self):
        for name in chart.MATRIX:
            objects = chart.case(name)
            routes = json.dumps(chart.of_kind(objects, "Ingress", "HTTPRoute"))
            for forbidden in ("internal", "8081", "9090", "admin"):
                self.assertNotIn(forbidden, routes, name)
            for service in chart.of_kind(objects, "Service"):
                targets = {port["targetPort"] for port in service["spec"]["ports"]}
                expected = {"internal"} if service["metadata"]["name"].endswith("-internal") else {"public"}
                self.assertEqual(targets, expected, service["metadata"]["name"])

    def test_urls_of_internal_apis_point_to_existing_services(self):
        objects = chart.case("required values only")
        for callee, callers in {"session": ("identity", "ingest"), "identity": ("session",)}.items():
            service = chart.named(objects, "Service", f"svc-{callee}-internal")
            url = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
            spec = chart.named(objects, "Deployment", f"svc-{callee}")["spec"]["template"]["spec"]
            ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
            self.assertEqual(ports["internal"], 8081)
            for caller in callers:
                spec = chart.named(objects, "Deployment", f"svc-{caller}")["spec"]["template"]["spec"]
                env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
                self.assertEqual(env[f"SVC_{callee.upper()}_URL"], url)


class Monitoring(unittest.TestCase):
    def test_pod_monitor_selects_the_admin_port_of_every_service(self):
        objects = chart.case("all features")
        spec = chart.named(objects, "PodMonitor", "svc")["spec"]
        self.assertEqual(spec["selector"]["matchExpressions"][0]["values"], list(chart.COMPONENTS))
        self.assertEqual(spec["podMetricsEndpoints"], [{"port": "admin", "path": "/metrics", "interval": "15s"}])
        found = {
            labels["app.kubernetes.io/component"]
            for _, labels, _ in chart.pods(objects)
            if spec["selector"]["matchLabels"].items() <= labels.items()
        }
        self.assertLessEqual(set(chart.COMPONENTS), found)

    def test_every_service_sends_traces_to_the_collector(self):
        for each in chart.of_kind(chart.case("all features"), "Deployment"):
            env = {v["name"]: v.get("value") for v in each["spec"]["template"]["spec"]["containers"][0]["env"]}
            self.assertEqual((env["SVC_OTLP_ENDPOINT"], env["SVC_OTLP_RATIO"]), ("http://collector:4318", "0.1"))


class Lifecycle(unittest.TestCase):
    def test_rollout_starts_a_pod_before_it_stops_one(self):
        for name in chart.MATRIX:
            for each in chart.of_kind(chart.case(name), "Deployment"):
                self.assertEqual(each["spec"]["strategy"]["rollingUpdate"], {"maxUnavailable": 0, "maxSurge": 1})

    def test_grace_period_covers_the_shutdown_of_the_service(self):
        lifecycle = (chart.ROOT / "libs/service/src/lifecycle.rs").read_text()
        budgets = re.findall(r"const (?:DRAIN|STOP)_BUDGET: Duration = Duration::from_secs\((\d+)\)", lifecycle)
        self.assertEqual(len(budgets), 2, "the budgets of libs/service were not found")
        for name in chart.MATRIX:
            for each in chart.of_kind(chart.case(name), "Deployment"):
                spec = each["spec"]["template"]["spec"]
                sleep = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                needed = sleep + sum(map(int, budgets))
                self.assertGreaterEqual(
                    spec["terminationGracePeriodSeconds"], needed, f"{name}: {each['metadata']['name']}"
                )

    def test_production_pods_have_a_prestop_sleep(self):
        for each in chart.of_kind(chart.case("required values only"), "Deployment"):
            hooks = each["spec"]["template"]["spec"]["containers"][0]["lifecycle"]
            self.assertEqual(hooks, {"preStop": {"sleep": {"seconds": 10}}})

    def test_probes_call_the_admin_port(self):
        for each in chart.of_kind(chart.case("required values only"), "Deployment"):
            container = each["spec"]["template"]["spec"]["containers"][0]
            paths = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
            live, ready = {"path": "/livez", "port": "admin"}, {"path": "/readyz", "port": "admin"}
            self.assertEqual(paths, {"startup": live, "liveness": live, "readiness": ready})


class Migrations(unittest.TestCase):
    def jobs(self, over):
        return {each["metadata"]["name"] for each in chart.of_kind(chart.render(over), "Job")}

    def test_job_name_changes_only_with_its_spec(self):
        before = self.jobs({})
        self.assertEqual(self.jobs({"identity": {"replicas": 5}, "publicUrl": "https://other.example"}), before)
        self.assertFalse(self.jobs({"image": {"tag": "1.2.4"}}) & before)
        self.assertFalse(self.jobs({"database": {"existingSecret": "other"}}) & before)
        self.assertFalse(self.jobs({"migrations": {"resources": {"limits": {"memory": "1Gi"}}}}) & before)

    def test_each_revision_has_its_own_job(self):
        # `helm template` renders revision 1 only.
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(chart.CHART, Path(folder) / "svc")
            (copy / "templates/second.yaml").write_text(
                '{{- $release := merge (dict "Revision" 2) .Release -}}'
                '{{- $root := dict "Release" $release "Values" .Values "Chart" .Chart "Files" .Files -}}'
                '{{- include "svc.migration" (dict "root" $root "component" "identity") }}'
            )
            jobs = chart.of_kind(chart.render({}, folder=copy), "Job")
        first, second = (each for each in jobs if each["metadata"]["name"].startswith("svc-identity-"))
        self.assertNotEqual(first["metadata"]["name"], second["metadata"]["name"])
        self.assertEqual(first["spec"], second["spec"])
        self.assertEqual(self.jobs({}), self.jobs({}), "tools without revisions keep the Job")

    def test_a_job_migrates_only_while_it_is_that_of_the_current_release(self):
        for name in chart.MATRIX:
            objects = chart.case(name)
            for job in chart.of_kind(objects, "Job"):
                container = job["spec"]["template"]["spec"]["containers"][0]
                self.assertEqual(container["args"], ["migrate", "up", "--job", "$(JOB)", "--current-job", "$(CURRENT_JOB)"])
                sources = {each["name"]: each.get("valueFrom") for each in container["env"]}
                self.assertEqual(sources["JOB"], {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}})
                # Not optional: no container starts after `helm uninstall`. The name is the same in each revision, so that the next one replaces the value.
                component = job["metadata"]["labels"]["app.kubernetes.io/component"]
                self.assertEqual(sources["CURRENT_JOB"], {"configMapKeyRef": {"name": f"svc-{component}", "key": "job"}})
                current = chart.named(objects, "ConfigMap", f"svc-{component}")
                self.assertEqual(current["data"], {"job": job["metadata"]["name"]}, name)
                # The container reads the name at its start, so a migration that waited long must start again.
                rules = job["spec"]["podFailurePolicy"]["rules"]
                self.assertIn({"action": "Ignore", "onExitCodes": {"containerName": "migrate", "operator": "In", "values": [75]}}, rules)

    def test_jobs_have_the_node_affinity_of_their_component_and_no_rules_about_other_pods(self):
        nodes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
        term = {"labelSelector": {"matchLabels": {"app.kubernetes.io/instance": "svc"}}, "topologyKey": "kubernetes.io/hostname"}
        pods = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for affinity, expected in (({**nodes, **pods}, nodes), (pods, None)):
            values = {name: {"affinity": affinity} for name in ("identity", "session")}
            for owner, _, pod in chart.pods(chart.render(values)):
                if not owner.startswith("Deployment/svc-ingest"):
                    self.assertEqual(pod.get("affinity"), expected if owner.startswith("Job/") else affinity, owner)

    def test_jobs_are_kept_on_request(self):
        for job in chart.of_kind(chart.render({"migrations": {"ttlSecondsAfterFinished": 0}}), "Job"):
            self.assertNotIn("ttlSecondsAfterFinished", job["spec"])

    def test_pods_wait_for_migrations_with_the_runtime_role(self):
        objects = chart.case("required values only")
        for component in ("identity", "session"):
            waiting = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"][
                "initContainers"
            ][0]
            self.assertEqual(waiting["args"], ["migrate", "wait"])
            self.assertEqual([variable["name"] for variable in waiting["env"]], ["SVC_DATABASE_URL_FILE"])

    def test_only_migrations_get_the_migrator_role(self):
        for name in chart.MATRIX:
            for owner, _, pod in chart.pods(chart.case(name)):
                self.assertEqual("migrator" in json.dumps(pod), owner.startswith("Job/"), f"{name}: {owner}")

    def test_only_tests_are_hooks(self):
        for name in chart.MATRIX:
            for each in chart.case(name):
                hook = each["metadata"].get("annotations", {}).get("helm.sh/hook", "test")
                self.assertEqual(hook, "test", f"{name}: {each['metadata']['name']}")
