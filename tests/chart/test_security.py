"""Security rules for every pod and policy of the chart, for all values of the matrix."""

import json
import unittest

import chart


def user_of(labels):
    """Returns the user of a pod. The image of Postgres requires its own one."""
    return 999 if labels["app.kubernetes.io/component"] == "trial-postgres" else 65532


def peers_by_port(objects, component):
    """Returns the peers that the policy of a component accepts, by the name of the port; None for all peers."""
    rules = chart.named(objects, "NetworkPolicy", f"svc-{component}")["spec"]["ingress"]
    return {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}


def own_pods(component):
    """Returns the peer for the pods of a component of the release."""
    labels = {"name": "svc", "instance": "svc", "component": component}
    return {"podSelector": {"matchLabels": {f"app.kubernetes.io/{name}": value for name, value in labels.items()}}}


class SecurityRules(unittest.TestCase):
    def every_pod(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            for owner, labels, pod in chart.pods(chart.case(name)):
                with self.subTest(case=name, owner=owner):
                    yield labels, pod

    def every_container(self):
        for _, pod in self.every_pod():
            for container in chart.containers(pod):
                yield container

    def test_termination_message_falls_back_to_logs(self):
        for container in self.every_container():
            self.assertEqual(container["terminationMessagePolicy"], "FallbackToLogsOnError")

    def test_pod_security_restricted(self):
        """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
        for labels, pod in self.every_pod():
            context = pod["securityContext"]
            self.assertIs(context["runAsNonRoot"], True)
            self.assertEqual((context["runAsUser"], context["runAsGroup"]), (user_of(labels), user_of(labels)))
            self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
            for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
                self.assertNotIn(forbidden, pod)
            # The container `accounts` of NATS sends a signal to the server.
            signals = labels["app.kubernetes.io/component"] == "trial-nats"
            self.assertEqual(pod.get("shareProcessNamespace", False), signals)
            for volume in pod.get("volumes", []):
                kind = (set(volume) - {"name"}).pop()
                self.assertIn(kind, ("projected", "secret", "configMap", "emptyDir", "persistentVolumeClaim"))
            for container in chart.containers(pod):
                own = container["securityContext"]
                self.assertIs(own["allowPrivilegeEscalation"], False)
                self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                self.assertNotIn("privileged", own)
                self.assertFalse([port for port in container.get("ports", []) if "hostPort" in port])

    def test_security_contexts_can_be_replaced_and_fields_removed(self):
        """A restricted OpenShift cluster sets user and groups itself, or the values contain high ids."""
        high = {"podSecurityContext": {"runAsUser": 1000680000, "runAsGroup": 1000680000, "fsGroup": 1000680000}}
        more = {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "svc.json"}}}
        tested = {**chart.INGRESS, "tests": {"existingSecret": "svc-test"}}
        for values, ids in ((chart.OPENSHIFT, [None] * 3), (high, [1000680000] * 3)):
            found = list(chart.pods(chart.render({**tested, **values, **more})))
            self.assertEqual(len(found), 7)
            for owner, _, pod in found:
                context = pod["securityContext"]
                self.assertEqual([context.get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")], ids, owner)
                self.assertIs(context["runAsNonRoot"], True)
                for container in chart.containers(pod):
                    own = container["securityContext"]
                    self.assertEqual(own["seccompProfile"]["localhostProfile"], "svc.json", owner)
                    self.assertIs(own["readOnlyRootFilesystem"], True)

    def test_read_only_root(self):
        for container in self.every_container():
            self.assertIs(container["securityContext"]["readOnlyRootFilesystem"], True)

    def test_only_pods_that_call_the_api_server_or_authenticate_with_a_token_mount_one(self):
        reviewers = {component: [None] for component in chart.COMPONENTS}
        expected = {
            "operator": {**reviewers, "operator": [None, "svc-identity", "svc-session"]},
            "operator with consumers": {**reviewers, "operator": [None, "svc-identity", "svc-session", "svc-ingest"]},
            "ingest alone": {"ingest": [None]},
            # It creates the Secret of a trial.
            **{name: {"trial-secret": [None]} for name in chart.TRIALS},
        }
        for name in (*chart.MATRIX, *chart.TRIALS):
            found = {}
            for _, labels, pod in chart.pods(chart.case(name)):
                self.assertIs(pod["automountServiceAccountToken"], False)
                sources = [s for volume in pod.get("volumes", []) for s in volume.get("projected", {}).get("sources", [])]
                tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
                if tokens:
                    found[labels["app.kubernetes.io/component"]] = [token.get("audience") for token in tokens]
            self.assertEqual(found, expected.get(name, {}), name)
        for account in chart.of_kind(chart.case("required values only"), "ServiceAccount"):
            self.assertIs(account["automountServiceAccountToken"], False)

    def test_no_service_links(self):
        for _, pod in self.every_pod():
            self.assertIs(pod["enableServiceLinks"], False)

    def test_requests_and_a_limit_of_memory(self):
        for container in self.every_container():
            self.assertLessEqual({"cpu", "memory"}, set(container["resources"]["requests"]))
            self.assertIn("memory", container["resources"]["limits"])

    def test_bounded_scratch_volumes(self):
        for _, pod in self.every_pod():
            for volume in pod.get("volumes", []):
                if "emptyDir" in volume:
                    self.assertIn("sizeLimit", volume["emptyDir"])

    def test_fully_qualified_images(self):
        for container in self.every_container():
            host, _, rest = container["image"].partition("/")
            self.assertTrue("." in host and rest, container["image"])
            self.assertFalse(container["image"].endswith(":latest"), container["image"])

    def test_secrets_come_as_files(self):
        """Crash reports, child processes and `kubectl describe` show environment variables."""
        for container in self.every_container():
            self.assertNotIn("envFrom", container)
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef", {"key": "email"})
                self.assertIn(reference["key"], ("tenant", "email"), variable["name"])

    def test_secret_files_are_readable_by_owner_and_group_only(self):
        for labels, pod in self.every_pod():
            for volume in pod.get("volumes", []):
                for kind in ("projected", "secret"):
                    if kind in volume:
                        self.assertEqual(volume[kind]["defaultMode"], 0o440)
                        self.assertEqual(pod["securityContext"]["fsGroup"], user_of(labels))

    def test_pods_mount_only_the_keys_that_they_read(self):
        wanted = {
            "Deployment/svc-identity": {
                "svc-database/identity-url",
                "svc-nats/identity-url",
                "svc-tokens/service-token",
                "svc-tokens/platform-token",
                "svc-tokens/limiter-key",
                "svc-tokens/factor-key",
            },
            "Deployment/svc-session": {
                "svc-database/session-url",
                "svc-nats/session-url",
                "svc-tokens/service-token",
                "svc-tokens/platform-token",
            },
            "Deployment/svc-ingest": {
                "svc-nats/ingest-url",
                "svc-tokens/service-token",
                "svc-tokens/platform-token",
            },
        }
        for owner, _, pod in chart.pods(chart.case("required values only")):
            sources = [s["secret"] for v in pod.get("volumes", []) for s in v.get("projected", {}).get("sources", [])]
            keys = {f"{source['name']}/{item['key']}" for source in sources for item in source["items"]}
            if owner in wanted:
                self.assertEqual(keys, wanted[owner], owner)

    def test_chart_generates_no_secrets(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            self.assertFalse(chart.of_kind(chart.case(name), "Secret"), name)
        for template in (chart.CHART / "templates").rglob("*"):
            if template.is_file():
                for forbidden in (
                    "randAlpha",
                    "randNumeric",
                    "randBytes",
                    "genCA",
                    "genPrivateKey",
                    "lookup",
                    "derivePassword",
                ):
                    # The name of a migration depends on an existing Job, and a service account is the owner of Jobs.
                    text = template.read_text().replace('lookup "batch/v1" "Job"', "").replace('lookup "v1" "ServiceAccount"', "")
                    self.assertNotIn(forbidden, text, template.name)

    def test_every_pod_of_a_component_has_a_network_policy(self):
        for name in (*chart.MATRIX, *chart.TRIALS):
            if name == "no policies, no migrations":
                continue
            objects = chart.case(name)
            policies = [p["spec"]["podSelector"]["matchLabels"] for p in chart.of_kind(objects, "NetworkPolicy")]
            for owner, labels, _ in chart.pods(objects):
                if labels["app.kubernetes.io/component"] != "test":
                    self.assertTrue(any(policy.items() <= labels.items() for policy in policies), f"{name}: {owner}")

    def test_only_the_services_reach_the_internal_api(self):
        callers = {"svc-session": {"identity", "ingest"}, "svc-identity": {"session"}, "svc-ingest": set()}
        for name in ("svc-session", "svc-identity"):
            rules = chart.named(chart.case("required values only"), "NetworkPolicy", name)["spec"]["ingress"]
            self.assertEqual([port["port"] for rule in rules for port in rule["ports"]], ["public", "internal"])
        for name in chart.MATRIX:
            for policy in chart.of_kind(chart.case(name), "NetworkPolicy"):
                for rule in policy["spec"].get("ingress", []):
                    if [port["port"] for port in rule["ports"]] == ["public"]:
                        continue
                    self.assertTrue(rule["from"], policy["metadata"]["name"])
                    if [port["port"] for port in rule["ports"]] == ["internal"]:
                        peers = {
                            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]
                        }
                        operator = {"operator"} if name.startswith("operator") else set()
                        self.assertEqual(peers, callers[policy["metadata"]["name"]] | operator)
                        self.assertFalse([peer for peer in rule["from"] if "namespaceSelector" in peer])

    def test_configured_peers_reach_the_internal_api_of_their_component_too(self):
        peers = {
            called: {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/component": caller}}}
            for called, caller in {"identity": "session", "session": "ingest"}.items()
        }
        objects = chart.render({"networkPolicy": {"internalFrom": {called: [peer] for called, peer in peers.items()}}})
        for component, callers in {"identity": ["session"], "session": ["identity", "ingest"], "ingest": None}.items():
            expected = callers and [*map(own_pods, callers), peers[component]]
            self.assertEqual(peers_by_port(objects, component).get("internal"), expected, component)

    def test_egress_rules_for_nats_can_allow_the_session_of_another_release(self):
        session = {"to": [{"namespaceSelector": {}, "podSelector": own_pods("session")["podSelector"]}], "ports": [{"port": 8081}]}
        egress = {"enabled": True, "nats": [chart.NATS, session], "kubernetes": [chart.API_SERVER]}
        objects = chart.render({**chart.MATRIX["ingest alone"], "networkPolicy": {"egress": egress}})
        rules = chart.named(objects, "NetworkPolicy", "svc-ingest")["spec"]["egress"]
        self.assertEqual([rule for rule in rules if rule in egress["nats"]], egress["nats"])

    def test_only_the_configured_peers_and_helm_test_reach_the_other_ports(self):
        policy = chart.EVERYTHING["networkPolicy"]
        for component in chart.COMPONENTS:
            peers = peers_by_port(chart.case("all features"), component)
            self.assertEqual(peers["public"], [*policy["publicFrom"], own_pods("test")], component)
            self.assertEqual(peers["admin"], policy["adminFrom"], component)
        expected = {"admin": chart.OPERATOR["networkPolicy"]["adminFrom"]}
        self.assertEqual(peers_by_port(chart.case("operator"), "operator"), expected)

    def test_services_may_call_the_internal_apis_that_they_use(self):
        objects = chart.case("operator")
        callees = {"identity": ["session"], "ingest": ["session"], "session": ["identity"], "operator": ["identity", "session"]}
        for caller, called in callees.items():
            rules = chart.named(objects, "NetworkPolicy", f"svc-{caller}")["spec"]["egress"]
            internal = [rule for rule in rules if [port["port"] for port in rule["ports"]] == ["internal"]]
            peers = [peer["podSelector"]["matchLabels"] for rule in internal for peer in rule["to"]]
            self.assertEqual([peer["app.kubernetes.io/component"] for peer in peers], called, caller)
        objects = chart.case("operator with consumers")
        self.assertEqual(peers_by_port(objects, "ingest")["internal"], [own_pods("operator")])
        (called,) = [rule for rule in chart.named(objects, "NetworkPolicy", "svc-operator")["spec"]["egress"] if rule["ports"] == [{"port": "internal"}]]
        self.assertEqual(called["to"], [*map(own_pods, ("identity", "session", "ingest"))])

    def test_admin_port_is_closed_by_default(self):
        policies = chart.of_kind(chart.case("required values only"), "NetworkPolicy")
        self.assertNotIn("admin", json.dumps([policy["spec"].get("ingress") for policy in policies]))
