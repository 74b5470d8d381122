"""Images: what is in an archive, who takes it, and that deploy/Dockerfile makes the same ones."""

import hashlib
import io
import json
import re
import sys
import tarfile
import tempfile
import unittest
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
    def test_every_digest_is_that_of_its_content(self):
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

    def test_both_kinds_of_readers_find_name_and_layers(self):
        entries = members(written())
        index = json.loads(entries["index.json"][1])["manifests"][0]
        self.assertEqual(index["annotations"]["io.containerd.image.name"], "svc.localhost/svc:dev")
        docker = json.loads(entries["manifest.json"][1])[0]
        self.assertEqual(docker["RepoTags"], ["svc.localhost/svc:dev"])
        config = json.loads(entries[docker["Config"]][1])
        layer = entries[docker["Layers"][0]][1]
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
        self.assertEqual(config["config"]["User"], "65532:65532")
        held = members(layer)
        self.assertTrue(held["usr/bin/svc"][0].mode & 0o111)
        self.assertFalse(held["etc/passwd"][0].mode & 0o222 & ~0o200)
        self.assertEqual({member.uid for member, _ in held.values()}, {0})

    def test_the_same_files_give_the_same_archive(self):
        self.assertEqual(written(), written(dict(reversed(FILES.items()))))

    def test_a_program_that_needs_a_loader_is_not_taken_for_static(self):
        self.assertFalse(image.is_static(Path("/bin/sh").resolve()))

    def test_an_image_has_certificates_and_its_user_and_nothing_else(self):
        self.assertEqual(
            set(image.files(Path("/bin/sh"), "svc")),
            {"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt", "/usr/bin/svc"},
        )


class Dockerfile(unittest.TestCase):
    def test_it_has_a_target_for_every_image(self):
        text = (chart.ROOT / "deploy/Dockerfile").read_text()
        self.assertEqual(set(re.findall(r"FROM base AS (\S+)", text)), set(image.PROGRAMS))
        for name in image.PROGRAMS:
            section = text.split(f"FROM base AS {name}\n")[1].split("\nFROM ")[0]
            self.assertIn(f"COPY --from=build /image/usr/bin/{name} /usr/bin/{name}", section)
            self.assertIn(f'ENTRYPOINT ["/usr/bin/{name}"]', section)
            exposed = re.search(r"EXPOSE ([\d ]+)", section)
            self.assertEqual([int(port) for port in exposed[1].split()] if exposed else [], image.PORTS[name])

    def test_its_images_have_no_base_and_no_root(self):
        text = (chart.ROOT / "deploy/Dockerfile").read_text()
        self.assertIn("FROM scratch AS base\n", text)
        self.assertIn("\nUSER 65532:65532\n", text)

    def test_it_builds_with_the_rust_of_the_workspace(self):
        wanted = re.search(r'rust-version = "([\d.]+)"', (chart.ROOT / "Cargo.toml").read_text())[1]
        self.assertIn(f"ARG RUST={wanted}\n", (chart.ROOT / "deploy/Dockerfile").read_text())

    def test_every_image_that_the_chart_names_is_built(self):
        used = {
            c["image"].split("/")[-1].split(":")[0].split("@")[0]
            for _, _, pod in chart.pods(chart.case("everything on"))
            for c in chart.containers(pod)
        }
        self.assertEqual(used, set(image.PROGRAMS))


class Development(unittest.TestCase):
    def test_who_takes_an_archive_is_told_by_the_context_or_by_hand(self):
        self.assertEqual(load.command_for("", "kind-svc"), ["kind", "load", "image-archive", "--name", "svc"])
        self.assertEqual(load.command_for("", "k3d-a-b"), ["k3d", "image", "import", "--cluster", "a-b"])
        self.assertEqual(
            load.command_for("ctr -n k8s.io images import", "kind-svc"), ["ctr", "-n", "k8s.io", "images", "import"]
        )
        with self.assertRaisesRegex(load.Failure, "Set E2E_LOAD_IMAGE"):
            load.command_for("", "production")

    def test_development_secrets_have_every_key_that_the_chart_reads(self):
        made = {each["metadata"]["name"]: set(each["stringData"]) for each in dev.made_secrets()}
        for of, _, pod in chart.pods(chart.case("development")):
            for volume in pod.get("volumes", []):
                for source in volume.get("projected", {}).get("sources", []):
                    keys = {item["key"] for item in source["secret"]["items"]}
                    self.assertLessEqual(keys, made[source["secret"]["name"]], of)

    def test_development_secrets_are_never_the_same(self):
        first, second = [[each["stringData"] for each in dev.made_secrets()] for _ in range(2)]
        self.assertFalse({v for each in first for v in each.values()} & {v for each in second for v in each.values()})

    def test_an_platform_token_has_the_form_that_identity_reads(self):
        self.assertRegex(dev.platform_token(), r"^svc_pt_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$")
        # From `svc-identity platform-token`.
        body, _, checksum = "svc_pt_dZBs3p3uoAX7rTekfhSsocxKlDrToD3hZ6wYNIXgJoi_3adGF6".rpartition("_")
        self.assertEqual(dev.base62(dev.zlib.crc32(body.encode()), 6), checksum)

    def test_every_statement_of_the_roles_and_schemas_reaches_the_database(self):
        for name in ("roles.sql", "schemas.sql"):
            text = (chart.ROOT / "deploy/postgres" / name).read_text()
            said = [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
            self.assertEqual(
                [line for statement in dev.statements(text) for line in statement.splitlines()], said, name
            )

    def test_development_pods_keep_the_restricted_rules(self):
        for of, _, pod in chart.pods(
            [each for each in chart.yaml.load_all(dev.manifests(dev.IMAGES), chart.LOADER) if each]
        ):
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True, of)
            for container in chart.containers(pod):
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]}, of)
                self.assertIs(container["securityContext"]["allowPrivilegeEscalation"], False, of)
