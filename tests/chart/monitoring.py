"""The alerts and dashboards of the chart, and the expressions in them."""

import json
import re

import chart

NAMESPACE = "there"
RUNBOOKS = chart.ROOT / "docs/runbooks"
# A metric and its label matchers.
SELECTOR = re.compile(r"\b(svc_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")


def rules():
    """Returns the spec of the rendered PrometheusRule, which is also a valid rule file of Prometheus."""
    return chart.named(chart.case("all features"), "PrometheusRule", "svc")["spec"]


def alerts():
    return [rule for group in rules()["groups"] for rule in group["rules"]]


def alone(settings):
    """Returns values that enable the alerts and the metrics that they use."""
    enabled = {"podMonitor": {"enabled": True}, "alerts": {"enabled": True, **settings}}
    return {"monitoring": enabled, "networkPolicy": {"adminFrom": [{"namespaceSelector": {}}]}}


def dashboards():
    """Yields name and content of each dashboard in its ConfigMap."""
    for each in config_maps():
        for name, text in each["data"].items():
            yield name, json.loads(text)


def config_maps():
    """Returns the ConfigMaps that the Grafana sidecar selects."""
    found = chart.of_kind(chart.case("all features"), "ConfigMap")
    return [each for each in found if "grafana_dashboard" in each["metadata"].get("labels", {})]


def queries():
    """Yields every query of a dashboard: its location, and the query as Grafana sends it."""
    for name, dashboard in dashboards():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                filled = target["expr"].replace("$namespace", NAMESPACE).replace("$__rate_interval", "1m")
                yield f"{name}: {panel['title']}", filled


def expressions():
    """Yields location and text of every expression of alerts and dashboards."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    yield from queries()


def matchers(text):
    """Returns (label, operator, value) of each matcher in the braces of a selector."""
    return MATCHER.findall(text or "")
