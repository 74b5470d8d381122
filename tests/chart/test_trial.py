"""The trial: one image value is enough, the Secret has every key that a pod mounts, and production values are rejected."""

import re
import unittest

import chart
import test_notes

SOURCE = (chart.ROOT / "services/identity/src/command/trial/secret.rs").read_text()


def keys():
    """Returns the keys of the Secret that `svc-identity trial secret` creates."""
    listed = re.search(r"const ROLES.*?\];", SOURCE, re.S)[0]
    roles = re.findall(r'\("(\w+)", "(\w+)"\)', listed)
    users = re.findall(r'"([\w-]+)"', re.search(r"const NATS_USERS.*?\];", SOURCE, re.S)[0])
    fixed = re.findall(r'"([\w.-]+)"\.to_owned\(\), random\(\)', SOURCE) + re.findall(r'"(secrets-\w+)"', SOURCE)
    files = re.findall(r'"(\w+\.conf)"', SOURCE)
    named = {f"database-{name}" for name, _ in roles} | {role for _, role in roles} | {f"nats-{user}" for user in users}
    return named | set(fixed) | set(files)


class Trial(unittest.TestCase):
    def test_needs_only_an_image(self):
        run = chart.template({"trial": {"enabled": True}, "image": {"registry": "registry.example/svc"}})
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_pods_mount_only_keys_that_the_secret_has(self):
        self.assertGreater(len(keys()), 15)
        for name in chart.TRIALS:
            for owner, _, pod in chart.pods(chart.case(name)):
                for volume in pod.get("volumes", []):
                    secrets = [source["secret"] for source in volume.get("projected", {}).get("sources", []) if "secret" in source]
                    secrets += [volume["secret"]] if "secret" in volume else []
                    for secret in secrets:
                        self.assertEqual(secret.get("name", secret.get("secretName")), "svc-trial", owner)
                        self.assertLessEqual({item["key"] for item in secret["items"]}, keys(), owner)

    def test_runs_one_pod_of_each_server_with_small_streams(self):
        objects = chart.case("trial")
        replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in chart.of_kind(objects, "Deployment", "StatefulSet")}
        servers = ("identity", "session", "ingest", "trial-postgres", "trial-nats", "trial-proxy")
        self.assertEqual(replicas, {f"svc-{name}": 1 for name in servers})
        spec = chart.named(objects, "Deployment", "svc-ingest")["spec"]["template"]["spec"]
        env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
        found = [env[name] for name in ("SVC_STREAM_REPLICAS", "SVC_STREAM_MAX_BYTES", "SVC_NATS_DURABILITY", "SVC_STREAM_MODE")]
        self.assertEqual(found, ["1", "256MiB", "dev", "ensure"])

    def test_proxy_serves_the_routes_of_the_chart_unless_a_route_does(self):
        table = chart.named(chart.case("trial"), "ConfigMap", "svc-trial-proxy")["data"]["routes.yaml"]
        http = chart.yaml.load(table, chart.LOADER)["http"]
        proxied = {re.search(r"`(.+)`", route["rule"])[1]: f"svc-{route['service']}" for route in http["routers"].values()}
        paths = chart.named(chart.case("ingress"), "Ingress", "svc")["spec"]["rules"][0]["http"]["paths"]
        self.assertEqual(proxied, {path["path"]: path["backend"]["service"]["name"] for path in paths})
        for name, service in http["services"].items():
            self.assertEqual(service["loadBalancer"]["servers"], [{"url": f"http://svc-{name}:8080"}])
        names = {each["metadata"]["name"] for each in chart.case("trial behind an ingress")}
        self.assertNotIn("svc-trial-proxy", names)

    def test_job_may_only_create_secrets_and_delete_its_own(self):
        (role,) = chart.of_kind(chart.case("trial"), "Role")
        own = {"apiGroups": [""], "resources": ["secrets"]}
        self.assertEqual(role["rules"], [{**own, "verbs": ["create"]}, {**own, "resourceNames": ["svc-trial"], "verbs": ["delete"]}])
        (job,) = [each for each in chart.of_kind(chart.case("trial"), "Job") if "-trial-secret-" in each["metadata"]["name"]]
        self.assertEqual(job["spec"]["template"]["spec"]["containers"][0]["args"][:3], ["trial", "secret", "svc-trial"])
        self.assertFalse(chart.of_kind(chart.case("trial"), "ClusterRole", "ClusterRoleBinding"))

    def test_volumes_are_deleted_with_the_release(self):
        for each in chart.of_kind(chart.case("trial"), "StatefulSet"):
            self.assertEqual(each["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Delete")
            self.assertEqual(each["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"], "2Gi")
        for each in chart.of_kind(chart.case("trial behind an ingress"), "StatefulSet"):
            self.assertNotIn("volumeClaimTemplates", each["spec"])
            self.assertIn("emptyDir", [v for v in each["spec"]["template"]["spec"]["volumes"] if v["name"] == "data"][0])

    def test_images_can_be_replaced_by_digests(self):
        digest = "sha256:" + "c" * 64
        servers = {name: {"image": {"repository": "mirror.example/x", "digest": digest}} for name in ("postgres", "nats", "proxy")}
        images = {c["image"] for _, _, pod in chart.pods(chart.render({**chart.TRIAL, "trial": {"enabled": True, **servers}})) for c in chart.containers(pod)}
        self.assertIn(f"mirror.example/x@{digest}", images)
        self.assertFalse([image for image in images if image.startswith("docker.io")])

    def test_values_for_production_are_rejected(self):
        for name, values in {
            "database.existingSecret": {"database": {"existingSecret": "svc-database"}},
            "nats.existingSecret": {"nats": {"existingSecret": "svc-nats"}},
            "secrets.existingSecret": {"secrets": {"existingSecret": "svc-tokens"}},
            "ingress.tls": {"ingress": {"tls": [{"secretName": "tls"}]}},
            "publicUrl with https": {"publicUrl": "https://svc.example.com"},
            "session.replicas": {"session": {"replicas": 3}},
            "identity.autoscaling": {"identity": {"autoscaling": {"enabled": True}}},
            "session.enabled=false": {"session": {"enabled": False}},
            "networkPolicy.egress": {"networkPolicy": {"egress": {"enabled": True}}},
            "migrations.enabled=false": {"migrations": {"enabled": False}},
            "nats.stream.mode": {"nats": {"stream": {"mode": "verify"}}},
            "nats.stream.replicas": {"nats": {"stream": {"replicas": 5}}},
            "nats.stream.durability": {"nats": {"stream": {"durability": "strict"}}},
            "nats.ca": {"nats": {"ca": {"secret": "nats-ca"}}},
            "nats.clientCertificates": {"nats": {"clientCertificates": {"ingest": "nats-ingest"}}},
            "nats.credentials": {"nats": {"credentials": {"session": "session.creds"}}},
            "database.ca": {"database": {"ca": {"configMap": "postgres-ca"}}},
            "database.clientCertificates": {"database": {"clientCertificates": {"identityMigrator": "postgres-identity-migrator"}}},
            "database.sslMode": {"database": {"sslMode": "verify-full"}},
        }.items():
            with self.subTest(name):
                message = chart.error(chart.merged(chart.TRIAL, values))
                self.assertIn(f"remove {name}, or type --set trial.enabled=false", message)
        for mode in ("require", "verify-ca"):
            self.assertIn("remove database.sslMode, or", chart.error(chart.merged(chart.TRIAL, {"database": {"sslMode": mode}})))

    def test_settings_of_a_trial_are_accepted(self):
        for values in ({"nats": {"stream": {"replicas": 1, "durability": "dev"}}}, {"database": {"sslMode": "disable"}}):
            chart.render(chart.merged(chart.TRIAL, values))

    def test_pods_of_the_trial_reach_the_public_ports_that_they_call(self):
        trial = chart.merged(chart.TRIAL, chart.PUBLIC_FROM)
        for values, expected in (
            (trial, {"identity": {"trial-proxy", "trial-tenant"}, "session": {"trial-proxy"}, "ingest": {"trial-proxy"}}),
            ({**chart.TRIALS["trial behind an ingress"], **chart.PUBLIC_FROM}, {"identity": {"test", "trial-tenant"}, "session": {"test"}, "ingest": {"test"}}),
        ):
            objects = chart.render(values)
            for component, callers in expected.items():
                (rule,) = [
                    rule for rule in chart.named(objects, "NetworkPolicy", f"svc-{component}")["spec"]["ingress"]
                    if rule["ports"] == [{"port": "public"}]
                ]  # fmt: skip
                peers = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
                found = {labels["app.kubernetes.io/component"] for _, labels, _ in chart.pods(objects) if any(p.items() <= labels.items() for p in peers)}
                self.assertEqual(found, callers, component)

    def test_consumers_reach_nats_and_only_its_port_for_clients(self):
        for name in chart.TRIALS:
            policy = chart.named(chart.case(name), "NetworkPolicy", "svc-trial-nats")["spec"]
            self.assertEqual(policy["ingress"], [{"ports": [{"port": "public"}]}], name)

    def test_changed_routes_restart_the_proxy(self):
        before, after = (self.annotations({"startPage": page}) for page in (False, True))
        self.assertNotEqual(before["trial-proxy"], after["trial-proxy"])
        self.assertEqual(before["trial-postgres"], after["trial-postgres"])
        self.assertEqual(before["trial-proxy"], self.annotations({"log": "debug"})["trial-proxy"])

    def annotations(self, values):
        """Returns the annotations of the pods that read a ConfigMap of the chart only at their start."""
        servers = chart.of_kind(chart.render(chart.merged(chart.TRIAL, values)), "Deployment", "StatefulSet")
        pods = {each["metadata"]["name"].removeprefix("svc-"): each["spec"]["template"] for each in servers}
        return {name: pods[name]["metadata"]["annotations"] for name in ("trial-proxy", "trial-postgres")}

    def test_only_the_configured_peers_reach_the_proxy(self):
        policy = chart.named(chart.render(chart.merged(chart.TRIAL, chart.PUBLIC_FROM)), "NetworkPolicy", "svc-trial-proxy")
        self.assertEqual([rule["from"] for rule in policy["spec"]["ingress"]], [chart.PUBLIC_FROM["networkPolicy"]["publicFrom"]])

    def test_notes_show_how_to_log_in(self):
        text = test_notes.notes(chart.TRIAL)
        self.assertIn("port-forward service/svc-trial-proxy 8080:8080\n", text)
        self.assertIn("export SVC_BASE_URL=http://localhost:8080\n", text)
        self.assertIn("""get secret svc-trial -o 'go-template={{ index .data "admin-password" | base64decode }}'""", text)
        self.assertIn("svc auth login --tenant demo --email admin@demo.example --password-stdin\n", text)
        self.assertIn("WARNING: a trial is for evaluation", text)
        self.assertEqual(text.count("WARNING"), 1)
        behind = test_notes.notes(chart.TRIALS["trial behind an ingress"])
        self.assertIn("export SVC_BASE_URL=http://svc.localhost\n", behind)
        self.assertNotIn("port-forward", behind)
