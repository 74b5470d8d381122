"""The tested cluster, accessed with kubectl and helm."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Runs a command on the node. Empty if the environment has none.
NODE = os.environ.get("E2E_NODE_EXEC", "").split()


class TestError(Exception):
    """An error that is printed without a traceback."""


def run(*command, text=None, check=True, seconds=600, environment=None, directory=None, with_errors=False):
    """Runs a command and returns its standard output, optionally followed by its standard error."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=seconds, env=environment, cwd=directory)
    except FileNotFoundError:
        raise TestError(f"{words[0]} not found: add it to the PATH") from None
    except subprocess.TimeoutExpired:
        raise TestError(f"`{' '.join(words)}` did not exit within {seconds} s") from None
    if check and done.returncode:
        raise TestError(f"`{' '.join(words)}` failed:\n{(done.stdout[-1500:] + done.stderr[-3000:]).strip()}")
    return done.stdout + (done.stderr if with_errors else "")


class Cluster:
    """One namespace of the cluster, and one release in it."""

    def __init__(self, namespace, release="svc"):
        self.namespace, self.release = namespace, release
        tools = json.loads((ROOT / ".dev/tools.json").read_text())
        self.helm_program = shutil.which("helm") or tools["helm"]

    def recreate_namespace(self):
        """Creates an empty namespace that enforces Pod Security restricted."""
        run("kubectl", "delete", "namespace", self.namespace, "--ignore-not-found", "--timeout=180s")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}})

    def delete_namespace(self):
        """Deletes the namespace without waiting, unless E2E_KEEP is set."""
        if not os.environ.get("E2E_KEEP"):
            run("kubectl", "delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")

    def kubectl(self, *arguments, **options):
        return run("kubectl", "--namespace", self.namespace, *arguments, **options)

    def helm(self, *arguments, **options):
        return run(self.helm_program, "--namespace", self.namespace, *arguments, **options)

    def apply(self, manifests):
        self.kubectl(
            "apply", "--filename", "-", text=manifests if isinstance(manifests, str) else json.dumps(manifests)
        )

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))

    def secret(self, name, key):
        return base64.b64decode(self.get("secret", name)["data"][key]).decode()

    def pods(self, component):
        selector = f"app.kubernetes.io/instance={self.release},app.kubernetes.io/component={component}"
        return [
            pod for pod in self.get("pods", "--selector", selector)["items"] if "deletionTimestamp" not in pod["metadata"]
        ]

    def rolled_out(self, deployment, seconds=300):
        self.kubectl("rollout", "status", f"deployment/{deployment}", f"--timeout={seconds}s")

    def wait_until_ready(self, seconds=180):
        """Waits until every pod of the release is ready and none is terminating."""
        deadline = time.monotonic() + seconds
        while True:
            pods = self.get("pods", "--selector", f"app.kubernetes.io/instance={self.release}")["items"]
            services = [pod for pod in pods if pod["metadata"]["labels"].get("pod-template-hash")]
            ready = [
                pod for pod in services
                if "deletionTimestamp" not in pod["metadata"]
                and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
            ]  # fmt: skip
            if services and len(ready) == len(services):
                return
            if time.monotonic() > deadline:
                raise TestError(
                    f"the pods of {self.release} are not all ready:\n{self.kubectl('get', 'pods', '--output', 'wide')}"
                )
            time.sleep(0.5)

    def state(self):
        """Returns the workloads of the namespace and its last events, for a person who looks for the cause of an error."""
        workloads = self.kubectl("get", "deployments,statefulsets,jobs,pods", "--output", "wide", check=False)
        events = self.kubectl("get", "events", "--sort-by", ".lastTimestamp", check=False).splitlines()
        return "\n".join([workloads, *events[-40:]])

    def log_of_new(self, component):
        """Returns the log of the newest pod of a component."""
        newest = max(self.pods(component), key=lambda pod: pod["metadata"]["creationTimestamp"])
        return self.kubectl("logs", newest["metadata"]["name"])

    def delete(self, pod):
        """Deletes a pod with its grace period."""
        self.kubectl("delete", "pod", pod["metadata"]["name"])

    def kill(self, pod):
        """Kills the main process of a pod with SIGKILL on its node, or deletes the pod by force. Returns which."""
        if not NODE:
            self.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
            return "deleted by force (set E2E_NODE_EXEC to use SIGKILL)"
        self.signal(pod, "KILL")
        return "SIGKILL"

    def signal(self, pod, name):
        """Sends a signal to the processes of a pod, on its node."""
        signal_processes(is_of(pod), name)

    def file(self, pod, path):
        """Returns the content of a file in a pod, read on its node."""
        read = f"cat $p/root{path} 2> /dev/null"
        return run(*NODE, "sh", "-c", f"for p in /proc/[0-9]*; do {is_of(pod)} && {read} && break; done; true")


def is_of(pod):
    """Returns a condition of the shell: whether the process with the directory `$p` belongs to the pod."""
    containers = [status["containerID"].rpartition("/")[2] for status in pod["status"]["containerStatuses"]]
    return f"grep -qsE '{'|'.join(containers)}' $p/cgroup"


def signal_processes(condition, name):
    """Sends a signal to the processes of the node for which a condition of the shell holds, with `$p` as their directory in /proc."""
    run(*NODE, "sh", "-c", f"for p in /proc/[0-9]*; do {condition} && kill -{name} ${{p#/proc/}}; done; true")


def current():
    """Returns the current context of kubectl. Exits if no context is set."""
    context = run("kubectl", "config", "current-context", check=False).strip()
    if not context:
        sys.exit("e2e.py: kubectl has no current context: set KUBECONFIG to the configuration of a development cluster")
    return context
