"""The operator: its rights, its definitions of custom resources, and the tokens that it and the producers authenticate with."""

import json
import re
import unittest

import chart

RIGHTS = {
    "ClusterRole/there-svc-operator": {
        "svc.internal/svctenants: list patch watch",
        "svc.internal/svcproducers: list watch",
        "svc.internal/svctenants/status: patch",
        "svc.internal/svcproducers/status: patch",
        "/namespaces: list watch",
        "events.k8s.io/events: create patch",
    },
    "Role/svc-operator": {
        "coordination.k8s.io/leases svc-operator: get update",
        # Argo CD does not create the Lease of the chart.
        "coordination.k8s.io/leases: create",
        "/secrets: create delete get list patch watch",
    },
    "ClusterRole/there-svc-token-review": {"authentication.k8s.io/tokenreviews: create"},
    "ClusterRole/there-svc-producers-edit": {"svc.internal/svcproducers: create delete deletecollection patch update"},
    "ClusterRole/there-svc-producers-view": {"svc.internal/svcproducers: get list watch"},
}
WITH_CONSUMERS = {
    **RIGHTS,
    "ClusterRole/there-svc-operator": RIGHTS["ClusterRole/there-svc-operator"] | {
        "svc.internal/svcconsumers: list watch",
        "svc.internal/svcconsumers/status: patch",
        "/secrets: create delete get list patch watch",
    },
    **{
        f"ClusterRole/there-svc-producers-{role}": {f"svc.internal/{resource}: {verbs}" for resource in ("svcproducers", "svcconsumers")}
        for role, verbs in (("edit", "create delete deletecollection patch update"), ("view", "get list watch"))
    },
}  # fmt: skip
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"


def rights(objects):
    """Returns the rights of each role, as `<group>/<resource>[ <name>]: <verbs>`."""
    found = {}
    for role in chart.of_kind(objects, "ClusterRole", "Role"):
        verbs = {}
        for rule in role["rules"]:
            for resource in rule["resources"]:
                name = " ".join([f"{rule['apiGroups'][0]}/{resource}", *rule.get("resourceNames", [])])
                verbs.setdefault(name, set()).update(rule["verbs"])
        found[f"{role['kind']}/{role['metadata']['name']}"] = {f"{name}: {' '.join(sorted(each))}" for name, each in verbs.items()}
    return found


def bound(objects):
    """Returns the service accounts of each binding by its role."""
    bindings = chart.of_kind(objects, "ClusterRoleBinding", "RoleBinding")
    return {f"{each['roleRef']['kind']}/{each['roleRef']['name']}": {s["name"] for s in each["subjects"]} for each in bindings}


def environment(objects, component):
    spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
    return {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}


def undescribed(schema, path):
    """Returns the paths of the fields without a description, which `kubectl explain` prints."""
    fields = schema.get("properties", {}) | ({"[]": schema["items"]} if "properties" in schema.get("items", {}) else {})
    found = [f"{path}.{name}" for name, field in fields.items() if name != "[]" and not field.get("description")]
    return found + [each for name, field in fields.items() for each in undescribed(field, f"{path}.{name}")]


class Operator(unittest.TestCase):
    def setUp(self):
        self.objects = chart.case("operator")

    def test_roles_have_exactly_the_listed_rights(self):
        self.assertEqual(rights(self.objects), RIGHTS)
        self.assertEqual(rights(chart.case("operator with consumers")), WITH_CONSUMERS)

    def test_roles_are_bound_to_the_accounts_that_need_them(self):
        self.assertEqual(
            bound(self.objects),
            {
                "ClusterRole/there-svc-operator": {"svc-operator"},
                "Role/svc-operator": {"svc-operator"},
                "ClusterRole/there-svc-token-review": {"svc-identity", "svc-session", "svc-ingest"},
            },
        )

    def test_roles_of_a_namespace_include_its_producers(self):
        aggregated = {
            each["metadata"]["name"]: {label.removeprefix(AGGREGATED) for label in each["metadata"]["labels"] if label.startswith(AGGREGATED)}
            for each in chart.of_kind(self.objects, "ClusterRole")
        }
        found = {name: roles for name, roles in aggregated.items() if roles}
        self.assertEqual(found, {"there-svc-producers-edit": {"admin", "edit"}, "there-svc-producers-view": {"view"}})

    def test_without_the_operator_nothing_has_rights(self):
        for name in chart.MATRIX:
            objects = chart.case(name)
            if name not in ("operator", "operator with consumers", "ingest alone"):
                self.assertFalse(rights(objects), name)
                self.assertFalse(bound(objects), name)
                self.assertFalse(chart.of_kind(objects, "CustomResourceDefinition"), name)

    def test_definitions_are_those_of_the_program_and_outlive_the_release(self):
        found = chart.of_kind(chart.case("operator with consumers"), "CustomResourceDefinition")
        printed = json.loads((chart.CHART / "files/crds.json").read_text())
        # What `kubectl apply` reads.
        self.assertEqual((printed["apiVersion"], printed["kind"]), ("v1", "List"))
        generated = printed["items"]
        self.assertEqual({each["spec"]["names"]["kind"] for each in generated}, {"SvcTenant", "SvcProducer", "SvcConsumer"})
        without_consumers = chart.of_kind(self.objects, "CustomResourceDefinition")
        self.assertEqual({each["spec"]["names"]["kind"] for each in without_consumers}, {"SvcTenant", "SvcProducer"})
        self.assertEqual([each["spec"] for each in found], [each["spec"] for each in generated])
        for each, own in zip(found, generated):
            self.assertEqual(each["metadata"]["name"], own["metadata"]["name"])
            self.assertEqual(each["metadata"]["annotations"], {"helm.sh/resource-policy": "keep"})
        without = chart.render({"operator": {"enabled": True, "crds": {"enabled": False}}})
        self.assertFalse(chart.of_kind(without, "CustomResourceDefinition"))

    def test_every_field_of_a_definition_is_described(self):
        for definition in chart.of_kind(chart.case("operator with consumers"), "CustomResourceDefinition"):
            for version in definition["spec"]["versions"]:
                self.assertEqual(undescribed(version["schema"]["openAPIV3Schema"], definition["spec"]["names"]["kind"]), [])

    def test_identity_and_session_accept_its_service_account(self):
        account = chart.named(self.objects, "Deployment", "svc-operator")["spec"]["template"]["spec"]["serviceAccountName"]
        for component in ("identity", "session"):
            self.assertEqual(environment(self.objects, component)["SVC_OPERATOR"], f"there/{account}")
            self.assertNotIn("SVC_OPERATOR", environment(chart.case("required values only"), component))

    def test_ingest_accepts_service_accounts_with_the_operator_or_by_itself(self):
        for case, expected in (("operator", "on"), ("ingest alone", "on"), ("required values only", "off")):
            self.assertEqual(environment(chart.case(case), "ingest")["SVC_WORKLOAD_IDENTITY"], expected, case)
        alone = chart.case("ingest alone")
        review = "ClusterRole/there-svc-token-review"
        self.assertEqual((rights(alone), bound(alone)), ({review: RIGHTS[review]}, {review: {"svc-ingest"}}))

    def test_tokens_and_ca_are_where_the_programs_read_them(self):
        table = (chart.ROOT / "docs/configuration.md").read_text()
        defaults = dict(re.findall(r"^\| `(SVC_\w+)` \| [^|]+ \| `(/var/run/secrets/[^`]+)`", table, re.MULTILINE))
        self.assertEqual(len(defaults), 5)
        objects = chart.case("operator with consumers")
        for component, names in {
            "operator": set(defaults),
            **{name: {"SVC_KUBERNETES_CA_FILE", "SVC_KUBERNETES_TOKEN_FILE"} for name in chart.COMPONENTS},
        }.items():
            spec = chart.named(objects, "Deployment", f"svc-{component}")["spec"]["template"]["spec"]
            mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
            files = set()
            for volume in spec["volumes"]:
                for source in volume.get("projected", {}).get("sources", []):
                    for content in source.values():
                        files |= {f"{mounts[volume['name']]}/{item['path']}" for item in content.get("items", [content])}
            self.assertLessEqual({defaults[name] for name in names}, files, component)

    def test_pods_know_their_name_and_namespace_and_share_a_lease(self):
        (container,) = chart.named(self.objects, "Deployment", "svc-operator")["spec"]["template"]["spec"]["containers"]
        self.assertIn({"name": "SVC_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, container["env"])
        env = environment(self.objects, "operator")
        (role,) = chart.of_kind(self.objects, "Role")
        names = {name for rule in role["rules"] for name in rule.get("resourceNames", [])}
        self.assertEqual((env["SVC_NAMESPACE"], {env["SVC_LEASE"]}), ("there", names))
        self.assertEqual(container["ports"], [{"name": "admin", "containerPort": 9090}])

    def test_the_lease_is_deleted_with_the_release_and_the_pods_write_its_content(self):
        lease = chart.named(chart.case("operator"), "Lease", "svc-operator")
        self.assertNotIn("spec", lease)
        self.assertNotIn("annotations", lease["metadata"])
        self.assertFalse(chart.of_kind(chart.case("required values only"), "Lease"))

    def test_pods_know_the_release_and_what_they_may_take_over_and_release(self):
        env = environment(self.objects, "operator")
        self.assertEqual((env["SVC_RELEASE"], env["SVC_CONFIRMED_RELEASES"]), ("svc", "0"))
        self.assertNotIn("SVC_TAKE_OVER_FROM", env)
        ids = [f"018f2e6e-7c1d-7000-8000-00000000000{number}/svc/blue" for number in (1, 2)]
        env = environment(chart.render({"operator": {"enabled": True, "takeOverFrom": ids, "confirmedReleases": 2000000}}), "operator")
        self.assertEqual((env["SVC_TAKE_OVER_FROM"], env["SVC_CONFIRMED_RELEASES"]), (",".join(ids), "2000000"))
        for wrong in ("svc/blue", "018f2e6e/svc/blue", ids[0] + "/more"):
            self.assertIn("takeOverFrom", chart.error({"operator": {"enabled": True, "takeOverFrom": [wrong]}}))

    def test_only_pods_that_call_the_api_server_may_connect_to_it(self):
        for component in (*chart.COMPONENTS, "operator"):
            policy = chart.named(self.objects, "NetworkPolicy", f"svc-{component}")["spec"]
            self.assertIn(chart.API_SERVER, policy["egress"], component)
            self.assertIn(chart.COLLECTOR, policy["egress"], component)
        values = chart.merged(chart.OPERATOR, {"operator": {"enabled": False}, "workloadIdentity": {"enabled": True}})
        objects = chart.render(values)
        allowed = [c for c in chart.COMPONENTS if chart.API_SERVER in chart.named(objects, "NetworkPolicy", f"svc-{c}")["spec"]["egress"]]
        self.assertEqual(allowed, ["ingest"])

    def test_only_with_consumers_the_operator_calls_ingest(self):
        port = {"name": "internal", "containerPort": 8081}
        for case, expected in (("operator with consumers", True), ("operator", False), ("required values only", False)):
            objects = chart.case(case)
            ingest = environment(objects, "ingest")
            self.assertEqual(ingest.get("SVC_OPERATOR"), "there/svc-operator" if expected else None, case)
            container = chart.named(objects, "Deployment", "svc-ingest")["spec"]["template"]["spec"]["containers"][0]
            services = {each["metadata"]["name"] for each in chart.of_kind(objects, "Service")}
            self.assertEqual((port in container["ports"], "svc-ingest-internal" in services), (expected, expected), case)
        objects = chart.case("operator with consumers")
        env = environment(objects, "operator")
        self.assertEqual(env["SVC_INGEST_URL"], "http://svc-ingest-internal:8081")
        self.assertEqual(env["SVC_CONSUMER_NATS_URL"], "nats://nats.example.com:4222")
        self.assertFalse({"SVC_INGEST_URL", "SVC_CONSUMER_NATS_URL"} & set(environment(self.objects, "operator")))

    def test_addresses_for_consumers_have_no_login(self):
        for wrong in ("nats.example.com:4222", "nats://user:password@nats.example.com", "http://nats.example.com"):
            values = {"operator": {"enabled": True, "consumers": {"enabled": True, "natsUrl": wrong}}}
            self.assertIn("natsUrl", chart.error(values), wrong)

    def test_values_reach_its_pods(self):
        values = {
            "replicas": 3, "extraEnv": [{"name": "RUST_BACKTRACE", "value": "1"}],
            "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "affinity": {"podAntiAffinity": {}},
            "resources": {"limits": {"memory": "1Gi"}}, "image": {"repository": "other.example/operator"},
            "podDisruptionBudget": {"maxUnavailable": 2}, "serviceAccount": {"annotations": {"example.com/a": "b"}},
        }  # fmt: skip
        objects = chart.render({"operator": {"enabled": True, **values}})
        deployment = chart.named(objects, "Deployment", "svc-operator")["spec"]
        spec = deployment["template"]["spec"]
        self.assertEqual(deployment["replicas"], 3)
        self.assertEqual({name: spec[name] for name in ("nodeSelector", "tolerations", "affinity")}, {name: values[name] for name in ("nodeSelector", "tolerations", "affinity")})
        self.assertEqual(environment(objects, "operator")["RUST_BACKTRACE"], "1")
        self.assertEqual(spec["containers"][0]["image"], "other.example/operator:1.2.3")
        self.assertEqual(spec["containers"][0]["resources"]["limits"], {"memory": "1Gi"})
        self.assertEqual(chart.named(objects, "PodDisruptionBudget", "svc-operator")["spec"]["maxUnavailable"], 2)
        self.assertEqual(chart.named(objects, "ServiceAccount", "svc-operator")["metadata"]["annotations"], {"example.com/a": "b"})
        monitored = chart.render({"operator": {"enabled": True}, "monitoring": {"podMonitor": {"enabled": True}}, "networkPolicy": {"adminFrom": [{"namespaceSelector": {}}]}})
        selected = chart.named(monitored, "PodMonitor", "svc")["spec"]["selector"]["matchExpressions"][0]["values"]
        self.assertIn("operator", selected)
