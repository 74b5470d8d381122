#!/usr/bin/env python3
"""Compares the expressions of alerts and dashboards with the metrics of running services, and evaluates them with Prometheus.

`live.py identity=<address of its admin port> session=… ingest=…`, after some traffic. Without Prometheus
(`deploy/local/fetch.py --tests` fetches it on Debian) only names and labels are compared, and the last line contains SKIPPED.

`live.py --serve identity=… session=… ingest=…` runs Prometheus with the alerts until its standard input ends, and prints its address. Minutes of the
alerts are seconds there, and hours are minutes.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from run import load_tools

DEADLINE = 60
SERIES = re.compile(r"^(svc_\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def main():
    serve = sys.argv[1] == "--serve"
    targets = dict(argument.split("=") for argument in sys.argv[1 + serve :])
    tools = load_tools()
    sys.path[:0] = [tools["yaml_path"]]
    global chart, monitoring
    import chart
    import monitoring

    if serve:
        with tempfile.TemporaryDirectory() as home, running(chart.TOOLS["prometheus"], Path(home), targets, faster) as query:
            print(query.address, flush=True)
            sys.stdin.read()
        return

    exposed = [series for process, address in targets.items() for series in scrape(process, address)]
    errors = [f"{where}: {error}" for where, expr in monitoring.expressions() for error in unknown_names(expr, exposed)]
    program = chart.TOOLS.get("prometheus")
    if program and not errors:
        with tempfile.TemporaryDirectory() as home, running(program, Path(home), targets) as query:
            until(lambda: not unhealthy_rules(query), lambda: "\n".join(unhealthy_rules(query)))
            errors = without_data(query)
    print("\n".join(errors))
    if errors:
        sys.exit(1)
    print("every expression returns data" if program else "SKIPPED: Prometheus is not installed, expressions were not evaluated")


# ---- names and labels ------------------------------------------------------------------------------------------------


def scrape(process, address):
    """Yields (name, labels) of each series, with the labels that a PodMonitor adds."""
    for line in get(f"http://{address}/metrics").decode().splitlines():
        found = SERIES.match(line)
        if found:
            added = {"namespace": monitoring.NAMESPACE, "pod": f"svc-{process}-0"}
            yield found[1], {**dict(LABEL.findall(found[2] or "")), **added}


def unknown_names(expr, exposed):
    """Yields an error for each metric, label or value of an expression that no service exposes."""
    known, selectors = set(), monitoring.SELECTOR.findall(expr)
    if not selectors:  # metrics of other programs
        return
    for metric, selector in selectors:
        # The operator needs Kubernetes, so it does not run here.
        if metric.startswith("svc_operator_"):
            continue
        series = [labels for name, labels in exposed if name == metric]
        if not series:
            yield f"no service exposes {metric}"
            continue
        known |= set().union(*series)
        matchers = monitoring.matchers(selector)
        for label, _, _ in matchers:
            if not any(label in labels for labels in series):
                yield f"{metric} has no label {label}"
        wanted = {label: value for label, operator, value in matchers if operator == "="}
        if not any(wanted.items() <= labels.items() for labels in series):
            yield f"no service exposes {metric} with {wanted}"
    if not known:
        return
    for labels in monitoring.GROUPING.findall(expr):
        for label in filter(None, re.split(r"[\s,]+", labels)):
            if label not in known:
                yield f"no metric of the expression has the label {label}"


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def faster(rules):
    """The rules with times that are sixty times shorter."""
    seconds = {"m": 1, "h": 60, "d": 1440}

    def shorter(text):
        return re.sub(r"\b(\d+)([mhd])\b", lambda found: f"{int(found[1]) * seconds[found[2]]}s", text)

    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["expr"] = shorter(rule["expr"])
        if "for" in rule:
            rule["for"] = shorter(rule["for"])
    return rules


@contextmanager
def running(program, home, targets, change=lambda rules: rules):
    """Runs a Prometheus that scrapes the targets every second; yields a function that queries its API."""
    (home / "rules.yaml").write_text(json.dumps(change(monitoring.rules())))
    (home / "prometheus.yaml").write_text(json.dumps(configuration(targets)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={home}/prometheus.yaml", f"--storage.tsdb.path={home}/data", f"--web.listen-address={address}"],
            stdout=log, stderr=log,
        )  # fmt: skip

    def query(path, **parameters):
        return json.loads(get(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    query.address = address
    try:
        until(lambda: is_scraped(query, len(targets)), lambda: f"Prometheus does not scrape:\n{(home / 'log').read_text()}")
        yield query
    finally:
        process.terminate()
        process.wait()


def configuration(targets):
    labelled = [
        {"targets": [address], "labels": {"namespace": monitoring.NAMESPACE, "pod": f"svc-{process}-0"}}
        for process, address in targets.items()
    ]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "svc", "static_configs": labelled}],
    }


def is_scraped(query, count):
    """Returns whether each target was scraped at least three times, so that rates exist."""
    try:
        scraped = query("query", query="count(sum_over_time(up[1m]) >= 3)")["result"]
    except OSError:
        return False
    return bool(scraped) and scraped[0]["value"][1] == str(count)


def unhealthy_rules(query):
    """Returns rules that cannot be evaluated, and alerts that fire on a healthy system."""
    rules = [rule for group in query("rules")["groups"] for rule in group["rules"]]
    if len(rules) != len(monitoring.alerts()):
        return [f"Prometheus loaded {len(rules)} of {len(monitoring.alerts())} rules"]
    return [
        f"{rule['name']}: {rule['health']}, {rule['state']} {rule.get('lastError', '')}"
        for rule in rules
        if rule["health"] != "ok" or rule["state"] != "inactive"
    ]


def without_data(query):
    """Returns the queries that fail or return no data."""
    errors = []
    for where, expr in monitoring.queries():
        try:
            if not query("query", query=expr)["result"]:
                errors.append(f"{where}: no data for {expr}")
        except urllib.error.HTTPError as error:
            errors.append(f"{where}: {error.read().decode()}")
    return errors


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as response:
        return response.read()


def until(condition, message):
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            sys.exit(message())
        time.sleep(0.2)


if __name__ == "__main__":
    main()
