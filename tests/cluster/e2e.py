#!/usr/bin/env python3
"""Installs the chart on a real cluster and does to it what a platform does: upgrade, rollback, lost pods, all under load.

Environment:
  KUBECONFIG       the cluster; its namespace E2E_NAMESPACE (svc-e2e) is made anew and removed at the end
  E2E_HTTP         address of its front door from this machine, as 127.0.0.1:80
  E2E_LOAD_IMAGE   command that takes an image archive, where deploy/load.py does not know one by itself
  E2E_FRONT_DOOR   namespace/name of the front door's Service (default: ingress/traefik)
  E2E_NODE_EXEC    command that runs another on the node, to kill with SIGKILL (as `docker exec kind-control-plane`)
  E2E_PROFILE      `dev` for binaries of the development profile (default: release)
  E2E_KEEP         set to keep the namespace for a look
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(ROOT / "deploy")]

import archive  # noqa: E402
import dependencies  # noqa: E402
import image  # noqa: E402
import load  # noqa: E402
from cluster import Cluster, Failure, current, run  # noqa: E402
from traffic import Door, Traffic  # noqa: E402

HOST = "svc.test"
REGISTRY = "svc.localhost"
TAGS = ("e2e-1", "e2e-2")
COMPONENTS = ("identity", "session", "ingest")
ACCOUNT = {"tenant": "e2e", "email": "admin@e2e.example", "password": "correct horse battery e2e"}
# How long the load goes on before and after what is done under it.
CALM = 3


def main():
    context = current()
    door = os.environ.get("E2E_HTTP") or sys.exit(
        "e2e.py: set E2E_HTTP to the address of the cluster's front door, as 127.0.0.1:80"
    )
    cluster = Cluster(os.environ.get("E2E_NAMESPACE", "svc-e2e"))
    print(f"cluster {context}, front door {door}", flush=True)
    test = Test(cluster, Door(door, HOST))
    with tempfile.TemporaryDirectory() as work:
        test.images(Path(work))
        try:
            test.install(Path(work))
            test.use(Path(work))
            test.under_load()
        finally:
            test.report()
            if not os.environ.get("E2E_KEEP"):
                run("kubectl", "delete", "namespace", cluster.namespace, "--ignore-not-found", "--wait=false")
    if test.complaints:
        raise Failure("\n".join(["not as it must be:", *test.complaints]))


class Test:
    def __init__(self, cluster, door):
        self.cluster, self.door = cluster, door
        self.rows, self.complaints, self.acknowledged, self.tokens = [], [], [], []

    def step(self, name, started, result, load=None):
        """A row of the table; without load, of what took how long."""
        seconds = load.seconds if load else time.monotonic() - started
        asked = [load.total, load.failed, len(load.acknowledged)] if load else ["", "", ""]
        self.rows.append([name, f"{seconds:.1f}", *map(str, asked), result])
        print(f"{name}: {result} ({seconds:.1f} s)", flush=True)

    # ---- installation -----------------------------------------------------------------------------------------------

    def images(self, work):
        """Two builds of each image, which differ in what they hold, and those of the dependencies."""
        started = time.monotonic()
        binaries = image.build(list(image.PROGRAMS), os.environ.get("E2E_PROFILE") == "dev")
        sizes = {}
        for name, binary in binaries.items():
            for tag in TAGS:
                target = work / f"{name}-{tag}.tar"
                files = {**image.files(binary, name), "/etc/svc-build": f"{tag}\n".encode()}
                archive.write(target, f"{REGISTRY}/{name}:{tag}", files, [f"/usr/bin/{name}"])
                load.into_cluster(target)
                sizes[name] = target.stat().st_size / 1e6
                target.unlink()
        for name, write in (
            ("postgres", dependencies.write_postgres),
            ("nats", dependencies.write_nats),
            ("reader", dependencies.write_reader),
        ):
            target = work / f"{name}.tar"
            write(target, f"{REGISTRY}/{name}:e2e")
            load.into_cluster(target)
            target.unlink()
        self.step("build and load images", started, ", ".join(f"{name} {size:.1f} MB" for name, size in sizes.items()))

    def install(self, work):
        started = time.monotonic()
        cluster = self.cluster
        run("kubectl", "delete", "namespace", cluster.namespace, "--ignore-not-found", "--timeout=180s")
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace, "labels": restricted}}
        )
        development = [sys.executable, ROOT / "deploy/dev/dev.py"]
        run(*development, "secrets", "--namespace", cluster.namespace)
        images = [f"--{name}-image={REGISTRY}/{name}:e2e" for name in ("postgres", "nats")]
        cluster.apply(run(*development, "manifests", *images))
        for name in ("postgres", "nats"):
            cluster.rolled_out(name)
        self.step("Postgres and NATS", started, "ready")

        started = time.monotonic()
        self.values = work / "values.json"
        self.values.write_text(json.dumps(self.chart_values()))
        self.release("install", TAGS[0])
        self.step("helm install --wait", started, "ready")

    def chart_values(self):
        front = os.environ.get("E2E_FRONT_DOOR", "ingress/traefik").split("/")
        service = json.loads(run("kubectl", "--namespace", front[0], "get", "service", front[1], "--output", "json"))
        # Limits per address are off: a test cluster's front door hides addresses, so that all would share one.
        known = (ROOT / "helm/svc/files/variables.yaml").read_text()
        component = {"replicas": 2, "lifecycle": {"preStopSeconds": 10}}
        values = {name: {**component, "env": limits_off(known, name)} for name in COMPONENTS}
        return {
            **values,
            "publicUrl": f"http://{HOST}",
            "image": {"registry": REGISTRY},
            "ingress": {"enabled": True},
            "tests": {
                "existingSecret": "e2e-user",
                "hostAliases": [{"ip": service["spec"]["clusterIP"], "hostnames": [HOST]}],
            },
        }

    def release(self, verb, tag):
        self.cluster.helm(
            verb, self.cluster.release, ROOT / "helm/svc", "--values", ROOT / "helm/svc/values-dev.yaml",
            "--values", self.values, "--set", f"image.tag={tag}", "--wait", "--wait-for-jobs", "--timeout", "5m",
        )  # fmt: skip

    # ---- use --------------------------------------------------------------------------------------------------------

    def use(self, work):
        """A tenant, an account, events and a look into the stream, with the client `svc` through the front door."""
        started = time.monotonic()
        self.open_for_localhost()
        port = self.door.address.rpartition(":")[2]
        program = (
            image.target_directory()
            / image.host()
            / ("debug" if os.environ.get("E2E_PROFILE") == "dev" else "release")
            / "svc"
        )
        environment = {
            "HOME": str(work), "CI": "true", "SVC_BASE_URL": f"http://localhost:{port}", "SVC_TENANT": ACCOUNT["tenant"], "SVC_OUTPUT": "json",
        }  # fmt: skip

        def svc(*arguments, text=None, **more):
            return run(program, *arguments, text=text, environment={**environment, **more})

        self.answers_at_the_door()
        operator = self.cluster.secret("svc-tokens", "operator-token")
        made = svc(
            "tenants",
            "create",
            ACCOUNT["tenant"],
            "--admin-email",
            ACCOUNT["email"],
            "--delivery",
            "response",
            SVC_OPERATOR_TOKEN=operator,
        )
        invite = json.loads(made)["invite"]["token"]
        svc("users", "accept-invite", "-", "--password-stdin", text=f"{invite}\n{ACCOUNT['password']}\n")
        svc("auth", "login", "--email", ACCOUNT["email"], "--password-stdin", text=f"{ACCOUNT['password']}\n")
        events = [{"source_id": "e2e-cli", "event_id": f"cli-{number}"} for number in range(100)]
        (work / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
        svc("events", "send", "--file", work / "events.ndjson")
        self.acknowledged += [event["event_id"] for event in events]
        self.step("tenant, login, 100 events with svc", started, "done")
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "e2e-user"}, "stringData": ACCOUNT}
        )
        self.helm_test()
        self.tokens = [self.login() for _ in range(10)]
        self.check_stream("stream read by a pod")

    def open_for_localhost(self):
        """A second host for the client on this machine, which has no name for the first: the same routes."""
        ingress = self.cluster.get("ingress", self.cluster.release)
        spec = ingress["spec"]
        spec["rules"][0]["host"] = "localhost"
        self.cluster.apply({
            "apiVersion": ingress["apiVersion"], "kind": "Ingress", "metadata": {"name": "e2e-localhost"}, "spec": spec,
        })  # fmt: skip

    def answers_at_the_door(self, seconds=60):
        deadline = time.monotonic() + seconds
        for host in (HOST, "localhost"):
            door = Door(self.door.address, host)
            while door.ask(door.connection(), "GET", "/health")[1] != 200:
                if time.monotonic() > deadline:
                    raise Failure(
                        f"the front door does not answer for {host}: {door.ask(door.connection(), 'GET', '/health')[1:]}"
                    )
                time.sleep(0.3)

    def helm_test(self):
        started = time.monotonic()
        try:
            self.cluster.helm("test", self.cluster.release, "--timeout", "2m")
            self.step("helm test", started, "passed")
        except Failure as failure:
            self.complaints.append(str(failure))
            self.step("helm test", started, "FAILED")

    def login(self):
        body = json.dumps({"email": ACCOUNT["email"], "password": ACCOUNT["password"]})
        _, status, answer = self.door.ask(
            self.door.connection(), "POST", "/auth/password/login", None, body, ACCOUNT["tenant"]
        )
        if status != 200:
            raise Failure(f"nobody can log in: {status} {answer}")
        return answer["session_id"]

    # ---- under load -------------------------------------------------------------------------------------------------

    def under_load(self):
        self.disturb("upgrade", lambda: self.release("upgrade", TAGS[1]))
        self.disturb(
            "rollback",
            lambda: self.cluster.helm(
                "rollback", self.cluster.release, "1", "--wait", "--wait-for-jobs", "--timeout", "5m"
            ),
        )
        for component in COMPONENTS:
            self.disturb(
                f"delete a pod of {component}",
                lambda: self.lose(
                    component, lambda pod: self.cluster.kubectl("delete", "pod", pod["metadata"]["name"])
                ),
            )
        for component in COMPONENTS:
            self.disturb(f"kill a pod of {component}", lambda: self.lose(component, self.cluster.kill), tries=4)
        self.check_stream("stream read by a pod, at the end")

    def lose(self, component, how):
        """Loses one pod, and waits until there are as many as before."""
        said = how(self.cluster.pods(component)[0])
        time.sleep(1)
        self.cluster.rolled_out(f"{self.cluster.release}-{component}")
        return said

    def disturb(self, name, what, tries=1):
        """Does something under load; every request must be answered, and every session stay alive."""
        with Traffic(self.door, ACCOUNT, self.tokens, tries) as traffic:
            time.sleep(CALM)
            said = what()
            self.cluster.settled()
            time.sleep(CALM)
        self.acknowledged += traffic.acknowledged
        dead = sum(
            1 for token in self.tokens if self.door.ask(self.door.connection(), "GET", "/auth/session", token)[1] != 200
        )
        result = [f"{len(self.tokens) - dead} of {len(self.tokens)} sessions alive"]
        if tries > 1:
            result += [
                f"{traffic.retried} retries",
                *([said] if isinstance(said, str) and " " not in said.strip() else []),
            ]
        if traffic.failed:
            self.complaints.append(
                f"{name}: {traffic.failed} of {traffic.total} requests failed:\n    "
                + "\n    ".join(traffic.faults[:10])
            )
        if dead:
            self.complaints.append(f"{name}: {dead} sessions are dead")
        if not traffic.acknowledged:
            self.complaints.append(f"{name}: no event was acknowledged, so nothing was tested")
        self.step(name, None, ", ".join(result), traffic)

    def check_stream(self, name):
        """Reads the whole stream from a pod: every acknowledged event is in it."""
        started = time.monotonic()
        self.cluster.kubectl("delete", "pod", "reader", "--ignore-not-found")
        self.cluster.apply(self.reader_pod())
        self.cluster.kubectl("wait", "pod/reader", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
        lines = self.cluster.kubectl("logs", "reader").split()
        held = set(lines)
        lost = [each for each in self.acknowledged if each not in held]
        if lost:
            self.complaints.append(f"{name}: {len(lost)} acknowledged events are not in the stream, as {lost[:3]}")
        self.step(name, started, f"{lines[-1]} events, {len(lost)} of {len(self.acknowledged)} acknowledged ones lost")

    def reader_pod(self):
        address = {"name": "NATS_URL", "valueFrom": {"secretKeyRef": {"name": "svc-nats", "key": "administrator-url"}}}
        container = {
            "name": "reader", "image": f"{REGISTRY}/reader:e2e", "env": [address],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }  # fmt: skip
        security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": security,
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": spec}

    # ---- what it saw ------------------------------------------------------------------------------------------------

    def report(self):
        heading = ["step", "s", "requests", "failed", "events acknowledged", "result"]
        widths = [max(len(row[column]) for row in [heading, *self.rows]) for column in range(len(heading))]
        print()
        for row in [heading, *self.rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        print(flush=True)


def limits_off(known, component):
    """Every limit that the component reads, turned off."""
    own = known.split(f"\n{component}:\n")[1].split("\n  secret:\n")[0]
    return {name: "off" for name in own.replace("-", " ").split() if name.startswith("SVC_LIMIT_")}


if __name__ == "__main__":
    try:
        main()
    except (Failure, load.Failure, subprocess.CalledProcessError) as failure:
        sys.exit(f"e2e.py: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
