"""Values that cannot work are refused before anything is installed, with a sentence that says what to type."""

import unittest

import chart

# Values over the least ones, and what the refusal must say.
CONTRADICTIONS = {
    "no image": ({"image": {"registry": ""}}, "--set image.registry="),
    "the tag latest": ({"image": {"tag": "latest"}}, "--set image.tag="),
    "no address": ({"publicUrl": ""}, "--set publicUrl=https://"),
    "an address with a path": ({"publicUrl": "https://svc.example.com/api"}, "--set publicUrl=https://"),
    "two front doors": ({**chart.INGRESS, **chart.GATEWAY}, "--set ingress.enabled=false"),
    "an ingress without proxies": ({"ingress": {"enabled": True}}, "--set 'trustedProxies={"),
    "a gateway without proxies": ({**chart.GATEWAY, "trustedProxies": []}, "--set 'trustedProxies={"),
    "a gateway without a parent": (
        {"gateway": {"enabled": True}, "trustedProxies": ["10.0.0.0/8"]},
        "--set 'gateway.parentRefs[0].name=",
    ),
    "another host at the ingress": (
        {**chart.INGRESS, "ingress": {"enabled": True, "host": "other.example"}},
        "--set publicUrl=https://other.example",
    ),
    "another host at the gateway": (
        chart.merged(chart.GATEWAY, {"gateway": {"hostnames": ["other.example"]}}),
        "--set 'gateway.hostnames={svc.example.com}'",
    ),
    "no tokens": ({"secrets": {"existingSecret": ""}}, "--set secrets.existingSecret=svc-tokens"),
    "no database": ({"database": {"existingSecret": ""}}, "--set database.existingSecret=svc-database"),
    "no broker": ({"nats": {"existingSecret": ""}}, "--set nats.existingSecret=svc-nats"),
    "no bound of the stream": ({"nats": {"stream": {"maxBytes": ""}}}, "--set nats.stream.maxBytes=20GiB"),
    "mail both ways": ({"mail": {"existingSecret": "svc-mail", "toFiles": True}}, "mail.toFiles=false"),
    "egress without Postgres": (
        {"networkPolicy": {"egress": {"enabled": True, "nats": [chart.NATS]}}},
        "networkPolicy.egress.enabled=false",
    ),
    "egress without NATS": (
        {"networkPolicy": {"egress": {"enabled": True, "database": [chart.POSTGRES]}}},
        "networkPolicy.egress.nats",
    ),
    "egress without the mail server": (
        {
            "networkPolicy": {"egress": {"enabled": True, "database": [chart.POSTGRES], "nats": [chart.NATS]}},
            "mail": {"existingSecret": "svc-mail"},
        },
        "networkPolicy.egress.mail",
    ),
    "egress without the collector": (
        {
            "networkPolicy": {"egress": {"enabled": True, "database": [chart.POSTGRES], "nats": [chart.NATS]}},
            "monitoring": {"traces": {"endpoint": "http://collector:4318"}},
        },
        "--set monitoring.traces.endpoint=",
    ),
    "metrics that nobody may ask for": (
        {"monitoring": {"podMonitor": {"enabled": True}}},
        "--set 'networkPolicy.adminFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=",
    ),
    "an alert that nobody knows": (
        {"monitoring": {"alerts": {"disabled": ["SvcSlo"]}}},
        "monitoring.alerts.disabled has SvcSlo, which is no alert: they are ",
    ),
    "a pause that does not fit": (
        {"session": {"lifecycle": {"preStopSeconds": 20}}},
        "--set session.lifecycle.terminationGracePeriodSeconds=55",
    ),
    "an end that does not fit": (
        {"ingest": {"lifecycle": {"terminationGracePeriodSeconds": 49}}},
        "--set ingest.lifecycle.terminationGracePeriodSeconds=50",
    ),
    "more pods at least than at most": (
        {"identity": {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}}},
        "--set identity.autoscaling.maxReplicas=5",
    ),
    "no limit of memory": (
        {"identity": {"resources": {"limits": {"memory": None}}}},
        "--set identity.resources.limits.memory=",
    ),
    "a variable that nobody reads": ({"ingest": {"env": {"SVC_INVITE_TTL": "1h"}}}, "nothing that ingest reads"),
    "a variable with a value of its own": ({"identity": {"env": {"SVC_LOG": "debug"}}}, "leave it out"),
    "a secret as a variable": ({"identity": {"env": {"SVC_PLATFORM_TOKEN": "svc_pt_x"}}}, "read from a Secret only"),
    "a variable twice": (
        {"identity": {"extraEnv": [{"name": "SVC_LOG", "value": "debug"}]}},
        "take it out of extraEnv",
    ),
    "an extra variable twice": ({"identity": {"extraEnv": [{"name": "A"}, {"name": "A"}]}}, "take it out of extraEnv"),
    "nobody who knows sessions": ({"session": {"enabled": False}}, "--set ingest.env.SVC_SESSION_URL=http://"),
    "nothing at all": (chart.each({"enabled": False}), "--set identity.enabled=true"),
}
# Values that the schema refuses, and the path that it must name.
MALFORMED = {
    "an unknown key": ({"ingres": {"enabled": True}}, "ingres"),
    "an unknown key below": ({"identity": {"replica": 3}}, "replica"),
    "an unknown key of a component like another": ({"ingest": {"autoscaling": {"on": True}}}, "on"),
    "a text for a number": ({"identity": {"replicas": "three"}}, "replicas"),
    "a text for a yes or no": ({"ingress": {"enabled": "yes"}}, "enabled"),
    "an unknown mode": ({"nats": {"stream": {"mode": "create"}}}, "mode"),
    "a size without a unit": ({"nats": {"stream": {"maxBytes": "20G"}}}, "maxBytes"),
    "too many copies": ({"nats": {"stream": {"replicas": 6}}}, "replicas"),
    "a proxy that is no network": ({"trustedProxies": ["proxy.example"]}, "trustedProxies"),
    "a digest that is none": ({"session": {"image": {"digest": "abc"}}}, "digest"),
    "a token that is not rotated": ({"secrets": {"previous": ["database-url"]}}, "previous"),
}


class Refusals(unittest.TestCase):
    def test_values_that_contradict_or_miss_are_refused_with_what_to_type(self):
        for name, (values, sentence) in CONTRADICTIONS.items():
            with self.subTest(name):
                self.assertIn(sentence, chart.refusal(values))

    def test_values_of_another_form_are_refused_with_their_name(self):
        for name, (values, path) in MALFORMED.items():
            with self.subTest(name):
                said = chart.refusal(values)
                self.assertIn("values don't meet the specifications of the schema", said)
                self.assertIn(path, said)

    def test_all_faults_are_told_at_once(self):
        said = chart.refusal(
            {
                "image": {"tag": "latest"},
                "publicUrl": "",
                "secrets": {"existingSecret": ""},
                **chart.INGRESS,
                **chart.GATEWAY,
            }
        )
        for part in ("image.tag", "publicUrl", "secrets.existingSecret", "both enabled"):
            self.assertIn(part, said)

    def test_every_fault_that_the_chart_knows_is_tested_here(self):
        checks = (chart.CHART / "templates/_checks.tpl").read_text()
        # Three faults have two tests each: both ends of an address, proxies, shutdown, and a variable that comes twice.
        self.assertEqual(
            checks.count("append $faults"), len(CONTRADICTIONS) - 4, "a fault has no test, or a test no fault"
        )

    def test_global_values_are_free(self):
        chart.render({"global": {"anything": {"goes": True}}})
