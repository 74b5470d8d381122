"""Names in name spaces of the whole cluster: kubectl finds the resources of the operator by no name of another product, and documents
use names that are unambiguous in every cluster."""

import json
import re
import sys
import unittest

import chart

sys.path.append(str(chart.ROOT / "tests/cluster"))
import foreign  # noqa: E402

OWN = [foreign.of_definition(each) for each in json.loads((chart.CHART / "files/crds.json").read_text())["items"]]
DOCUMENTS = ("*.md", "docs", "helm/svc/*.md", "helm/svc/values*.yaml", "helm/svc/templates", "helm/svc/alerts", "deploy", "Tiltfile")
# A command without its comment.
COMMAND = re.compile(r"\bkubectl\b[^|;&`#\n]*")
# A resource in a command: alone, in a list, or before the name of an object.
WORD = re.compile(r"(?<![\w./=:-])(?:svc-?)?(?:tenant|producer|consumer)s?(?!\.(?:yaml|json)\b)(?:\.[a-z.]+)?(?=[/,\s'\"]|$)", re.I)


def ambiguous(text):
    """Yields the names in the kubectl commands of a document that are not full names of resources of the operator."""
    full = {own.full_name for own in OWN}
    joined = re.sub(r"\\\n\s*", " ", text)
    for command in COMMAND.findall(joined):
        yield from (word for word in WORD.findall(command) if word not in full)


class Names(unittest.TestCase):
    def test_no_name_of_a_resource_is_a_name_or_category_of_another_product(self):
        listed = foreign.resources()
        self.assertGreater(len(listed), 100)
        for own in OWN:
            self.assertEqual(list(foreign.collisions(own, listed)), [])

    def test_resources_of_the_operator_do_not_share_names(self):
        for own in OWN:
            self.assertEqual(list(foreign.collisions(own, [other for other in OWN if other != own])), [])

    def test_resources_have_no_category(self):
        # kubectl expands categories before all other names, for every user of the cluster.
        self.assertEqual([own.categories for own in OWN], [(), (), ()])

    def test_collisions_are_found_in_all_kinds_of_names(self):
        own = OWN[0]
        for changed in (
            own._replace(categories=("svc",)), own._replace(categories=("all",)), own._replace(categories=("knative",)),
            own._replace(plural="tenants"), own._replace(kind="Service"), own._replace(short_names=("tenant",)),
            own._replace(short_names=("ksvc",)), own._replace(short_names=("gateway-api",)),
        ):  # fmt: skip
            self.assertTrue(list(foreign.collisions(changed, foreign.resources())), changed)

    def test_documents_use_the_full_names(self):
        found = []
        for pattern in DOCUMENTS:
            for path in chart.ROOT.glob(pattern):
                files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
                for file in files:
                    if file.name != "CHANGELOG.md" and file.suffix in (".md", ".txt", ".yaml", ".tpl", ".py", ""):
                        found += [f"{file.relative_to(chart.ROOT)}: {word}" for word in ambiguous(file.read_text("utf-8", "replace"))]
        self.assertEqual(found, [])

    def test_ambiguous_names_are_found_in_commands(self):
        for command in (
            "`kubectl get tenants`", "kubectl delete tenants --all", "kubectl wait --for=condition=Ready tenant/acme", "kubectl get pods,producers",
            "kubectl --namespace a get svctenants", "kubectl get SvcTenant acme", "kubectl delete \\\n  producer checkout",
            "kubectl get tenants.svc", "kubectl get tenants.capsule.clastix.io",
        ):  # fmt: skip
            self.assertTrue(list(ambiguous(command)), command)
        for command in (
            "kubectl get svctenants.svc.internal", "kubectl wait svcproducers.svc.internal/checkout --namespace shop",
            "kubectl label namespace shop svc-tenant=acme", "kubectl get secret a | svc auth login --tenant demo", "svc tenants list",
            "kubectl apply --filename tenant.yaml", "`kubectl get pods`: the tenant is ready",
        ):  # fmt: skip
            self.assertEqual(list(ambiguous(command)), [], command)
