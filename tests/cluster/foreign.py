"""The names of resources of Kubernetes and of other products (foreign_resources.txt), as kubectl finds them."""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("foreign_resources.txt")


class Resource(NamedTuple):
    plural: str
    group: str
    kind: str
    scope: str
    short_names: tuple = ()
    categories: tuple = ()

    @property
    def full_name(self):
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def names(self):
        """Returns the names that `kubectl get` accepts for it alone. Kinds are compared in lower case."""
        return {self.plural, self.kind.lower(), *self.short_names}


def resources():
    """Returns the resources of the file."""
    lines = [line.split() for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [of_line(*line) for line in lines]


def of_line(plural, group, kind, scope, short_names="-", categories=""):
    listed = lambda text: tuple(text.split(",")) if text not in ("", "-") else ()  # noqa: E731
    return Resource(plural, "" if group == "-" else group, kind, scope, listed(short_names), listed(categories))


def of_definition(definition):
    """Returns the resource of a CustomResourceDefinition."""
    spec, names = definition["spec"], definition["spec"]["names"]
    short_names, categories = tuple(names.get("shortNames", ())), tuple(names.get("categories", ()))
    resource = Resource(names["plural"], spec["group"], names["kind"], spec["scope"], short_names, categories)
    # kubectl finds the singular name too.
    return resource._replace(short_names=(*short_names, names.get("singular", names["kind"].lower())))


def collisions(own, foreign):
    """Yields a message for each name or category of `own` that a foreign resource has as a name or a category."""
    for other in foreign:
        taken = other.names() | set(other.categories)
        for name in sorted((own.names() | set(own.categories)) & taken):
            yield f"{own.full_name}: {name} is also {other.full_name}"
