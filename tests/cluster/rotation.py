"""Rotation of service token, platform token, limiter key, factor key, URLs of Postgres, passwords of NATS and of the mail server as documented, without a restart."""

import json
import re
import secrets
import sys
import textwrap
import time

import mail
from client import TENANT
from cluster import NODE, ROOT, TestError
from disturbances import ATTEMPTS
from phone import Phone

sys.path.insert(0, str(ROOT / "deploy/dev"))
import dev  # noqa: E402

SECRET = "svc-tokens"
# The secrets of each component.
VARIABLES = {
    "identity": {"SVC_SERVICE_TOKEN", "SVC_PLATFORM_TOKEN", "SVC_LIMITER_KEY"},
    "session": {"SVC_SERVICE_TOKEN", "SVC_PLATFORM_TOKEN"},
    "ingest": {"SVC_SERVICE_TOKEN", "SVC_PLATFORM_TOKEN"},
}
# Services with a role of Postgres.
ROLES = ("identity", "session")
# A request of the platform administrator to each service.
PATHS = ("/tenants", "/api-keys", "/consumers")


def rotate_secrets(system):
    cluster = system.cluster
    keys = {name: secrets.token_hex(32) for name in ("service-token", "limiter-key", "factor-key")}
    new = {**keys, "platform-token": dev.platform_token()}
    old = {key: cluster.secret(SECRET, key) for key in new}
    both = {key: f"{new[key]}\n{old[key]}" for key in new}
    before, phone = names(cluster), Phone(system.client, system.entries[0], old["platform-token"])
    system.disturb("rotation: new and old secrets", lambda: replace(system, both, old["platform-token"], 1, phone))
    system.disturb("rotation: only new secrets", lambda: replace(system, new, new["platform-token"], 2, phone))
    system.disturb("rotation: URLs of Postgres", lambda: replace_roles(cluster))
    if NODE:
        # Events in flight get 503, and producers send them again.
        system.disturb("rotation: passwords of NATS", lambda: replace_nats_passwords(cluster), ATTEMPTS)
        system.disturb("rotation: password of the mail server", lambda: replace_mail_password(system))
    else:
        system.report.step("rotation: passwords of NATS and of the mail server", time.monotonic(), "not run: set E2E_NODE_EXEC")
    if any(status == 200 for status in statuses(system, old["platform-token"])):
        system.report.fail("rotation: the old platform token is still accepted")
    if names(cluster) != before:
        system.report.fail("rotation: a pod was replaced or restarted")


def replace(system, values, token, changes, phone):
    """Edits the Secret and waits until each pod has logged this number of changes of each of its secrets. The administrator uses the token.

    Then a person logs in with an authenticator app, which encrypts its secret under the first key.
    """
    cluster = system.cluster

    def waiting():
        # A pod reads the file of a secret when a request needs it.
        rejected = [status for status in statuses(system, token) if status != 200]
        if rejected:
            system.report.fail(f"rotation: requests of the platform administrator failed: {rejected}")
        pods = cluster.pods("identity")
        old = [pod["metadata"]["name"] for pod in pods if cluster.file(pod, url_file(pod, "SVC_FACTOR_KEY")) != values["factor-key"]]
        return ", ".join(unread(cluster, changes) + [f"{pod} SVC_FACTOR_KEY" for pod in old])

    seconds = edit(cluster, SECRET, values, waiting)
    phone.log_in()
    return f"read by all pods after {seconds:.0f} s; login with a code"


def replace_roles(cluster):
    """Runs the documented SQL, edits the URLs, and waits until no connection has the old role. Then removes its password."""
    documented = textwrap.dedent(re.search(r"```sql\n(.*?)```", (ROOT / "docs/kubernetes.md").read_text(), re.S)[1])
    password, urls = secrets.token_hex(24), {}
    for name in ROLES:
        statements = documented.replace("svc_session", f"svc_{name}").replace("search_path = session", f"search_path = {name}")
        superuser(cluster, statements.replace("…", password))
        urls[f"{name}-url"] = re.sub(r"//(\w+):\w+@", rf"//\1_2:{password}@", cluster.secret("svc-database", f"{name}-url"))
    old = ", ".join(f"'svc_{name}'" for name in ROLES)

    def remaining():
        number = superuser(cluster, f"select count(*) from pg_stat_activity where usename in ({old})").strip()
        return "" if number == "0" else f"{number} connections of the old roles remain"

    seconds = edit(cluster, "svc-database", urls, remaining)
    for name in ROLES:
        superuser(cluster, f"alter role svc_{name} password null")
    return f"all connections have new roles after {seconds:.0f} s"


def replace_nats_passwords(cluster):
    """Edits the URLs, waits until each pod has the new file, and reloads the server with the new passwords."""
    servers = cluster.get("configmap", "nats-config")["data"]
    urls, passwords = {}, {name: secrets.token_hex(24) for name in VARIABLES}
    for name, password in passwords.items():
        urls[f"{name}-url"] = re.sub(r":\w+@", f":{password}@", cluster.secret("svc-nats", f"{name}-url"))
        servers["accounts.conf"] = servers["accounts.conf"].replace(f"${dev.password_variable(name)}", f'"{password}"')

    def unread():
        pods = [(name, pod) for name in VARIABLES for pod in cluster.pods(name)]
        return ", ".join(name for name, pod in pods if passwords[name] not in cluster.file(pod, url_file(pod, "SVC_NATS_URL")))

    seconds = edit(cluster, "svc-nats", urls, unread)
    cluster.kubectl("patch", "configmap", "nats-config", "--patch-file", "/dev/stdin", text=json.dumps({"data": servers}))
    server = cluster.get("pods", "--selector", "app=nats")["items"][0]
    started = time.monotonic()
    while passwords["ingest"] not in cluster.file(server, "/config/accounts.conf"):
        if time.monotonic() - started > 180:
            raise TestError("rotation: the configuration of NATS is not updated")
        cluster.kubectl("annotate", "pods", "--all", f"e2e/rotation={time.time_ns()}", "--overwrite")
        time.sleep(2)
    cluster.kubectl("exec", "deployment/nats", "--container", "nats", "--", "nats-server", "--signal", "reload=/data/nats.pid")
    return f"read by all pods after {seconds:.0f} s, then the server was reloaded"


def replace_mail_password(system):
    """Adds a password to the mail server, edits the URL, and removes the old password. Invites people all the time: each gets a mail."""
    cluster, invited = system.cluster, []
    old, new = cluster.secret(mail.PASSWORDS, "passwords"), secrets.token_hex(24)

    def invite():
        invited.append(f"person-{len(invited)}@e2e.example")
        system.client.svc("users", "invite", "--email", invited[-1])

    def unread(pods, path, text):
        invite()
        return ", ".join(pod["metadata"]["name"] for pod in pods if cluster.file(pod, path) != text)

    def edit_server(*accepted):
        data, pods = mail.passwords(*accepted), cluster.get("pods", "--selector", f"app={mail.NAME}")["items"]
        edit(cluster, mail.PASSWORDS, data, lambda: unread(pods, mail.FILE, data["passwords"]))

    edit_server(old, new)
    data, pods = mail.url(new), cluster.pods("identity")
    seconds = edit(cluster, mail.URL, data, lambda: unread(pods, url_file(pods[0], "SVC_SMTP_URL"), data["smtp-url"]))
    edit_server(new)
    invite()
    started = time.monotonic()
    while missing := set(invited) - mail.recipients(cluster):
        if time.monotonic() - started > 60:
            raise TestError(f"rotation: no mail to {', '.join(sorted(missing))}")
        time.sleep(1)
    return f"read by all pods after {seconds:.0f} s, {len(invited)} of {len(invited)} invites mailed"


def url_file(pod, variable):
    return next(each["value"] for each in pod["spec"]["containers"][0]["env"] if each["name"] == f"{variable}_FILE")


def edit(cluster, name, values, waiting, seconds=180):
    """Edits a Secret and waits until `waiting` returns nothing. Returns the seconds."""
    started = time.monotonic()
    cluster.kubectl("patch", "secret", name, "--patch-file", "/dev/stdin", text=json.dumps({"stringData": values}))
    while reason := waiting():
        if time.monotonic() - started > seconds:
            raise TestError(f"rotation of {name}: {reason}")
        # The kubelet updates the files of a changed pod at once, and those of others within about a minute.
        cluster.kubectl("annotate", "pods", "--all", f"e2e/rotation={time.time_ns()}", "--overwrite")
        time.sleep(2)
    return time.monotonic() - started


def superuser(cluster, statements):
    """Runs SQL as the superuser, with the password in the pod. Returns its output."""
    script = "read -r PGPASSWORD < /passwords/postgres; export PGPASSWORD; exec psql --host=localhost --username=postgres --dbname=svc \"$@\""
    options = ["--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"]
    return cluster.kubectl("exec", "--stdin", "deployment/postgres", "--", "sh", "-c", script, "sh", *options, text=statements)


def unread(cluster, changes):
    """Returns the secrets that a pod has not read: `pod variable`."""
    result = []
    for component, variables in VARIABLES.items():
        for pod in cluster.pods(component):
            name = pod["metadata"]["name"]
            lines = [line for line in cluster.kubectl("logs", name).splitlines() if '"secret changed"' in line]
            result += [
                f"{name} {variable}" for variable in sorted(variables)
                if sum(f'"{variable}"' in line for line in lines) < changes
            ]  # fmt: skip
    return result


def statuses(system, token):
    entry = system.entries[0]
    headers = {"Authorization": f"Bearer {token}", "X-Tenant-ID": TENANT}
    return [entry.request(entry.connection(), "GET", path, None, headers)[1] for path in PATHS]


def names(cluster):
    """Returns the names of the pods and the numbers of their restarts."""
    return {
        (pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"])
        for component in VARIABLES for pod in cluster.pods(component)
    }  # fmt: skip
