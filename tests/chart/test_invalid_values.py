"""Invalid values are rejected before the installation, with a message that contains the value to set."""

import unittest

import chart
from chart import PUBLIC_FROM

# Overrides of the required values, and a part of the expected message.
CONTRADICTIONS = {
    "no image": ({"image": {"registry": ""}}, "--set image.registry="),
    "no image of the client": (
        {**chart.INGRESS, "image": {"registry": ""}, **chart.each({"image": {"repository": "registry.example/a"}})},
        "--set tests.image.repository=",
    ),
    "the tag latest": ({"image": {"tag": "latest"}}, "--set image.tag="),
    "no address": ({"publicUrl": ""}, "--set publicUrl=https://"),
    "a route for an IPv4 address": (
        {**chart.INGRESS, "publicUrl": "https://192.0.2.1"},
        "the host of publicUrl is the IP address 192.0.2.1, but a route needs a host name",
    ),
    "a route for an IPv6 address": ({**chart.GATEWAY, "publicUrl": "https://[2001:db8::1]:8443"}, "is the IP address 2001:db8::1"),
    "a host in upper case": (
        {**chart.INGRESS, "publicUrl": "https://SVC.Example.com"},
        'the host of publicUrl is "SVC.Example.com", but a route needs a host name of lower-case letters',
    ),
    "a host with an underscore": ({**chart.GATEWAY, "publicUrl": "https://svc_x.example.com"}, "a route needs a host name of lower-case letters"),
    "a label that the chart sets": ({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels contains app.kubernetes.io/name, which the chart sets"),
    "a common label that the chart sets": ({"migrations": {"podLabels": {"app.kubernetes.io/component": "x"}}}, "migrations.podLabels contains app.kubernetes.io/component"),
    "a label of the monitoring that the chart sets": (
        {"monitoring": {"alerts": {"labels": {"app.kubernetes.io/name": "x"}}}},
        "monitoring.alerts.labels contains app.kubernetes.io/name, which the chart sets",
    ),
    "an address with a space": ({**chart.INGRESS, "publicUrl": "https://svc example.com"}, 'publicUrl is "https://svc example.com", but must be an origin'),
    "an address with an invalid port": ({"publicUrl": "https://svc.example.com:http"}, 'publicUrl is "https://svc.example.com:http", but must be an origin'),
    "an address with a path": ({"publicUrl": "https://svc.example.com/api"}, "--set publicUrl=https://"),
    "ingress and gateway": ({**chart.INGRESS, **chart.GATEWAY}, "--set ingress.enabled=false"),
    "ingress without proxies": ({"ingress": {"enabled": True}}, "--set 'trustedProxies={"),
    "gateway without proxies": ({**chart.GATEWAY, "trustedProxies": []}, "--set 'trustedProxies={"),
    "proxies as networks and as hops": ({**chart.INGRESS, "trustedProxyHops": 1}, "--set trustedProxyHops=0"),
    "wide IPv4 network": ({**PUBLIC_FROM, "trustedProxies": ["11.0.0.0/8"]}, "contains 11.0.0.0/8, where each sender"),
    "wide IPv6 network": ({**PUBLIC_FROM, "trustedProxies": ["fd00::/32"]}, "--set allowWideTrustedProxies=true"),
    "wide network that any pod reaches": (
        {**chart.INGRESS, "trustedProxies": ["0.0.0.0/0"], "allowWideTrustedProxies": True},
        "--set 'networkPolicy.publicFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=",
    ),
    "hops that any pod reaches": (
        {"ingress": {"enabled": True}, "trustedProxyHops": 1},
        "--set 'networkPolicy.publicFrom[0].",
    ),
    "hops without policies": (
        {
            "ingress": {"enabled": True},
            "trustedProxyHops": 1,
            "networkPolicy": {"enabled": False, "publicFrom": [{"namespaceSelector": {}}]},
        },
        "--set networkPolicy.enabled=true",
    ),
    "ingress without TLS": (
        {**chart.INGRESS, "publicUrl": "http://svc.example.com"},
        "--set publicUrl=https://svc.example.com",
    ),
    "gateway without a parent": (
        {"gateway": {"enabled": True}, "trustedProxies": ["10.244.7.0/24"]},
        "--set 'gateway.parentRefs[0].name=",
    ),
    "different host of the gateway": (
        chart.merged(chart.GATEWAY, {"gateway": {"hostnames": ["other.example"]}}),
        "--set 'gateway.hostnames={svc.example.com}'",
    ),
    "no tokens": ({"secrets": {"existingSecret": ""}}, "--set secrets.existingSecret=svc-tokens"),
    "no database": ({"database": {"existingSecret": ""}}, "--set database.existingSecret=svc-database"),
    "no broker": ({"nats": {"existingSecret": ""}}, "--set nats.existingSecret=svc-nats"),
    "two CAs": ({"nats": {"ca": {"secret": "a", "configMap": "b"}}}, "type --set nats.ca.secret="),
    "certificates that are not checked": (
        {"database": {"sslMode": "require", "ca": {"secret": "ca"}}},
        "database.ca has no effect with database.sslMode=require: use verify-full or verify-ca",
    ),
    "duplicate variable of the database library": (
        {"database": {"sslMode": "require"}, "session": {"extraEnv": [{"name": "PGSSLMODE", "value": "disable"}]}},
        "session.extraEnv contains PGSSLMODE, which is already set",
    ),
    "one Secret for two purposes": (
        {"nats": {"existingSecret": "svc-database"}},
        "database.existingSecret and nats.existingSecret are both svc-database: create one Secret for each",
    ),
    "a URL and a Secret of URLs": (
        {"nats": {"url": "nats://nats:4222", "logins": chart.LOGINS["nats"]["logins"]}},
        "nats.url and nats.existingSecret are both set, but only one is allowed: type --set nats.existingSecret=",
    ),
    "a URL with a user": (
        chart.merged(chart.LOGINS, {"database": {"url": "postgres://svc:p@pg-rw:5432/app"}}),
        "database.url contains a user or password: remove it, and set database.logins",
    ),
    "a URL without a user": (
        chart.merged(chart.LOGINS, {"database": {"logins": {"sessionMigrator": ""}}}),
        "--set database.logins.sessionMigrator=<Secret with user and password>",
    ),
    "a user without a URL": ({"nats": {"logins": {"ingest": "nats-ingest"}}}, "nats.logins.ingest is set without nats.url"),
    "one user for two roles": (
        chart.merged(chart.LOGINS, {"database": {"logins": {"session": "pg-identity"}}}),
        "database.logins.identity and database.logins.session are both pg-identity: each role has its own user",
    ),
    "a URL and a file of credentials": (
        chart.merged(chart.LOGINS, {"nats": {"credentials": {"ingest": "ingest.creds"}}}),
        "nats.credentials.ingest and nats.url are both set, but only one is allowed",
    ),
    "no size limit of the stream": ({"nats": {"stream": {"maxBytes": ""}}}, "--set nats.stream.maxBytes=20GiB"),
    "mail to a server and to files": ({"mail": {"existingSecret": "svc-mail", "toFiles": True}}, "mail.toFiles=false"),
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
    "egress without the API server": (
        {
            "networkPolicy": {"egress": {"enabled": True, "database": [chart.POSTGRES], "nats": [chart.NATS]}},
            "workloadIdentity": {"enabled": True},
        },
        "networkPolicy.egress.kubernetes",
    ),
    "the operator without session": (
        {**chart.each({"env": {"SVC_SESSION_URL": "http://session:8081"}}), "session": {"enabled": False}, "operator": {"enabled": True}},
        "operator.enabled needs identity and session in the same release",
    ),
    "consumers without ingest": (
        {"ingest": {"enabled": False}, "operator": {"enabled": True, "consumers": {"enabled": True}}},
        "operator.consumers.enabled needs the operator, and ingest in the same release",
    ),
    "an address for consumers without consumers": (
        {"operator": {"enabled": True, "consumers": {"natsUrl": "nats://nats.example.com:4222"}}},
        "operator.consumers.natsUrl has no effect without consumers",
    ),
    "variable of the operator that a value sets": (
        {"identity": {"env": {"SVC_OPERATOR": "there/svc-operator"}}},
        "identity.env.SVC_OPERATOR is set by another value",
    ),
    "metrics without an allowed peer": (
        {"monitoring": {"podMonitor": {"enabled": True}}},
        "--set 'networkPolicy.adminFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=",
    ),
    "alerts without metrics": (
        {"monitoring": {"alerts": {"enabled": True}}},
        "--set monitoring.podMonitor.enabled=true",
    ),
    "unknown alert": (
        {"monitoring": {"alerts": {"disabled": ["SvcSlo"]}}},
        "monitoring.alerts.disabled contains SvcSlo, which is not an alert: use one of ",
    ),
    "preStop sleep longer than the grace period": (
        {"session": {"lifecycle": {"preStopSeconds": 20}}},
        "--set session.lifecycle.terminationGracePeriodSeconds=55",
    ),
    "grace period too short": (
        {"ingest": {"lifecycle": {"terminationGracePeriodSeconds": 49}}},
        "--set ingest.lifecycle.terminationGracePeriodSeconds=50",
    ),
    "minimum above maximum of pods": (
        {"identity": {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}}},
        "--set identity.autoscaling.maxReplicas=5",
    ),
    "autoscaling without a CPU request": (
        {"session": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}},
        "session.autoscaling needs a CPU request: type --set session.resources.requests.cpu=250m",
    ),
    "a volume with a name of the chart": (
        {"session": {"extraVolumes": [{"name": "secrets", "emptyDir": {}}]}},
        "session.extraVolumes contains the volume secrets, a name that the chart uses: rename it",
    ),
    "no memory limit": (
        {"identity": {"resources": {"limits": {"memory": None}}}},
        "--set identity.resources.limits.memory=",
    ),
    "unknown variable": ({"ingest": {"env": {"SVC_INVITE_TTL": "1h"}}}, "not a variable of ingest"),
    "variable that a value sets": ({"identity": {"env": {"SVC_LOG": "debug"}}}, "remove it"),
    "secret as a variable": ({"identity": {"env": {"SVC_PLATFORM_TOKEN": "svc_pt_x"}}}, "read from a Secret only"),
    "duplicate variable": (
        {"identity": {"extraEnv": [{"name": "SVC_LOG", "value": "debug"}]}},
        "remove it from extraEnv",
    ),
    "a duration without a unit": (
        {"identity": {"env": {"SVC_INVITE_TTL": 48}}},
        "identity.env.SVC_INVITE_TTL is 48, but needs a unit, as in 30s, 48h or 64MiB",
    ),
    "duplicate extra variable": ({"identity": {"extraEnv": [{"name": "A"}, {"name": "A"}]}}, "remove it from extraEnv"),
    "no session service": ({"session": {"enabled": False}}, "--set ingest.env.SVC_SESSION_URL=http://"),
    "no identity service": ({"identity": {"enabled": False}}, "--set session.env.SVC_IDENTITY_URL=http://"),
    "a trial with a production Secret": ({"trial": {"enabled": True}}, "type --set trial.enabled=false"),
    "no component": (chart.each({"enabled": False}), "--set identity.enabled=true"),
}
# Values that the schema rejects, and the key in the message.
MALFORMED = {
    "unknown key": ({"ingres": {"enabled": True}}, "ingres"),
    "unknown nested key": ({"identity": {"replica": 3}}, "replica"),
    "unknown key of a component with @like": ({"ingest": {"autoscaling": {"on": True}}}, "on"),
    "variable of a container that is a number": ({"identity": {"extraEnv": [{"name": "A", "value": 1}]}}, "value"),
    "link to runbooks that is a path": ({"monitoring": {"alerts": {"runbookUrl": "docs/runbooks"}}}, "runbookUrl"),
    "text instead of a number": ({"identity": {"replicas": "three"}}, "replicas"),
    "text instead of a boolean": ({"ingress": {"enabled": "yes"}}, "enabled"),
    "unknown mode": ({"nats": {"stream": {"mode": "create"}}}, "mode"),
    "size without a binary unit": ({"nats": {"stream": {"maxBytes": "20G"}}}, "maxBytes"),
    "retention without a unit": ({"nats": {"stream": {"maxAge": "72"}}}, "maxAge"),
    "retention of audit events as a number": ({"nats": {"stream": {"auditMaxAge": 400}}}, "auditMaxAge"),
    "a number of streams that does not divide the partitions": ({"nats": {"stream": {"count": 3}}}, "count"),
    "unknown compression": ({"nats": {"stream": {"compression": "zstd"}}}, "compression"),
    "too many replicas": ({"nats": {"stream": {"replicas": 6}}}, "replicas"),
    "too many hops": ({"trustedProxyHops": 11}, "trustedProxyHops"),
    "proxy that is not a network": ({"trustedProxies": ["proxy.example"]}, "trustedProxies"),
    "invalid digest": ({"session": {"image": {"digest": "abc"}}}, "digest"),
    "unknown SSL mode": ({"database": {"sslMode": "verify"}}, "sslMode"),
    "too many connections": ({"database": {"connections": 101}}, "connections"),
    "empty key": ({"database": {"keys": {"identity": ""}}}, "identity"),
    "disruption budget that is no number": ({"identity": {"podDisruptionBudget": {"maxUnavailable": "abc"}}}, "maxUnavailable"),
    "negative disruption budget": ({"operator": {"podDisruptionBudget": {"maxUnavailable": -1}}}, "maxUnavailable"),
    "disruption budget above 100 %": ({"ingest": {"podDisruptionBudget": {"maxUnavailable": "101%"}}}, "maxUnavailable"),
    "registry with a scheme": ({"image": {"registry": "https://registry.example/svc"}}, "registry"),
    "shared registry with a scheme": ({"global": {"imageRegistry": "https://registry.example/svc"}}, "imageRegistry"),
    "repository with a tag": ({"session": {"image": {"repository": "registry.example/svc/session:1"}}}, "repository"),
    "tag with build metadata": ({"image": {"tag": "1.2.3+4"}}, "tag"),
    "CPU request of zero": ({"ingest": {"resources": {"requests": {"cpu": "0"}}}}, "cpu"),
    "CPU request of zero as a number": ({"ingest": {"resources": {"requests": {"cpu": 0}}}}, "cpu"),
    "memory with an unknown unit": ({"migrations": {"resources": {"limits": {"memory": "512MB"}}}}, "memory"),
    "memory without a unit": ({"identity": {"resources": {"limits": {"memory": "768"}}}}, "memory"),
    "memory without a unit as a number": ({"identity": {"resources": {"requests": {"memory": 768}}}}, "memory"),
    "proxy with a prefix that is too long": ({"trustedProxies": ["10.0.0.0/33"]}, "trustedProxies"),
    "sender that is no mailbox": ({"mail": {"from": "svc"}}, "from"),
    "support address that is a name": ({"branding": {"supportAddress": "help desk"}}, "supportAddress"),
    "collector without a scheme": ({"monitoring": {"traces": {"endpoint": "collector:4318"}}}, "endpoint"),
    "listen address that is not a wildcard": ({"listenAddress": "10.0.0.1"}, "listenAddress"),
}


class InvalidValues(unittest.TestCase):
    def test_missing_and_contradictory_values_are_rejected_with_the_value_to_set(self):
        for name, (values, sentence) in CONTRADICTIONS.items():
            with self.subTest(name):
                self.assertIn(sentence, chart.error(values))

    def test_malformed_values_are_rejected_with_their_key(self):
        for name, (values, path) in MALFORMED.items():
            with self.subTest(name):
                message = chart.error(values)
                self.assertIn("values don't meet the specifications of the schema", message)
                self.assertIn(path, message)

    def test_all_errors_are_reported_at_once(self):
        message = chart.error(
            {
                "image": {"tag": "latest"},
                "publicUrl": "",
                "secrets": {"existingSecret": ""},
                **chart.INGRESS,
                **chart.GATEWAY,
            }
        )
        for part in ("image.tag", "publicUrl", "secrets.existingSecret", "both enabled"):
            self.assertIn(part, message)

    def test_a_name_that_kubernetes_rejects_for_services_is_rejected(self):
        for release in ("svc.prod", "1svc"):
            run = chart.template(chart.LEAST, release=release)
            self.assertIn(f'begin with "{release}"', run.stderr)
            self.assertIn("type --set fullnameOverride=svc", run.stderr)
            chart.render({"fullnameOverride": "svc"}, release=release)

    def test_identity_and_ingest_each_need_the_size_of_the_streams(self):
        for other in ("identity", "ingest"):
            values = {"nats": {"stream": {"maxBytes": ""}}, other: {"enabled": False}}
            self.assertIn("--set nats.stream.maxBytes=20GiB", chart.error(values), other)

    def test_every_check_of_the_chart_has_a_case(self):
        checks = (chart.CHART / "templates/_checks.tpl").read_text()
        # Six checks have two cases each: host name, IP address, proxies, wide networks, grace period, and variables that a value sets. The checks for
        # labels, for `publicFrom` and for duplicate variables have three, and that of the address four. The check for the name of the release has its
        # own test.
        self.assertEqual(
            checks.count("append $errors"), len(CONTRADICTIONS) - 14, "a check has no case, or a case has no check"
        )

    def test_wide_networks_and_hops_are_accepted_if_only_the_proxies_can_connect(self):
        wide = {"trustedProxies": ["10.0.0.0/8", "fd00::/8"], "allowWideTrustedProxies": True}
        for proxies in (wide, {"trustedProxyHops": 2}):
            chart.render({"ingress": {"enabled": True}, **PUBLIC_FROM, **proxies})

    def test_development_hosts_need_no_tls(self):
        for host in ("svc.localhost:8080", "localhost", "svc.test"):
            chart.render({**chart.INGRESS, "publicUrl": f"http://{host}"})

    def test_global_accepts_any_value(self):
        chart.render({"global": {"anything": {"goes": True}}})
