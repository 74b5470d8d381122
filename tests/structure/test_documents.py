"""Values in documents and in the API description are those of the program: defaults of variables, which docs/configuration.md has, and
constants. Variables, values of the chart and texts of logs that documents name exist. Shell blocks can be pasted. The domain uses no other module of its service."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not the last factor of a product.
NAME = r"(?<!× )`(?P<name>SVC_[A-Z_]+)`"
VALUE = r"`?(?P<value>\d[\d,]*(?: ?(?:per |/)?(?:ms|s|seconds|min|minutes|minute|h|hours|hour|d|days|[KM]iB))?)`?"
# The ways to write the value next to its variable.
FORMS = [
    re.compile(form)
    for form in (
        rf"{NAME} \({VALUE}[),;]",
        rf"{NAME},? default:? {VALUE}(?!\w)",
        rf"{VALUE} \({NAME}[),]",
        rf"\({VALUE}, {NAME}",
        rf"\| {NAME} \| {VALUE} \|",
    )
]
UNITS = {"ms": 0.001, "s": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600,
         "d": 86400, "days": 86400, "KiB": 1024, "MiB": 1024 * 1024, "": 1}

WORDS = dict(zip("one two three four five six seven eight nine ten".split(), range(1, 11)))
# Source of a constant, with its value as the last number of the match, and the sentences with this value.
CONSTANTS = {
    ("services/identity/src/domain/throttle.rs", r"LOCKOUT_THRESHOLD: i32 = (\d+)"): [
        ("docs/limits.md", r"After (\d+) consecutive failures from any sources"),
        ("docs/limits.md", r"an attacker with (\d+) wrong passwords"),
        ("catalog/openapi.json", r"After (\d+) consecutive failures, the account is locked"),
    ],
    ("services/identity/src/domain/throttle.rs", r"MAX_IN_FLIGHT: usize = (\d+)"): [
        ("ARCHITECTURE.md", r"at most (\w+) logins and (\w+) password changes per account"),
        ("docs/limits.md", r"(\w+) logins and (\w+) password changes per account and source can be in flight"),
    ],
    ("services/identity/src/domain/throttle.rs", r"ATTEMPT_TIMEOUT: TimeDelta = TimeDelta::seconds\((\d+)"): [
        ("ARCHITECTURE.md", r"per account and source, each for at most (\d+) s"),
        ("docs/limits.md", r"an attempt counts as in flight for (\d+) s"),
    ],
    ("services/identity/src/domain/throttle.rs", r"TRUSTED_SOURCE_WINDOW: TimeDelta = TimeDelta::days\((\d+)"): [
        ("docs/limits.md", r"addresses with a successful login in the last (\d+) days"),
        ("docs/limits.md", r"a successful login to the same account within the last (\d+) days"),
    ],
    ("services/identity/src/app/login_attempt.rs", r"MAX_REPETITIONS: usize = (\d+)"): [
        ("ARCHITECTURE.md", r"reads both again, at most (\d+) times"),
        ("docs/limits.md", r"change the counters (\d+) times before the result is recorded"),
    ],
    ("services/identity/src/domain/factor.rs", r"MAX_ATTEMPTS: i32 = (\d+)"): [
        ("docs/limits.md", r"challenge of a login, [^|]*\| 5 min, (\w+) codes"),
    ],
    ("services/identity/src/domain/factor.rs", r"MAX_CHALLENGES: i64 = (\d+)"): [
        ("docs/limits.md", r"challenge of a login, [^|]*\| 5 min, five codes or passkeys, one login; (\d+) per user"),
    ],
    ("services/identity/src/domain/factor.rs", r"MAX_FAILURES: i32 = (\d+)"): [
        ("docs/limits.md", r"wrong codes and passkeys of a user within 24 h, from all addresses \| (\d+)"),
        ("docs/limits.md", r"can guess (\d+) codes per day"),
    ],
    ("services/identity/src/app/mails.rs", r"INVITE_MAILS: .*NonZeroU32::new\((\d+)"): [
        ("docs/limits.md", r"invites mailed to one recipient, over all tenants \| (\d+), then"),
    ],
    ("services/identity/src/app/resets.rs", r"RESET_MAILS: .*NonZeroU32::new\((\d+)"): [
        ("docs/limits.md", r"resets mailed to one recipient, over all tenants \| (\d+), then"),
    ],
    ("services/session/src/app/device_grants.rs", r"WRONG_CODES_OF_USER: Limit =[^;]*NonZeroU32::new\((\d+)"): [
        ("docs/limits.md", r"A user can enter (\w+) wrong codes from any address"),
        ("docs/device-login.md", r"A user can enter (\w+) wrong codes, then"),
        ("catalog/openapi.json", r"After (\w+) unknown codes of a user or of an address"),
    ],
    ("services/session/src/domain/session.rs", r"MAX_SESSIONS: i64 = (\d+)"): [
        ("docs/limits.md", r"A user has at most (\d+) active sessions"),
    ],
    ("libs/bus/src/publisher/subjects.rs", r"MAX_TYPES: usize = ([\d_]+)"): [
        ("docs/limits.md", r"at most ([\d,]+) event types in its subjects"),
    ],
    ("libs/bus/src/publisher/subjects.rs", r"MAX_SUBJECTS: usize = ([\d_]+)"): [
        ("docs/limits.md", r"and ([\d,]+) subjects, which are pairs"),
    ],
    ("libs/bus/src/durables/requests.rs", r"MAX_REQUESTS: usize = ([\d_]+)"): [
        ("docs/limits.md", r"requests to ingest of a consumer in flight \| (\d+) per replica"),
    ],
    ("libs/bus/src/durables/requests.rs", r"MAX_REQUESTS_OF_ALL: usize = ([\d_]+)"): [
        ("docs/limits.md", r"in flight \| 64 per replica, ([\d,]+) of all consumers"),
    ],
    ("libs/bus/src/durables/accounts.rs", r"max_conn: (\d+)"): [("docs/limits.md", r"connections of a consumer \| (\d+)")],
    ("libs/bus/src/durables/keep.rs", r"MESSAGES_PER_SECOND: u64 = ([\d_]+)"): [
        ("docs/limits.md", r"messages of a consumer to a server \| ([\d,]+) per second"),
        ("docs/limits.md", r"The limit of ([\d,]+) per second\s+is in addition"),
    ],
    ("libs/bus/src/durables/message_rates.rs", r"MESSAGES_PER_EVENT: u64 = (\d+)"): [
        ("docs/limits.md", r"in addition to (\w+) for each event that it reads"),
        ("docs/limits.md", r"A consumer may send (\w+) messages for each event"),
    ],
    ("libs/bus/src/durables/message_rates.rs", r"READINGS: u8 = (\d+)"): [
        ("docs/limits.md", r"above the limit in (\w+) consecutive readings"),
    ],
    ("libs/bus/src/durables/accounts.rs", r"max_subs: (\d+)"): [("docs/limits.md", r"subscriptions of a connection \| (\d+)")],
    ("libs/bus/src/streams.rs", r"MAX_DEAD_LETTERS: i64 = ([\d_]+)"): [
        ("docs/limits.md", r"dead letters of a tenant and consumer \| ([\d,]+), of"),
        ("docs/consumers.md", r"the consumer has ([\d,]+) dead letters of the tenant"),
    ],
    ("services/ingest/src/consumer_metrics.rs", r"MAX_CONSUMERS: usize = ([\d_]+)"): [
        ("docs/limits.md", r"consumers with \[metrics\]\(metrics.md\) \| (\d+)"),
    ],
}


# Source of a version that the tests run or the programs check, and the sentences with it.
VERSIONS = {
    ("libs/bus/src/connect.rs", r"OLDEST_VERSION: [^=]*= \(2, 12, (\d+)\)"): [
        ("docs/consumers.md", r"nats-server must be 2\.12\.(\d+) or newer"),
        ("docs/running.md", r"JetStream \(2\.12\.(\d+) or newer\)"),
        ("docs/nats.md", r"need nats-server 2\.12\.(\d+) or newer"),
        ("docs/runbooks/SvcBrokerUnavailable.md", r"update it to 2\.12\.(\d+) or newer"),
    ],
    ("Cargo.lock", r'name = "async-nats"\nversion = "0\.(\d+)\.'): [
        ("docs/consumers.md", r"\| async-nats 0\.(\d+) \| [^|]* \| test with 0\.(\d+) \|"),
    ],
    ("deploy/local/fetch.py", r'NATS_CLI = "v0\.(\d+)\.'): [
        ("docs/consumers.md", r"\| `nats` 0\.(\d+) \| [^|]* \| test with 0\.(\d+) \|"),
        ("docs/operations.md", r"natscli 0\.(\d+) warns"),
    ],
    ("tests/consumers/benthos/go.mod", r"benthos/v4 v4\.(\d+)\."): [
        ("docs/consumers.md", r"test with this input of Benthos 4\.(\d+);"),
    ],
    ("deploy/local/nats-py-oldest.txt", r"nats-py==2\.(\d+)\."): [
        ("docs/consumers.md", r"\| nats-py 2\.(\d+) or newer \| [^|]* \| test with 2\.(\d+) and"),
    ],
    ("deploy/local/requirements.txt", r"nats-py==2\.(\d+)\."): [
        ("docs/consumers.md", r"\| nats-py [^|]* \| [^|]* \| test with 2\.3 and 2\.(\d+) \|"),
    ],
    ("tests/system/consumer_examples.rs", r'OLDEST_NATS_GO: &str = "v1\.(\d+)\.'): [
        ("docs/consumers.md", r"\| nats\.go 1\.(\d+) or newer, `jetstream` \| [^|]* \| test with 1\.(\d+) and"),
        ("docs/consumers.md", r"\| nats\.go 1\.(\d+) or newer, `CreateOrUpdateConsumer` \| [^|]* \| test with 1\.(\d+) and"),
        ("docs/consumers.md", r"\| nats\.go 1\.(\d+) or newer, old API \| [^|]* \| test with 1\.(\d+) and"),
    ],
    ("docs/consumers/go.mod", r"nats\.go v1\.(\d+)\."): [
        ("docs/consumers.md", r"`jetstream` \| [^|]* \| test with 1\.31 and 1\.(\d+) \|"),
    ],
    ("tests/system/consumer_examples.rs", r'OLDEST_NATS_JS: &str = "3\.(\d+)\.'): [
        ("docs/consumers.md", r"\| nats\.js 3\.(\d+) or newer \(`@nats-io/jetstream`\) \| [^|]* \| test with 3\.(\d+) and"),
    ],
    ("tests/system/consumer_clients.rs", r'NATS_JS_2: [^=]*= \["2\.(\d+)\.'): [
        ("docs/consumers.md", r"\| nats\.js 2\.(\d+) or newer \(`nats`\) \| [^|]* \| test with 2\.(\d+) and"),
    ],
    ("deploy/local/fetch.py", r'OLDEST_JNATS = "2\.17\.(\d+)"'): [
        ("docs/consumers.md", r"\| jnats 2\.17\.(\d+) or newer \| [^|]* \| test with 2\.17\.(\d+) and"),
    ],
}
VARIABLE = re.compile(r"\b(SVC_[A-Z0-9_]*[A-Z0-9])(_…)?")
# Of the reader's own program.
EXAMPLES = {"SVC_EMAIL", "SVC_PASSWORD"}
CHART_VALUE = re.compile(r"`(?:--set )?([a-z][A-Za-z]*(?:\.[A-Za-z]+)+)(?:[=:][^`]*)?`")
# Texts of nats-server and of sqlx.
FOREIGN_TEXTS = {"no space left on device", "critical write error", "failed to store a msg", "pool timed out"}


FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.M | re.S)
# They ask for a secret or for a confirmation, so they would read a line that is pasted after them.
ASKING = re.compile(
    r"\bsvc (?:(?:users accept-invite|auth login|auth password (?:change|confirm-reset))\b(?!.*-(?:stdin|file))"
    r"|(?:api-keys revoke|auth device (?:approve|deny)|auth factors (?:remove|recovery-codes)|auth sessions revoke .*--all"
    r"|consumers (?:delete|reset|rotate-login)|events dlq (?:delete|replay) .*--all|invites revoke|tenants (?:delete|suspend)"
    r"|users (?:delete|disable|reset-factors|set-role .*--revoke-api-keys))\b(?!.*--yes))"
)


def not_pasteable(text):
    """Lines of shell blocks with a placeholder that is a redirection, or with a command that asks and is not the last one."""
    for language, block in FENCE.findall(text):
        if language in ("", "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            for line in lines:
                if re.search(r"<[a-z][a-z -]*>", re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line)):
                    yield line.strip()
            yield from (line.strip() for line in lines[:-1] if ASKING.search(line))


def pages():
    """The documents, with their texts on one line."""
    for file in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        yield file.name, re.sub(r"\s*\n\s*", " ", file.read_text())


def runbooks():
    for file in sorted(ROOT.glob("docs/runbooks/*.md")):
        yield file.name, re.sub(r"\s*\n\s*", " ", file.read_text())


def names_in(pattern, *globs):
    """Everything that the group of a pattern matches in these files."""
    files = (file for each in globs for file in ROOT.glob(each) if file.is_file())
    return {found[1] for file in files for found in re.finditer(pattern, file.read_text(errors="ignore"), re.M)}


def unknown_variables(text, known):
    """Variables, or beginnings of variables, that no program reads."""
    for name, rest in VARIABLE.findall(text):
        if not any(each.startswith(f"{name}_") for each in known) if rest else name not in known | EXAMPLES:
            yield name + rest


def unknown_values(text, known, tables):
    """Values that the chart does not have. A schema has the name of a component."""
    sections = {name.partition(".")[0] for name in known}
    for name in CHART_VALUE.findall(text):
        first, rest = name.split(".")[:2]
        # A group of values, a value, or a key in a value that is a map.
        exists = any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in known)
        if first in sections and rest not in tables and not exists:
            yield name


def number(text):
    """Returns a number that is written in digits or as a word."""
    return WORDS.get(text.lower()) or int(text.replace(",", "").replace("_", ""))


def differences(constants, read):
    """Sentences that are missing, or do not have the value of their constant."""
    for (source, constant), sentences in constants.items():
        found = re.search(constant, read(source))
        if found is None:
            yield f"{source}: no {constant}"
            continue
        for document, sentence in sentences:
            # Lines of documents are wrapped, and those of JSON contain the breaks.
            text = read(document).replace("\\n", " ").replace("\n  ", " ").replace("\n", " ")
            match = re.search(sentence, text)
            if match is None or {number(value) for value in match.groups()} != {number(found[1])}:
                yield f"{document}: {sentence} is not {found[1]}"


def parse(text):
    """Returns a number in seconds or bytes, or the number of a rate and its time."""
    number, separator, unit = re.fullmatch(r"(\d[\d,]*) ?(per |/)?([A-Za-z]*)", text).groups()
    number, unit = int(number.replace(",", "")), UNITS[unit]
    return (number, unit) if separator else number * unit


def defaults():
    rows = re.findall(r"^\| `(SVC_[A-Z_]+)`[^|]*\|[^|]*\| `([^`]*)` \|", (ROOT / "docs/configuration.md").read_text(), re.M)
    return dict(rows)


def documented(text):
    """Pairs of variable and value."""
    return [(match["name"], match["value"]) for form in FORMS for match in form.finditer(text.replace("\n", " "))]


class Documents(unittest.TestCase):
    def test_values_of_variables_are_the_defaults(self):
        known, found = defaults(), 0
        files = [ROOT / "README.md", ROOT / "catalog/openapi.json", *ROOT.glob("docs/**/*.md")]
        for file in files:
            if file.name == "configuration.md":
                continue
            for name, value in documented(file.read_text()):
                found += 1
                with self.subTest(file=file.name, name=name):
                    self.assertEqual(parse(value), parse(known[name]))
        self.assertGreater(found, 20)

    def test_a_wrong_value_is_found_in_each_form(self):
        texts = ("`SVC_A` (72 h)", "`SVC_A`, default 72h", "kept for 72 hours (`SVC_A`)", "(72 h, `SVC_A`)", "| `SVC_A` | `72h` |")
        for text in texts:
            self.assertEqual([(name, parse(value)) for name, value in documented(text)], [("SVC_A", 72 * 3600)], text)
        self.assertNotEqual(parse("30/min"), parse("30 s"))
        self.assertEqual(parse("60 per minute"), parse("60/min"))

    def test_sentences_about_limits_have_the_values_of_the_constants(self):
        self.assertEqual(list(differences(CONSTANTS, lambda name: (ROOT / name).read_text())), [])

    def test_documents_name_the_versions_that_the_tests_run(self):
        self.assertEqual(list(differences(VERSIONS, lambda name: (ROOT / name).read_text())), [])

    def test_a_wrong_sentence_is_found(self):
        texts = {"a.rs": "MAX: usize = 1_000;", "right.md": "at\nmost 1,000", "wrong.md": "at most ten", "none.md": ""}
        sentences = [(name, r"at most ([\w,]+)") for name in texts if name.endswith(".md")]
        found = list(differences({("a.rs", r"MAX: usize = ([\d_]+)"): sentences}, texts.__getitem__))
        self.assertEqual([line.split(":")[0] for line in found], ["wrong.md", "none.md"])

    def test_documents_name_variables_that_a_program_reads(self):
        known = names_in(VARIABLE.pattern, "docs/configuration.md", "Tiltfile", "cli/src/**/*.rs", "deploy/**/*")
        self.assertEqual([(name, list(found)) for name, text in pages() if (found := [*unknown_variables(text, known)])], [])
        found = unknown_variables("`SVC_LOGS` `SVC_LOG` `SVC_LIMITS_…` `SVC_LIMIT_…`", known)
        self.assertEqual(list(found), ["SVC_LOGS", "SVC_LIMITS_…"])

    def test_documents_name_values_that_the_chart_has(self):
        known = names_in(r"^\| `([\w.]+)` \|", "helm/svc/README.md")
        migrations = ("services/*/migrations/*.sql", "libs/database/src/outbox/*.sql")
        tables = names_in(r"create (?:unlogged )?(?:table|function) [\w{}]+\.(\w+)", *migrations)
        # The chart is documented in docs: a dotted name of the README is one of a language.
        documents = [(name, text) for name, text in pages() if name != "README.md"]
        self.assertEqual([(name, found) for name, text in documents if (found := [*unknown_values(text, known, tables)])], [])
        text = "`nats.stream.maxBytes=20GiB` `nats.stream.bytes` `--set nats.mode=a` `session.sessions` `nats.stream`"
        self.assertEqual(list(unknown_values(text, known, tables)), ["nats.stream.bytes", "nats.mode"])

    def test_texts_that_runbooks_quote_are_in_the_programs(self):
        sources = [file.read_text() for each in ("cli", "libs", "services") for file in ROOT.glob(f"{each}/**/src/**/*.rs")]
        sources += [file.read_text() for file in ROOT.glob("services/*/migrations/*.sql")]
        programs = re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", "".join(sources)))
        quoted = [(name, each) for name, text in runbooks() for each in re.findall(r'"([^"]+)"', re.sub("`[^`]*`", "", text))]
        self.assertGreater(len(quoted), 20)
        self.assertEqual([each for each in quoted if each[1].rstrip(":") not in programs and each[1] not in FOREIGN_TEXTS], [])

    def test_shell_blocks_can_be_pasted(self):
        for file in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
            self.assertEqual(list(not_pasteable(file.read_text())), [], file.name)
        asking = ("svc auth login", "svc users delete a@x", "svc events dlq replay a --all")
        silent = ("svc users get '<id>'", "svc users delete a@x --yes", "svc events dlq replay a 1", "svc users get <id>")
        found = not_pasteable("\n".join(("```sh", *asking, *silent, "```\n")))
        self.assertEqual(list(found), ["svc users get <id>", *asking])

    def test_runbooks_name_the_namespace_in_each_command_of_kubectl(self):
        scope = re.compile("--(all-)?namespace|svctenants")
        commands = [(name, each) for name, text in runbooks() for each in re.findall(r"`(kubectl [^`]+)`", text)]
        # Without an object, a command is only named.
        complete = [(name, each) for name, each in commands if len(each.split()) > 3]
        self.assertGreater(len(complete), 10)
        self.assertEqual([each for each in complete if not scope.search(each[1])], [])

    def test_the_domain_uses_no_other_module_and_does_no_input_or_output(self):
        files = [file for file in ROOT.glob("services/*/src/domain/**/*.rs") if "simulation" not in file.parts]
        self.assertGreater(len(files), 10)
        for file in files:
            code = file.read_text().split("#[cfg(test)]")[0]
            for used in re.findall(r"^use (crate::\w+|\w+)|[( ](crate::\w+)::", code, re.M):
                name = used[0] or used[1]
                self.assertNotIn(name, {"axum", "hyper", "reqwest", "sqlx", "tokio", "async_nats"}, file)
                if name.startswith("crate::"):
                    self.assertEqual(name, "crate::domain", file)


if __name__ == "__main__":
    unittest.main()
