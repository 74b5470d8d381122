"""The Tiltfile, evaluated by a real Starlark interpreter over stand-ins that record what Tilt would be told: every path,
image, resource and dependency that it names exists."""

import functools
import json
import shlex
import subprocess
import unittest
from types import SimpleNamespace

import starlark

import chart

# What the stand-ins cannot be in Python: values with attributes.
PRELUDE = "os = struct(getenv = _getenv)\n"


@functools.lru_cache(maxsize=None)
def evaluated():
    """What the Tiltfile told Tilt."""
    told = SimpleNamespace(contexts=[], yaml=[], images={}, resources={}, local={}, watched=[], commands=[], links=[])
    module = starlark.Module()
    for name, function in stand_ins(told).items():
        module.add_callable(name, function)
    module["TRIGGER_MODE_MANUAL"] = "manual"
    extensions = [starlark.LibraryExtension.StructType, starlark.LibraryExtension.Print]
    built_in = starlark.Globals.extended_by(extensions)
    dialect = starlark.Dialect.standard()
    source = PRELUDE + (chart.ROOT / "Tiltfile").read_text()
    starlark.eval(module, starlark.parse("Tiltfile", source, dialect), built_in)
    return told


def stand_ins(told):
    """Tilt's functions (https://docs.tilt.dev/api.html) with exactly the parameters that the Tiltfile uses."""

    def allow_k8s_contexts(names):
        told.contexts += names

    def local(command, quiet=False):
        told.commands.append(command)
        return subprocess.run(shlex.split(command), cwd=chart.ROOT, capture_output=True, text=True, check=True).stdout

    def helm(path, name, namespace, values, set, kube_version):
        told.commands.append(f"helm {path}")
        arguments = [part for file in values for part in ("--values", chart.ROOT / file)]
        arguments += [part for each in set for part in ("--set", each)]
        run = chart.helm("template", name, chart.ROOT / path, "--namespace", namespace, "--kube-version", kube_version, *arguments)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def k8s_yaml(text):
        told.yaml += [each for each in chart.yaml.load_all(text, chart.LOADER) if each]

    def k8s_resource(workload=None, new_name=None, objects=(), resource_deps=(), links=(), labels=()):
        told.resources[new_name or workload] = SimpleNamespace(
            workload=workload, objects=list(objects), deps=list(resource_deps)
        )
        told.links += links

    def local_resource(name, cmd, deps=(), resource_deps=(), labels=(), auto_init=True, trigger_mode="auto"):
        told.local[name] = SimpleNamespace(
            command=cmd, paths=list(deps), deps=list(resource_deps), auto_init=auto_init, trigger=trigger_mode
        )

    def custom_build(ref, command, deps, ignore=(), disable_push=False, skips_local_docker=False):
        told.images[ref] = SimpleNamespace(
            command=command, paths=list(deps), kept_from_docker=disable_push and skips_local_docker
        )

    return {
        "allow_k8s_contexts": allow_k8s_contexts, "local": local, "helm": helm, "k8s_yaml": k8s_yaml,
        "k8s_resource": k8s_resource, "local_resource": local_resource, "custom_build": custom_build,
        "watch_file": told.watched.append, "blob": lambda text: text, "link": lambda url, name: url,
        "_getenv": lambda name, default="": {"SVC_TILT_CONTEXTS": "mine,other"}.get(name, default),
        "decode_json": json.loads, "encode_json": json.dumps,
        "decode_yaml_stream": lambda text: [each for each in chart.yaml.load_all(text, chart.LOADER) if each],
    }  # fmt: skip


class Tiltfile(unittest.TestCase):
    def names(self):
        told = evaluated()
        return set(told.local) | set(told.resources)

    def test_every_path_that_is_watched_exists(self):
        told = evaluated()
        paths = told.watched + [path for each in [*told.local.values(), *told.images.values()] for path in each.paths]
        self.assertGreater(len(paths), 20)
        for path in paths:
            self.assertTrue((chart.ROOT / path).exists(), path)

    def test_every_program_that_is_run_exists(self):
        told = evaluated()
        for command in [each.command for each in [*told.local.values(), *told.images.values()]]:
            words = shlex.split(command)
            self.assertIn(words[0], ("python3", "make"), command)
            if words[0] == "python3":
                self.assertTrue((chart.ROOT / words[1]).is_file(), command)
            else:
                self.assertRegex((chart.ROOT / "Makefile").read_text(), rf"(?m)^{words[1]}:", command)

    def test_the_options_of_those_programs_exist(self):
        for name, option in (
            ("image.py", "--only-build"),
            ("image.py", "--reference"),
            ("image.py", "--load"),
            ("dev/dev.py", "migrate"),
        ):
            said = subprocess.run(
                ["python3", "-B", chart.ROOT / "deploy" / name, "--help"], capture_output=True, text=True
            )
            self.assertIn(option, said.stdout, name)

    def test_every_image_of_a_pod_is_built_here_or_pulled_by_its_whole_name(self):
        told = evaluated()
        used = {c["image"].rpartition(":")[0] for _, _, pod in chart.pods(told.yaml) for c in chart.containers(pod)}
        self.assertLessEqual(set(told.images), used)
        self.assertEqual(used - set(told.images), {"docker.io/library/postgres", "docker.io/library/nats"})

    def test_every_workload_is_a_resource_and_every_resource_one_that_exists(self):
        told = evaluated()
        workloads = {each["metadata"]["name"] for each in chart.of_kind(told.yaml, "Deployment", "Job", "Pod")}
        self.assertEqual(workloads, {each.workload for each in told.resources.values() if each.workload})
        objects = {f"{each['metadata']['name']}:{each['kind'].lower()}" for each in told.yaml}
        for each in told.resources.values():
            self.assertLessEqual(set(each.objects), objects)

    def test_every_dependency_exists_and_none_waits_for_itself(self):
        told = evaluated()
        deps = {name: each.deps for name, each in {**told.local, **told.resources}.items()}
        self.assertFalse(set(told.local) & set(told.resources), "a name twice")

        def reached(name, path):
            self.assertNotIn(name, path, "a circle")
            self.assertIn(name, deps)
            for following in deps[name]:
                reached(following, [*path, name])

        for name in deps:
            reached(name, [])

    def test_nothing_is_applied_before_there_is_a_namespace(self):
        """What is in no resource is applied at once."""
        told = evaluated()
        waiting = [each for each in told.resources.values() if "namespace" in each.deps]
        grouped = {name for each in waiting for name in each.objects}
        for each in told.yaml:
            if each["kind"] not in ("Deployment", "Service", "Namespace"):
                self.assertIn(f"{each['metadata']['name']}:{each['kind'].lower()}", grouped)

    def test_a_service_waits_for_the_build_and_for_what_it_needs(self):
        told = evaluated()
        self.assertEqual(told.resources["svc-identity"].deps, ["build", "chart", "migrations"])
        self.assertEqual(told.resources["svc-ingest"].deps, ["build", "chart", "nats"])

    def test_an_image_is_built_anew_when_a_library_of_its_service_changes(self):
        told = evaluated()
        paths = set(told.images["svc.localhost/svc-identity"].paths)
        self.assertLessEqual(
            {"services/identity", "libs/hashing", "libs/service", "libs/contract", "Cargo.lock"}, paths
        )
        self.assertNotIn("services/ingest", paths)
        self.assertNotIn("cli", paths)
        self.assertTrue(all(each.kept_from_docker for each in told.images.values()))

    def test_all_objects_are_in_one_namespace_and_none_is_a_test_of_helm(self):
        for each in evaluated().yaml:
            if each["kind"] != "Namespace":
                self.assertEqual(each["metadata"]["namespace"], "svc", each["metadata"]["name"])
            self.assertNotIn("helm.sh/hook", each["metadata"].get("annotations") or {})

    def test_pods_end_at_once(self):
        for each in chart.of_kind(evaluated().yaml, "Deployment"):
            self.assertNotIn("lifecycle", each["spec"]["template"]["spec"]["containers"][0])

    def test_only_named_contexts_are_allowed(self):
        contexts = evaluated().contexts
        self.assertIn("kind-svc", contexts)
        self.assertIn("mine", contexts)
        self.assertNotIn("", contexts)

    def test_buttons_wait_for_a_click(self):
        told = evaluated()
        for name in ("test-chart", "test-all", "lint", "new-tenant"):
            self.assertEqual((told.local[name].auto_init, told.local[name].trigger), (False, "manual"))
