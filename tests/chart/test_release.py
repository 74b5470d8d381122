"""The files of a release: image index, chart package, SBOM. `make release` builds the programs, which these tests do not."""

import io
import json
import re
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import chart
from test_images import FILES, members

sys.path[:0] = [str(chart.ROOT / "deploy")]

import archive  # noqa: E402
import image  # noqa: E402
import release  # noqa: E402
import sbom  # noqa: E402

TIME = 1_700_000_000


def index_archive():
    images = {name: release.oci_image("svc", name, Path("/bin/sh").resolve(), "0" * 40) for name in ("amd64", "arm64")}
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        digest = archive.write_index(file.name, "registry.example/svc/svc:1.0.0", images)
        return digest, {name: content for name, (_, content) in members(Path(file.name).read_bytes()).items()}


class Images(unittest.TestCase):
    def test_index_names_an_image_for_each_architecture(self):
        digest, entries = index_archive()
        top = json.loads(entries["index.json"])["manifests"]
        self.assertEqual([each["digest"] for each in top], [digest])

        def blob(described):
            return json.loads(entries[f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"])

        images = blob(top[0])["manifests"]
        self.assertEqual([each["platform"]["architecture"] for each in images], ["amd64", "arm64"])
        for each in images:
            config = blob(blob(each)["config"])
            self.assertEqual(config["architecture"], each["platform"]["architecture"])
            self.assertEqual(config["config"]["Labels"]["org.opencontainers.image.version"], image.version())
            self.assertEqual(config["config"]["Labels"]["org.opencontainers.image.revision"], "0" * 40)
            self.assertEqual(config["config"]["Env"], ["PATH=/usr/bin"])

    def test_other_architecture_is_built_with_its_cross_compiler(self):
        other = next(triple for triple in release.TRIPLES.values() if triple != image.host())
        name = other.upper().replace("-", "_")
        variables = image.environment(other)
        self.assertEqual(variables[f"CARGO_TARGET_{name}_LINKER"], f"{other.split('-')[0]}-linux-gnu-gcc")
        self.assertIn("+crt-static", variables[f"CARGO_TARGET_{name}_RUSTFLAGS"])
        self.assertNotIn(f"CARGO_TARGET_{name}_LINKER", image.environment(image.host()))


class ChartPackage(unittest.TestCase):
    def setUp(self):
        self.content = archive.pack_gzip(release.chart_files(), "svc", TIME)

    def test_same_files_give_identical_packages(self):
        self.assertEqual(self.content, archive.pack_gzip(dict(reversed(release.chart_files().items())), "svc", TIME))

    def test_links_stay_in_the_package(self):
        for name, content in release.chart_files().items():
            # A regular expression contains a group after a set of characters.
            self.assertNotRegex(content.read_text(), r"\]\((?!https://|#|[\[\\?-])|\.\./", name)

    def test_helm_renders_the_package_like_the_folder(self):
        with tempfile.NamedTemporaryFile(suffix=".tgz") as package:
            Path(package.name).write_bytes(self.content)
            self.assertEqual(chart.render(chart.EVERYTHING, folder=package.name), chart.case("all features"))

    def test_chart_images_and_client_have_one_version(self):
        text = (chart.CHART / "Chart.yaml").read_text()
        self.assertEqual(re.search(r"^version: (\S+)", text, re.M)[1], image.version())
        self.assertEqual(re.search(r'^appVersion: "(\S+)"', text, re.M)[1], image.version())


class Workflow(unittest.TestCase):
    def test_actions_and_repositories_have_a_commit_and_its_version(self):
        text = (chart.ROOT / ".github/workflows/ci.yml").read_text()
        found = re.findall(r"(?:uses: \S+@|ref: )(.*)", text)
        self.assertGreater(len(found), 10)
        for each in found:
            self.assertRegex(each, r"^[0-9a-f]{40}(, path: \S+\})? # (nats-|v)\d+\.\d+\.\d+$")

    def test_a_release_needs_checks_and_advisories_and_gets_a_provenance(self):
        jobs = chart.yaml.load((chart.ROOT / ".github/workflows/ci.yml").read_text(), chart.LOADER)["jobs"]
        self.assertEqual(jobs["release"]["needs"], ["checks", "advisories", "chart"])
        self.assertIn("make advisories", [step.get("run") for step in jobs["advisories"]["steps"]])
        self.assertIn({"subject-checksums": "target/dist/SHA256SUMS"}, [step.get("with") for step in jobs["release"]["steps"]])


class BillOfMaterials(unittest.TestCase):
    def setUp(self):
        self.document = json.loads(sbom.document("1.0.0", TIME, [image.host()]))

    def test_contains_the_crates_that_are_linked_and_no_test_tools(self):
        packages = {each["name"]: each for each in self.document["packages"]}
        self.assertLessEqual({"cli", "identity", "session", "ingest", "axum", "async-nats", "argon2"}, set(packages))
        self.assertFalse({"proptest", "cc", "testkit"} & set(packages))
        axum = packages["axum"]
        self.assertRegex(axum["checksums"][0]["checksumValue"], "^[0-9a-f]{64}$")
        self.assertEqual(axum["externalRefs"][0]["referenceLocator"], f"pkg:cargo/axum@{axum['versionInfo']}")

    def test_relationships_are_between_elements_of_the_document(self):
        ids = {each["SPDXID"] for each in self.document["packages"]} | {"SPDXRef-DOCUMENT"}
        for each in self.document["relationships"]:
            self.assertLessEqual({each["spdxElementId"], each["relatedSpdxElement"]}, ids)
        self.assertEqual(len(ids), len(self.document["packages"]) + 1)
        described = [each for each in self.document["relationships"] if each["relationshipType"] == "DESCRIBES"]
        self.assertEqual(len(described), len(image.PROGRAMS))


class Client(unittest.TestCase):
    def test_archive_is_reproducible_and_has_one_time(self):
        files = FILES | {"LICENSE": b"text"}
        content = archive.pack_gzip(files, "svc-1.0.0", TIME)
        self.assertEqual(content, archive.pack_gzip(files, "svc-1.0.0", TIME))
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            self.assertEqual({member.mtime for member in tar}, {TIME})
            self.assertTrue(all(member.name.startswith("svc-1.0.0") for member in tar))
