#!/usr/bin/env python3
"""Compares what alerts and dashboards ask with what running services really show, and evaluates it by a real Prometheus.

`live.py identity=<address of its admin port> session=… ingest=…`, of services that have something to show. Without a
Prometheus (`deploy/local/fetch.py --tests` gets one on Debian) only names and labels are compared, and the last line says so.
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
    targets = dict(argument.split("=") for argument in sys.argv[1:])
    tools = load_tools()
    sys.path[:0] = [tools["yaml_path"]]
    global chart, monitoring
    import chart
    import monitoring

    shown = [series for process, address in targets.items() for series in scrape(process, address)]
    faults = [f"{where}: {fault}" for where, expr in monitoring.expressions() for fault in strangers(expr, shown)]
    program = chart.TOOLS.get("prometheus")
    if program and not faults:
        with tempfile.TemporaryDirectory() as home, running(program, Path(home), targets) as ask:
            until(lambda: not troubled(ask), lambda: "\n".join(troubled(ask)))
            faults = without_data(ask)
    print("\n".join(faults))
    if faults:
        sys.exit(1)
    print("every expression gives something" if program else "SKIPPED: there is no Prometheus to evaluate expressions by")


# ---- names and labels ------------------------------------------------------------------------------------------------


def scrape(process, address):
    """(name, labels) of each series, with the labels that Prometheus adds."""
    for line in get(f"http://{address}/metrics").decode().splitlines():
        found = SERIES.match(line)
        if found:
            added = {"namespace": monitoring.NAMESPACE, "pod": f"svc-{process}-0"}
            yield found[1], {**dict(LABEL.findall(found[2] or "")), **added}


def strangers(expr, shown):
    """What an expression names that no service shows."""
    known = set()
    for metric, asked in monitoring.SELECTOR.findall(expr):
        series = [labels for name, labels in shown if name == metric]
        if not series:
            yield f"nothing shows {metric}"
            continue
        known |= set().union(*series)
        matchers = monitoring.matchers(asked)
        for label, _, _ in matchers:
            if not any(label in labels for labels in series):
                yield f"{metric} has no label {label}"
        wanted = {label: value for label, operator, value in matchers if operator == "="}
        if not any(wanted.items() <= labels.items() for labels in series):
            yield f"nothing shows {metric} with {wanted}"
    for labels in monitoring.GROUPING.findall(expr):
        for label in filter(None, re.split(r"[\s,]+", labels)):
            if label not in known:
                yield f"no metric in it has the label {label}"


# ---- Prometheus ------------------------------------------------------------------------------------------------------


@contextmanager
def running(program, home, targets):
    """A Prometheus that scrapes the targets every second; gives what asks it."""
    (home / "rules.yaml").write_text(json.dumps(monitoring.rules()))
    (home / "prometheus.yaml").write_text(json.dumps(configuration(targets)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={home}/prometheus.yaml", f"--storage.tsdb.path={home}/data", f"--web.listen-address={address}"],
            stdout=log, stderr=log,
        )  # fmt: skip

    def ask(path, **parameters):
        return json.loads(get(f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    try:
        until(lambda: is_scraped(ask, len(targets)), lambda: f"Prometheus does not scrape:\n{(home / 'log').read_text()}")
        yield ask
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


def is_scraped(ask, count):
    """Whether there are rates of everything, and every rule was evaluated."""
    try:
        scraped = ask("query", query="count(sum_over_time(up[1m]) >= 3)")["result"]
    except OSError:
        return False
    return bool(scraped) and scraped[0]["value"][1] == str(count)


def troubled(ask):
    """Rules that cannot be evaluated, and alerts on a system that is well, once what began a moment ago has settled."""
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    if len(rules) != len(monitoring.alerts()):
        return [f"Prometheus knows {len(rules)} rules of {len(monitoring.alerts())}"]
    return [
        f"{rule['name']}: {rule['health']}, {rule['state']} {rule.get('lastError', '')}"
        for rule in rules
        if rule["health"] != "ok" or rule["state"] != "inactive"
    ]


def without_data(ask):
    """Queries that fail or give nothing."""
    faults = []
    for where, query in monitoring.queries():
        try:
            if not ask("query", query=query)["result"]:
                faults.append(f"{where}: no data for {query}")
        except urllib.error.HTTPError as error:
            faults.append(f"{where}: {error.read().decode()}")
    return faults


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return answer.read()


def until(holds, otherwise):
    end = time.monotonic() + DEADLINE
    while not holds():
        if time.monotonic() > end:
            sys.exit(otherwise())
        time.sleep(0.2)


if __name__ == "__main__":
    main()
