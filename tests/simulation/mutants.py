#!/usr/bin/env python3
"""Checks that the simulations find bugs: each mutant is one wrong line, and the simulation of its crate must fail with it.

The mutants are compiled from a copy of the sources in `target/mutants`. `--only` selects mutants by a part of their names.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/mutants"
SCHEDULES = 5_000

CACHE = "libs/authn/src/cache.rs"
FEED = "libs/authn/src/cache/feed.rs"
EPOCHS = "libs/authn/src/cache/epochs.rs"
REPLIES = "libs/bus/src/publisher/reply_table.rs"
PENDING = "libs/bus/src/publisher/pending_reply.rs"
IN_FLIGHT = "libs/bus/src/publisher/in_flight.rs"
ACK = "libs/bus/src/publisher/ack.rs"
RELAY = "libs/database/src/outbox/relay.rs"
STATUS = "services/session/src/domain/account_status.rs"
PACKAGES = {"libs/authn": "authn", "libs/bus": "bus", "libs/database": "database", "services/session": "session"}

# Name: file, correct text (once in the file), wrong text.
MUTANTS = {
    "cache: an invalidation during the lookup has no effect": (
        CACHE, "if self.is_valid(&lookup, max_age) {\n                return", "if lookup.result.initialized() {\n                return",
    ),
    "cache: an entry is valid for ten seconds": (CACHE, "lookup.started_at.elapsed() < max_age", "lookup.started_at.elapsed() < max_age * 2"),
    "cache: a result is never used again": (CACHE, "(lookup.result.initialized() && self", "(false && self"),
    "cache: an inactive credential stays inactive after a change of its tenant": (
        EPOCHS, '[slot_of("tenant", tenant_id), INACTIVE]', '[slot_of("tenant", tenant_id); 2]',
    ),
    "cache: an invalidation of a user has no effect": (
        EPOCHS, 'Invalidation::User(user_id) => [slot_of("user", user_id)', 'Invalidation::User(user_id) => [slot_of("person", user_id)',
    ),
    "feed: a missing message is no gap": (FEED, 'self.gap("missing sequence number");', ""),
    "feed: missing first messages of a publisher are no gap": (
        FEED, "map_or(0, |previous| previous.sequence)", "map_or(message.sequence - 1, |previous| previous.sequence)",
    ),
    "feed: a lost connection is no gap": (FEED, 'self.gap("connection lost, or malformed message");', ""),
    "feed: entries of an outage survive it": (FEED, "was_up && previous", "(was_up || previous == 0) && previous"),
    "feed: a silent publisher is no gap": (FEED, 'self.gap("a publisher is silent");', ""),
    "publisher: a late reply settles the next message": (REPLIES, "state.next += 1;", "state.next = 0;"),
    "publisher: a deadline is not noticed": (REPLIES, "waiting.deadline().is_none_or(|deadline| deadline <= now)", "waiting.deadline().is_none()"),
    "publisher: the sequence numbers of a batch begin one too low": (PENDING, "seq - count + 1", "seq - count"),
    "publisher: an incomplete batch is acknowledged": (PENDING, "(is_complete && seq >= count)", "(seq >= count)"),
    "publisher: the messages of a refused batch are not published one by one": (
        IN_FLIGHT, "                        self.send(pending);\n                    }\n                }", "                        drop(pending);\n                    }\n                }",
    ),
    "publisher: a message that is sent again has no deadline": (IN_FLIGHT, "if pending.deadline <= now {", "if false {"),
    "publisher: the acknowledgement of another stream counts": (ACK, "if name == &**stream {", "if !name.is_empty() {"),
    "relay: a lease is as short as the timeout": (RELAY, "const LEASE_MARGIN: Duration = Duration::from_secs(20);", "const LEASE_MARGIN: Duration = Duration::ZERO;"),
    "relay: two attempts are enough for a dead letter": (RELAY, "if attempts >= max)", "if attempts >= max.min(2))"),
    "relay: a message that must arrive is dead-lettered": (
        RELAY, "matches!(error, DeliveryError::Permanent(_)) && self.retry_policy != RetryPolicy::Unlimited;",
        "matches!(error, DeliveryError::Permanent(_));",
    ),
    "relay: a delivery without a reply counts as delivered": (
        RELAY, 'Err(_) => Err(DeliveryError::Transient("the attempt timed out".to_owned())),', "Err(_) => Ok(()),",
    ),
    "relay: more deliveries than slots": (RELAY, "usize::from(self.concurrency) - deliveries.len()", "usize::from(self.concurrency)"),
    "relay: a message of another process waits until the next wake": (
        RELAY, "let mut next_claim = claimed_at + POLL_INTERVAL;", "let mut next_claim = claimed_at + POLL_INTERVAL * 1000;",
    ),
    "relay: a wake has no effect": (RELAY, "_ = woken.changed(), if has_free_slot => next_claim = claimed_at + pause,", ""),
    "account status: a suspension ends no session": (STATUS, "            && self.versions.session_version == versions.session_version\n", ""),
    "account status: all sessions are kept after a password change": (
        STATUS, "self.kept_session_id == Some(session_id)", "self.kept_session_id.is_some()",
    ),
    "account status: a login before a password change gets a session": (STATUS, "            && self.versions == *versions\n", ""),
    "account status: a login without the second factor gets a session": (STATUS, "amr.contains(&AuthMethod::Mfa)", "!amr.is_empty()"),
    "account status: a password change ends no session": (
        STATUS, "(self.versions.credential_version == versions.credential_version\n", "(self.versions.credential_version >= versions.credential_version\n",
    ),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="mutants with this text in their name; can be repeated")
    options = parser.parse_args()
    chosen = {name: mutant for name, mutant in MUTANTS.items() if not options.only or any(text in name for text in options.only)}
    if not chosen:
        parser.error(f"no mutant has a name with {options.only}; names: {', '.join(MUTANTS)}")
    source = copy()
    for name, (file, correct, _) in MUTANTS.items():
        if (source / file).read_text().count(correct) != 1:
            sys.exit(f"mutants.py: {file} must contain this text once; correct the mutant {name!r}:\n{correct}")
    survivors = []
    for number, (name, (file, correct, wrong)) in enumerate(chosen.items(), 1):
        started = time.monotonic()
        path = source / file
        text = path.read_text()
        package = next(package for directory, package in PACKAGES.items() if file.startswith(directory))
        path.write_text(text.replace(correct, wrong))
        try:
            found = fails(source, package, name)
        finally:
            path.write_text(text)
        if not found:
            survivors.append(name)
        print(f"{number}/{len(chosen)} {'found' if found else 'NOT FOUND'}: {name} ({time.monotonic() - started:.0f} s)", flush=True)
    if survivors:
        sys.exit(f"mutants.py: {len(survivors)} of {len(chosen)} mutants were not found")


def copy():
    """Copies the sources of the work tree, with their times, so that cargo compiles changed files only."""
    source = WORK / "source"
    shutil.rmtree(source, ignore_errors=True)
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    return source


def fails(source, package, name):
    """Returns whether the simulation fails. A mutant that does not compile is an error of this list."""
    environment = {
        **os.environ,
        # The libraries are the same as in `make simulate`.
        "CARGO_TARGET_DIR": str(ROOT / "target"),
        "SQLX_OFFLINE": "true",
        "SVC_TEST_SCHEDULES": str(SCHEDULES),
        # Without files of failed schedules, and without shortening them.
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true",
        "PROPTEST_MAX_SHRINK_ITERS": "0",
    }
    command = ["cargo", "test", "--quiet", "--profile", "simulation", "--package", package, "--lib"]
    built = subprocess.run([*command, "--no-run"], cwd=source, env=environment, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"mutants.py: the mutant {name!r} does not compile:\n{built.stderr}")
    tested = subprocess.run([*command, "--", "simulation", "--skip", "postgres"], cwd=source, env=environment, capture_output=True, text=True)
    (WORK / "last.log").write_text(tested.stdout + tested.stderr)
    return tested.returncode != 0


if __name__ == "__main__":
    main()
