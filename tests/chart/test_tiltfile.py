"""The Tiltfile, evaluated with a Starlark interpreter. Stubs record the calls to Tilt; the tests check that every path, image,
resource and dependency exists."""

import functools
import json
import shlex
import subprocess
import unittest
from types import SimpleNamespace

import starlark

import chart

# Python stubs cannot be values with attributes.
PRELUDE = "os = struct(getenv = _getenv)\n"


@functools.lru_cache(maxsize=None)
def evaluated(context="kind-svc"):
    """Returns the recorded calls of the Tiltfile in a context of kubectl."""
    calls = SimpleNamespace(contexts=[], yaml=[], images={}, resources={}, local={}, watched=[], commands=[], links=[])
    module = starlark.Module()
    for name, function in stubs(calls, context).items():
        module.add_callable(name, function)
    module["TRIGGER_MODE_MANUAL"] = "manual"
    extensions = [starlark.LibraryExtension.StructType, starlark.LibraryExtension.Print]
    built_in = starlark.Globals.extended_by(extensions)
    dialect = starlark.Dialect.standard()
    source = PRELUDE + (chart.ROOT / "Tiltfile").read_text()
    starlark.eval(module, starlark.parse("Tiltfile", source, dialect), built_in)
    return calls


def stubs(calls, context):
    """Functions of Tilt (https://docs.tilt.dev/api.html), with the parameters that the Tiltfile uses."""

    def fail(message):
        raise RuntimeError(message)

    def allow_k8s_contexts(names):
        calls.contexts += names

    def local(command, quiet=False):
        calls.commands.append(command)
        return subprocess.run(shlex.split(command), cwd=chart.ROOT, capture_output=True, text=True, check=True).stdout

    def helm(path, name, namespace, values, set, kube_version):
        calls.commands.append(f"helm {path}")
        arguments = [part for file in values for part in ("--values", chart.ROOT / file)]
        arguments += [part for each in set for part in ("--set", each)]
        run = chart.helm("template", name, chart.ROOT / path, "--namespace", namespace, "--kube-version", kube_version, *arguments)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def k8s_yaml(text):
        calls.yaml += [each for each in chart.yaml.load_all(text, chart.LOADER) if each]

    def k8s_resource(workload=None, new_name=None, objects=(), resource_deps=(), links=(), labels=()):
        calls.resources[new_name or workload] = SimpleNamespace(
            workload=workload, objects=list(objects), deps=list(resource_deps)
        )
        calls.links += links

    def local_resource(name, cmd, deps=(), resource_deps=(), labels=(), auto_init=True, trigger_mode="auto"):
        calls.local[name] = SimpleNamespace(
            command=cmd, paths=list(deps), deps=list(resource_deps), auto_init=auto_init, trigger=trigger_mode
        )

    def custom_build(ref, command, deps, ignore=(), disable_push=False, skips_local_docker=False):
        calls.images[ref] = SimpleNamespace(
            command=command, paths=list(deps), kept_from_docker=disable_push and skips_local_docker
        )

    return {
        "k8s_context": lambda: context, "fail": fail,
        "allow_k8s_contexts": allow_k8s_contexts, "local": local, "helm": helm, "k8s_yaml": k8s_yaml,
        "k8s_resource": k8s_resource, "local_resource": local_resource, "custom_build": custom_build,
        "watch_file": calls.watched.append, "blob": lambda text: text, "link": lambda url, name: url,
        "_getenv": lambda name, default="": {"SVC_TILT_CONTEXTS": "mine,other"}.get(name, default),
        "decode_json": json.loads, "encode_json": json.dumps,
        "decode_yaml_stream": lambda text: [each for each in chart.yaml.load_all(text, chart.LOADER) if each],
    }  # fmt: skip


class Tiltfile(unittest.TestCase):
    def names(self):
        calls = evaluated()
        return set(calls.local) | set(calls.resources)

    def test_watched_paths_exist(self):
        calls = evaluated()
        paths = calls.watched + [path for each in [*calls.local.values(), *calls.images.values()] for path in each.paths]
        self.assertGreater(len(paths), 20)
        for path in paths:
            self.assertTrue((chart.ROOT / path).exists(), path)

    def test_commands_exist(self):
        calls = evaluated()
        for command in [each.command for each in [*calls.local.values(), *calls.images.values()]]:
            words = shlex.split(command)
            self.assertIn(words[0], ("python3", "make"), command)
            if words[0] == "python3":
                self.assertTrue((chart.ROOT / words[1]).is_file(), command)
            else:
                self.assertRegex((chart.ROOT / "Makefile").read_text(), rf"(?m)^{words[1]}:", command)

    def test_options_of_commands_exist(self):
        for name, option in (
            ("image.py", "--only-build"),
            ("image.py", "--reference"),
            ("image.py", "--load"),
            ("image.py", "--context"),
            ("dev/dev.py", "--context"),
            ("dev/dev.py", "migrate"),
        ):
            run = subprocess.run(
                ["python3", "-B", chart.ROOT / "deploy" / name, "--help"], capture_output=True, text=True
            )
            self.assertIn(option, run.stdout, name)

    def test_every_image_is_built_or_has_a_fully_qualified_name(self):
        calls = evaluated()
        used = {c["image"].rpartition(":")[0] for _, _, pod in chart.pods(calls.yaml) for c in chart.containers(pod)}
        self.assertLessEqual(set(calls.images), used)
        self.assertEqual(used - set(calls.images), {"docker.io/library/postgres", "docker.io/library/nats"})

    def test_workloads_and_resources_match(self):
        calls = evaluated()
        workloads = {each["metadata"]["name"] for each in chart.of_kind(calls.yaml, "Deployment", "Job", "Pod")}
        self.assertEqual(workloads, {each.workload for each in calls.resources.values() if each.workload})
        objects = {f"{each['metadata']['name']}:{each['kind'].lower()}" for each in calls.yaml}
        for each in calls.resources.values():
            self.assertLessEqual(set(each.objects), objects)

    def test_dependencies_exist_and_have_no_cycle(self):
        calls = evaluated()
        deps = {name: each.deps for name, each in {**calls.local, **calls.resources}.items()}
        self.assertFalse(set(calls.local) & set(calls.resources), "duplicate name")

        def visit(name, path):
            self.assertNotIn(name, path, "cycle")
            self.assertIn(name, deps)
            for following in deps[name]:
                visit(following, [*path, name])

        for name in deps:
            visit(name, [])

    def test_objects_wait_for_the_namespace(self):
        """Tilt applies objects without a resource at once."""
        calls = evaluated()
        waiting = [each for each in calls.resources.values() if "namespace" in each.deps]
        grouped = {name for each in waiting for name in each.objects}
        for each in calls.yaml:
            if each["kind"] not in ("Deployment", "Service", "Namespace"):
                self.assertIn(f"{each['metadata']['name']}:{each['kind'].lower()}", grouped)

    def test_services_wait_for_the_build_and_their_dependencies(self):
        calls = evaluated()
        self.assertEqual(calls.resources["svc-identity"].deps, ["build", "chart", "migrations"])
        self.assertEqual(calls.resources["svc-ingest"].deps, ["build", "chart", "nats"])
        self.assertEqual(calls.resources["svc-operator"].deps, ["build", "chart", "svc-identity", "svc-session"])

    def test_change_of_a_library_rebuilds_the_images_that_use_it(self):
        calls = evaluated()
        paths = set(calls.images["svc.localhost/svc-identity"].paths)
        self.assertLessEqual(
            {"services/identity", "libs/hashing", "libs/service", "libs/contract", "Cargo.lock"}, paths
        )
        self.assertNotIn("services/ingest", paths)
        self.assertNotIn("cli", paths)
        self.assertTrue(all(each.kept_from_docker for each in calls.images.values()))

    def test_objects_are_in_one_namespace_without_helm_tests(self):
        for each in evaluated().yaml:
            if each["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"):
                self.assertEqual(each["metadata"]["namespace"], "svc", each["metadata"]["name"])
            self.assertNotIn("helm.sh/hook", each["metadata"].get("annotations") or {})

    def test_pods_have_no_prestop_sleep(self):
        for each in chart.of_kind(evaluated().yaml, "Deployment"):
            self.assertNotIn("lifecycle", each["spec"]["template"]["spec"]["containers"][0])

    def test_only_listed_contexts_are_allowed(self):
        contexts = evaluated("mine").contexts
        self.assertIn("kind-svc", contexts)
        self.assertIn("mine", contexts)
        self.assertNotIn("", contexts)
        # Tilt allows these itself.
        for context in ("staging", "kind-staging", "orbstack", "colima"):
            with self.assertRaisesRegex(Exception, f"the context is {context}, but Tilt is only for .*: switch, or set SVC_TILT_CONTEXTS"):
                evaluated(context)

    def test_every_command_that_connects_to_the_cluster_names_its_context(self):
        calls = evaluated("other")
        connecting = []
        for command in [*calls.commands, *(each.command for each in [*calls.local.values(), *calls.images.values()])]:
            words = shlex.split(command)
            programs = {word.rpartition("/")[2] for word in words}
            if {"kubectl", "load.py", "--load"} & programs or ("dev.py" in programs and "manifests" not in programs):
                self.assertEqual(words[words.index("--context") + 1], "other", command)
                connecting.append(command)
        self.assertEqual(len(connecting), 8)

    def test_a_new_dependency_of_a_package_is_seen(self):
        self.assertLessEqual({"services/identity/Cargo.toml", "libs/contract/Cargo.toml"}, set(evaluated().watched))

    def test_buttons_are_manual(self):
        calls = evaluated()
        for name in ("test-chart", "test-all", "lint", "new-tenant"):
            self.assertEqual((calls.local[name].auto_init, calls.local[name].trigger), (False, "manual"))
