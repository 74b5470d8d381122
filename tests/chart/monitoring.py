"""The alerts and dashboards of the chart, and the expressions in them."""

import json
import re

import chart

NAMESPACE = "there"
RUNBOOKS = chart.ROOT / "docs/runbooks"
# A metric, and what is asked of its labels.
SELECTOR = re.compile(r"\b(svc_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")


def rules():
    """The spec of the rendered PrometheusRule, which is a file of rules for Prometheus too."""
    return chart.named(chart.case("everything on"), "PrometheusRule", "svc")["spec"]


def alerts():
    return [rule for group in rules()["groups"] for rule in group["rules"]]


def dashboards():
    """Name and content of each dashboard, as a ConfigMap brings it."""
    for each in config_maps():
        for name, text in each["data"].items():
            yield name, json.loads(text)


def config_maps():
    """Those that Grafana's sidecar finds."""
    found = chart.of_kind(chart.case("everything on"), "ConfigMap")
    return [each for each in found if "grafana_dashboard" in each["metadata"].get("labels", {})]


def queries():
    """Every query of a dashboard: where it is, and the query as Grafana sends it."""
    for name, dashboard in dashboards():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                filled = target["expr"].replace("$namespace", NAMESPACE).replace("$__rate_interval", "1m")
                yield f"{name}: {panel['title']}", filled


def expressions():
    """Every expression that Prometheus evaluates."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    yield from queries()


def matchers(text):
    """(label, operator, value) of what stands in a selector's braces."""
    return MATCHER.findall(text or "")
