"""The chart as a dependency of an umbrella chart: names, selectors and shared values."""

import itertools
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import chart
import test_values


def render(dependencies, values, release="plat", defaults=None):
    """Returns the objects of an umbrella chart with these dependencies on this chart."""
    with tempfile.TemporaryDirectory() as folder:
        umbrella = Path(folder, "umbrella")
        shutil.copytree(chart.CHART, umbrella / "charts/svc")
        about = {"apiVersion": "v2", "name": "umbrella", "version": "0.1.0"}
        about["dependencies"] = [{"name": "svc", "version": "0.1.0", **each} for each in dependencies]
        (umbrella / "Chart.yaml").write_text(json.dumps(about))
        (umbrella / "values.yaml").write_text(json.dumps(defaults or {}))
        run = chart.template(values, folder=umbrella, release=release)
    assert run.returncode == 0, run.stderr
    return [each for each in chart.yaml.load_all(run.stdout, chart.LOADER) if each]


def selectors(objects):
    """Yields (kind and name, labels) of everything that selects pods."""
    for each in objects:
        spec = each.get("spec", {})
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment", "StatefulSet", "PodMonitor"):
            chosen = spec.get("selector", spec.get("podSelector"))
            yield name, chosen.get("matchLabels", chosen)
        for peers in [rule.get("from", []) + rule.get("to", []) for rule in spec.get("ingress", []) + spec.get("egress", [])] if each["kind"] == "NetworkPolicy" else []:
            yield from ((name, peer["podSelector"]["matchLabels"]) for peer in peers if set(peer) == {"podSelector"})


class Umbrella(unittest.TestCase):
    def assert_separate(self, *installations):
        """Checks that no object has the name of another installation, and that nothing selects a pod of another installation."""
        for own, other in itertools.permutations(installations, 2):
            names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (own, other)]
            self.assertEqual(names[0] & names[1], set())
            chosen = list(selectors(own))
            self.assertGreater(len(chosen), 10)
            for owner, labels, _ in chart.pods(other):
                self.assertEqual([name for name, selector in chosen if selector.items() <= labels.items()], [], owner)
            for owner, labels, _ in chart.pods(own):
                self.assertTrue([name for name, selector in chosen if selector.items() <= labels.items()] or labels["app.kubernetes.io/component"] == "test", owner)

    def test_installations_of_one_release_share_no_names_and_no_pods(self):
        full = chart.merged(chart.merged(chart.LEAST, chart.PUBLIC_FROM), chart.merged(chart.OPERATOR, chart.INGRESS))
        full = chart.merged(full, {"monitoring": {"podMonitor": {"enabled": True}}, "operator": {"crds": {"enabled": False}}})
        for release, aliases, others in (
            ("plat", ("blue", "green"), {}),
            # The name of a release can contain the aliases.
            ("blue-green", ("blue", "green"), {}),
            ("plat", ("blue", "green"), {"nameOverride": "svc"}),
        ):
            values = {}
            for number, alias in enumerate(aliases):
                values[alias] = chart.merged(full, {**others, **({"fullnameOverride": f"svc-{number}"} if others else {})})
            dependencies = [{"alias": alias, "condition": f"{alias}.enabled"} for alias in aliases]
            installations = []
            for alias in aliases:
                disabled = {other: {"enabled": False} for other in aliases if other != alias}
                installations.append(render(dependencies, chart.merged(values, disabled), release))
            self.assertEqual(len(render(dependencies, values, release)), sum(map(len, installations)))
            self.assert_separate(*installations)

    def test_releases_of_one_namespace_share_no_names_and_no_pods(self):
        names = ("preview-feature-checkout-redesign-pr-1234", "preview-feature-checkout-redesign-pr-1299", "svc", "svc-two", "two")
        values = chart.merged(chart.PUBLIC_FROM, chart.INGRESS)
        self.assert_separate(*(chart.render(values, release=name) for name in names))

    def test_pull_secrets_of_other_charts_can_be_names(self):
        for shared in (["regcred"], [{"name": "regcred"}]):
            objects = render([{}], {"svc": chart.merged(chart.LEAST, {"imagePullSecrets": ["own"]}), "global": {"imagePullSecrets": shared}})
            for owner, _, pod in chart.pods(objects):
                self.assertEqual(pod["imagePullSecrets"], [{"name": "regcred"}, {"name": "own"}], owner)
            # Kubernetes merges the list by name.
            same = render([{}], {"svc": chart.merged(chart.LEAST, {"imagePullSecrets": ["regcred", {"name": "regcred"}]}), "global": {"imagePullSecrets": shared}})
            self.assertEqual([pod["imagePullSecrets"] for _, _, pod in chart.pods(same) if pod["imagePullSecrets"] != [{"name": "regcred"}]], [])

    def test_openshift_sets_the_users_also_from_the_values_of_the_umbrella_chart(self):
        tested = {"openshift": True, **chart.INGRESS, "tests": {"existingSecret": "svc-test"}, "operator": {"enabled": True}}
        objects = render([{}], {}, defaults={"svc": chart.merged(chart.LEAST, tested)})
        found = list(chart.pods(objects))
        self.assertGreater(len(found), 7)
        for owner, _, pod in found:
            context = pod["securityContext"]
            self.assertEqual({"runAsUser", "runAsGroup", "fsGroup"} & set(context), set(), owner)
            self.assertIs(context["runAsNonRoot"], True)

    def test_registry_of_the_umbrella_chart_is_the_default(self):
        objects = render([{}], {"svc": chart.merged(chart.LEAST, {"image": {"registry": ""}}), "global": {"imageRegistry": "mirror.example/svc"}})
        images = {container["image"] for _, _, pod in chart.pods(objects) for container in chart.containers(pod)}
        self.assertEqual(images, {f"mirror.example/svc/svc-{component}:1.2.3" for component in chart.COMPONENTS})

    def test_disabled_dependency_renders_nothing(self):
        self.assertEqual(render([{"condition": "svc.enabled"}], {"svc": {"enabled": False}}), [])


class Helpers(unittest.TestCase):
    """Pods of migrations, tests and a trial have the settings of the services."""

    CASES = (
        chart.merged({**chart.INGRESS, "tests": {"existingSecret": "svc-test"}}, chart.OPERATOR),
        chart.TRIAL,
        chart.TRIALS["trial behind an ingress"],
    )

    def test_a_cpu_limit_for_every_pod_satisfies_a_quota(self):
        limits = {path[:-1]: f"{number + 100}m" for number, path in enumerate(test_values.KEYS) if path[-1] == "resources"}
        limited = {}
        for path, limit in limits.items():
            limited = chart.merged(limited, test_values.nested((*path, "resources", "limits"), {"cpu": limit}))
        used = set()
        for case in self.CASES:
            for owner, labels, pod in chart.pods(chart.render(chart.merged(case, limited))):
                component = labels["app.kubernetes.io/component"]
                for container in chart.containers(pod):
                    path = self.path(component, container["name"])
                    self.assertEqual(container["resources"]["limits"]["cpu"], limits[path], f"{owner} {container['name']}")
                    used.add(path)
        self.assertEqual(used, set(limits))

    def path(self, component, container):
        """Returns the path of the values of a container."""
        if component == "test":
            return ("tests",)
        if container in ("wait-for-migrations", "accounts-init", "accounts") or component.endswith("-migration") or component in ("trial-secret", "trial-tenant"):
            return ("migrations",)
        return tuple(component.split("-"))

    def test_node_selector_and_tolerations_reach_every_pod(self):
        everywhere = {"nodeSelector": {"pool": "svc", "disk": "any"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
        own = {"identity": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "disk", "operator": "Exists"}]}}
        for case in self.CASES:
            for owner, labels, pod in chart.pods(chart.render(chart.merged(case, {**everywhere, **own}))):
                is_own = labels["app.kubernetes.io/component"].removesuffix("-migration") == "identity"
                self.assertEqual(pod["nodeSelector"], {"pool": "svc", "disk": "ssd" if is_own else "any"}, owner)
                self.assertEqual([each["key"] for each in pod["tolerations"]], ["disk", "dedicated"] if is_own else ["dedicated"], owner)

    def test_common_labels_reach_every_object_and_pod(self):
        for case in self.CASES:
            objects = chart.render(chart.merged(case, {"commonLabels": {"team": "platform"}}))
            self.assertEqual([each for each in objects if each["metadata"]["labels"].get("team") != "platform"], [])
            self.assertEqual([owner for owner, labels, _ in chart.pods(objects) if labels.get("team") != "platform"], [])

    def test_sidecars_are_excluded_from_jobs_and_tests_alone(self):
        no_sidecar = {"podLabels": {"sidecar.istio.io/inject": "false"}, "podAnnotations": {"linkerd.io/inject": "disabled"}}
        for case in self.CASES:
            for each in chart.render(chart.merged(case, {"migrations": no_sidecar, "tests": no_sidecar, "podLabels": {"sidecar.istio.io/inject": "true"}})):
                pod = each if each["kind"] == "Pod" else each.get("spec", {}).get("template", {})
                if "containers" in pod.get("spec", {}):
                    is_job = each["kind"] in ("Job", "Pod")
                    metadata = pod["metadata"]
                    self.assertEqual(metadata["labels"]["sidecar.istio.io/inject"], "false" if is_job else "true", each["metadata"]["name"])
                    self.assertEqual("linkerd.io/inject" in metadata.get("annotations", {}), is_job, each["metadata"]["name"])

    def test_dns_is_reached_on_the_ports_of_its_pods(self):
        for values, ports in (({}, {53}), ({"openshift": True}, {53, 5353}), ({"networkPolicy": {"egress": {"dnsPorts": [8053]}}}, {8053})):
            policies = [each for each in chart.of_kind(chart.render(chart.merged(chart.OPERATOR, values)), "NetworkPolicy") if "egress" in each["spec"]]
            self.assertEqual(len(policies), 6)
            for policy in policies:
                self.assertEqual({port["port"] for port in policy["spec"]["egress"][0]["ports"]}, ports)
                self.assertEqual({port["protocol"] for port in policy["spec"]["egress"][0]["ports"]}, {"UDP", "TCP"})
