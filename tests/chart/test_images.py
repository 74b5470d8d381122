"""Images: content of the archives, loading into a cluster, and equality with deploy/Dockerfile."""

import hashlib
import io
import json
import re
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import chart

sys.path[:0] = [str(chart.ROOT / "deploy"), str(chart.ROOT / "deploy/dev")]

import archive  # noqa: E402
import dev  # noqa: E402
import image  # noqa: E402
import load  # noqa: E402

FILES = {"/etc/passwd": b"svc", "/usr/bin/svc": Path("/bin/sh").resolve()}


def written(files=None):
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        archive.write(file.name, "svc.localhost/svc:dev", files or FILES, ["/usr/bin/svc"], ports=[8080])
        return Path(file.name).read_bytes()


def members(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: (member, tar.extractfile(member).read() if member.isfile() else None) for member in tar}


class Archives(unittest.TestCase):
    def test_digests_match_the_content(self):
        entries = members(written())
        blobs = {
            name: content
            for name, (_, content) in entries.items()
            if name.startswith("blobs/sha256/") and content is not None
        }
        self.assertEqual(len(blobs), 3)
        for name, content in blobs.items():
            self.assertEqual(name, f"blobs/sha256/{hashlib.sha256(content).hexdigest()}")
        index = json.loads(entries["index.json"][1])["manifests"][0]
        manifest = json.loads(blobs[f"blobs/sha256/{index['digest'].removeprefix('sha256:')}"])
        for described in (manifest["config"], *manifest["layers"]):
            self.assertEqual(
                described["size"], len(blobs[f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"])
            )

    def test_archive_is_readable_as_oci_layout_and_as_docker_archive(self):
        entries = members(written())
        index = json.loads(entries["index.json"][1])["manifests"][0]
        self.assertEqual(index["annotations"]["io.containerd.image.name"], "svc.localhost/svc:dev")
        docker = json.loads(entries["manifest.json"][1])[0]
        self.assertEqual(docker["RepoTags"], ["svc.localhost/svc:dev"])
        config = json.loads(entries[docker["Config"]][1])
        layer = entries[docker["Layers"][0]][1]
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
        self.assertEqual(config["config"]["User"], "65532:65532")
        packed = members(layer)
        self.assertTrue(packed["usr/bin/svc"][0].mode & 0o111)
        self.assertFalse(packed["etc/passwd"][0].mode & 0o222 & ~0o200)
        self.assertEqual({member.uid for member, _ in packed.values()}, {0})

    def test_same_files_give_identical_archives(self):
        self.assertEqual(written(), written(dict(reversed(FILES.items()))))

    def test_dynamically_linked_program_is_not_static(self):
        self.assertFalse(image.is_static(Path("/bin/sh").resolve()))

    def test_relocations_are_packed_only_if_the_c_library_can_apply_them(self):
        for version, packed in (("2.36", True), ("2.41", True), ("2.35", False)):
            with unittest.mock.patch("platform.libc_ver", return_value=("glibc", version)):
                self.assertEqual("pack-relative-relocs" in str(image.environment(image.host())), packed, version)
        with unittest.mock.patch("platform.libc_ver", return_value=("", "")):
            self.assertNotIn("pack-relative-relocs", str(image.environment(image.host())))

    def test_image_contains_only_the_program_certificates_and_user_files(self):
        self.assertEqual(
            set(image.files(Path("/bin/sh"), "svc")),
            {"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt", "/usr/bin/svc"},
        )


class Dockerfile(unittest.TestCase):
    def test_has_a_target_for_every_image(self):
        text = (chart.ROOT / "deploy/Dockerfile").read_text()
        self.assertEqual(set(re.findall(r"FROM base AS (\S+)", text)), set(image.PROGRAMS))
        for name in image.PROGRAMS:
            section = text.split(f"FROM base AS {name}\n")[1].split("\nFROM ")[0]
            self.assertIn(f"COPY --from=build /image/usr/bin/{name} /usr/bin/{name}", section)
            self.assertIn(f'ENTRYPOINT ["/usr/bin/{name}"]', section)
            exposed = re.search(r"EXPOSE ([\d ]+)", section)
            self.assertEqual([int(port) for port in exposed[1].split()] if exposed else [], image.PORTS[name])

    def test_images_have_an_empty_base_and_run_as_non_root(self):
        text = (chart.ROOT / "deploy/Dockerfile").read_text()
        self.assertIn("FROM scratch AS base\n", text)
        self.assertIn("\nUSER 65532:65532\n", text)

    def test_builds_with_the_rust_version_of_the_workspace(self):
        wanted = re.search(r'rust-version = "([\d.]+)"', (chart.ROOT / "Cargo.toml").read_text())[1]
        self.assertIn(f"ARG BASE=docker.io/library/rust:{wanted}-bookworm\n", (chart.ROOT / "deploy/Dockerfile").read_text())

    def test_every_image_of_the_chart_is_built(self):
        used = {
            c["image"].split("/")[-1].split(":")[0].split("@")[0]
            for name in ("all features", "operator")
            for _, _, pod in chart.pods(chart.case(name))
            for c in chart.containers(pod)
        }
        self.assertEqual(used, set(image.PROGRAMS))


class Development(unittest.TestCase):
    def test_load_command_follows_from_the_context_or_the_variable(self):
        self.assertEqual(load.command_for("", "kind-svc"), ["kind", "load", "image-archive", "--name", "svc"])
        self.assertEqual(load.command_for("", "k3d-a-b"), ["k3d", "image", "import", "--cluster", "a-b"])
        for context in ("docker-desktop", "rancher-desktop"):
            self.assertEqual(load.command_for("", context), ["docker", "load", "--input"])
        self.assertEqual(
            load.command_for("ctr -n k8s.io images import", "kind-svc"), ["ctr", "-n", "k8s.io", "images", "import"]
        )
        with self.assertRaisesRegex(load.LoadError, "Set E2E_LOAD_IMAGE"):
            load.command_for("", "production")

    def test_development_secrets_contain_every_key_of_the_chart(self):
        secrets = {each["metadata"]["name"]: set(each["stringData"]) for each in dev.generate_secrets()}
        for owner, _, pod in chart.pods(chart.case("development")):
            for volume in pod.get("volumes", []):
                for source in volume.get("projected", {}).get("sources", []):
                    keys = {item["key"] for item in source["secret"]["items"]}
                    self.assertLessEqual(keys, secrets[source["secret"]["name"]], owner)

    def test_development_secrets_are_random(self):
        first, second = [[each["stringData"] for each in dev.generate_secrets()] for _ in range(2)]
        self.assertFalse({v for each in first for v in each.values()} & {v for each in second for v in each.values()})

    def test_platform_token_has_the_format_of_identity(self):
        self.assertRegex(dev.platform_token(), r"^svc_pt_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$")
        # Output of `svc-identity platform-token`.
        body, _, checksum = "svc_pt_dZBs3p3uoAX7rTekfhSsocxKlDrToD3hZ6wYNIXgJoi_1eKw9V".rpartition("_")
        self.assertEqual(dev.base62(dev.zlib.crc32(body.encode()), 6), checksum)

    def test_every_statement_of_roles_and_schemas_is_executed(self):
        for name in ("roles.sql", "schemas.sql"):
            text = (chart.ROOT / "deploy/postgres" / name).read_text()
            expected = [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
            self.assertEqual(
                [line for statement in dev.statements(text) for line in statement.splitlines()], expected, name
            )

    def test_development_pods_satisfy_pod_security_restricted(self):
        for owner, _, pod in chart.pods(
            [each for each in chart.yaml.load_all(dev.manifests(dev.IMAGES), chart.LOADER) if each]
        ):
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True, owner)
            for container in chart.containers(pod):
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]}, owner)
                self.assertIs(container["securityContext"]["allowPrivilegeEscalation"], False, owner)
