//! The accounts of consumers in the configuration of the broker (`deploy/nats/consumers.conf`).

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use super::Durable;
use super::api_requests::MAPPED;
use super::login::by_account;
use super::requests::{DEAD_LETTER, REQUESTS};

/// First line of the file.
pub const ACCOUNTS_HEADER: &str = "# Accounts of consumers, derived from their durables. Changes of this file are lost \
    (docs/consumers.md).";
/// Start of the name of an account.
pub(super) const ACCOUNT: &str = "CONSUMER_";
/// Empty accounts after the last one that is used: nats-server starts the imports of an account that a reload adds at the next reload,
/// and those of an existing one at once.
const SPARE: u16 = 32;
/// Enough for a program in several processes, and at most 240 MB of messages that the server keeps for connections that do not read
/// (`max_pending` of each). A dead letter has up to 4 KiB of an event, its headers and a reason.
const LIMITS: &str = "limits: { max_conn: 10, max_subs: 64, max_payload: 8KB }";

/// Returns the file: an account for each durable that has a login, with exactly the requests that its client sends, and empty ones.
pub fn accounts_file(durables: &[Durable]) -> String {
    // All suspensions have ended then.
    accounts_file_at(durables, DateTime::<Utc>::MAX_UTC)
}

/// Returns the file without the logins that are suspended. Such a login keeps its account: the next reload suffices for its end.
pub(super) fn accounts_file_at(durables: &[Durable], now: DateTime<Utc>) -> String {
    let used = by_account(durables);
    let last = used.keys().next_back().map_or(0, |last| last / SPARE * SPARE + SPARE);
    let mut file = format!("{ACCOUNTS_HEADER}\n");
    for number in 0..last.saturating_add(SPARE) {
        let _ = match used.get(&number).filter(|durable| !durable.is_suspended(now)) {
            Some(durable) => writeln!(file, "{ACCOUNT}{number} {}", account(durable)),
            None => writeln!(file, "{ACCOUNT}{number} {{ {LIMITS} }}"),
        };
    }
    file
}

fn account(durable: &Durable) -> String {
    let (name, hash) = (&durable.name, durable.login.as_ref().map_or("", |login| &login.hash));
    let tenant = durable.definition.filter.tenant_id.as_ref().map_or("*", |tenant| tenant.as_str());
    let mut imports = Vec::new();
    for stream in &durable.streams {
        imports.push(("UDM", format!("$JS.API.CONSUMER.INFO.{stream}.{name}")));
        imports.push(("UDM", format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}")));
        imports.push(("UDM", format!("$JS.ACK.{stream}.{name}.>")));
        imports.push(("FACADE", format!("$JS.API.STREAM.INFO.{stream}")));
    }
    // With an import of `$JS.API.INFO`, nats-server does not answer `$JS.API.>` of this account itself.
    imports.push(("FACADE", "$JS.API.INFO".to_owned()));
    imports.push(("FACADE", "$JS.API.STREAM.NAMES".to_owned()));
    imports.push(("FACADE", "$JS.API.STREAM.LIST".to_owned()));
    let mut text = format!("{{\n  {LIMITS}\n  imports: [\n");
    for (account, subject) in imports {
        let _ = writeln!(text, "    {{ service: {{ account: {account}, subject: \"{subject}\" }} }}");
    }
    // ingest stores dead letters: an import of their subject would store whatever JetStream sends to it as a reply subject.
    let dead_letter = (format!("{DEAD_LETTER}.{tenant}"), format!("udm.dlq.v1.{tenant}.{name}"));
    let api = MAPPED.map(|request| (request.to_owned(), format!("$JS.API.CONSUMER.{request}")));
    for (request, to) in api.into_iter().chain([dead_letter]) {
        let from = format!("{REQUESTS}.{name}.{request}");
        let _ = writeln!(text, "    {{ service: {{ account: UDM, subject: \"{from}\" }}, to: \"{to}\" }}");
    }
    let _ = write!(text, "  ]\n  users: [ {{ user: \"{name}\", password: \"{hash}\" }} ]\n}}");
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_of_the_repository_has_no_consumer() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/consumers.conf");
        assert_eq!(fs::read_to_string(path).unwrap(), accounts_file(&[]));
    }
}
