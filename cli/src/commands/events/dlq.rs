//! `svc events dlq`: dead letters of consumers, for the platform administrator, and quarantined items, also for administrators of their
//! tenant.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::Args;
use contract::ProblemKind;
use contract::consumers::{
    ConsumerName, DeadLetter, DeadLetterSequences, HandledDeadLetters, InvalidConsumerName,
    MAX_DEAD_LETTER_SEQUENCES,
};
use contract::routes::{self, Route};
use data_encoding::BASE64;
use serde::Deserialize;
use tenancy::TenantId;

use crate::framework::api::{Paging, TenantsApi};
use crate::framework::arguments::{AllTenants, up_to};
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{
    Cell, CommandOutput, ItemList, Row, Streamed, Table, name, optional, text, time,
};

group!(
    /// Dead letters of consumers, and quarantined items.
    DeadLetters {
        List(List),
        Show(Show),
        Replay(Replay),
        Delete(Delete),
    }
);

/// Name of the quarantined items in place of a consumer.
const QUARANTINE: &str = "_ingest";

/// Where the numbers of dead letters are.
const NUMBERS: &str = "List the dead letters: `svc events dlq list` with the consumer.";
/// Most tenants that a question or an error names.
const MAX_NAMED_TENANTS: usize = 10;

/// The owner of dead letters.
#[derive(Clone, Debug)]
enum DeadLetterOwner {
    Consumer(ConsumerName),
    /// ingest, which has quarantined an invalid item.
    Ingest,
}

impl FromStr for DeadLetterOwner {
    type Err = InvalidConsumerName;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        if text == QUARANTINE { Ok(Self::Ingest) } else { text.parse().map(Self::Consumer) }
    }
}

impl fmt::Display for DeadLetterOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consumer(name) => name.fmt(f),
            Self::Ingest => f.write_str(QUARANTINE),
        }
    }
}

impl DeadLetterOwner {
    fn connect(&self, context: &Context, all_tenants: AllTenants) -> Result<TenantsApi> {
        let requirement = match self {
            Self::Consumer(_) => Requirement::PlatformToken,
            Self::Ingest => Requirement::SessionOrPlatformToken,
        };
        context.connect_to_tenants(requirement, all_tenants)
    }

    /// Path of the list of dead letters.
    fn list(&self) -> String {
        match self {
            Self::Consumer(name) => routes::LIST_DEAD_LETTERS.path_with(&[name]),
            Self::Ingest => routes::LIST_QUARANTINED.path.to_owned(),
        }
    }
}

impl Row for DeadLetter {
    const EMPTY: &'static str = "No dead letters.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("SEQUENCE", text(self.sequence)),
            ("FAILED", time(&self.failed_at)),
            ("TENANT", text(&self.tenant_id)),
            ("REASON", optional(reason(self).map(name))),
            ("SOURCE", optional(self.source_id.as_ref().map(text))),
            ("TYPE", optional(self.event_type.as_ref().map(text))),
            ("ATTEMPTS", optional(self.attempts.map(text))),
            ("EVENT ID", optional(self.event_id.as_ref().map(text))),
        ]
    }
}

/// Returns the reason; for a quarantined item also the code of the problem, and first the number of the part if it is stored in parts: a
/// terminal cuts the end.
fn reason(letter: &DeadLetter) -> Option<String> {
    let details = letter.quarantine.as_ref();
    let code = details.map(|details| details.code.clone());
    let part = details.and_then(|details| details.part.as_ref()).map(|part| format!("part {part}"));
    let texts: Vec<_> = part.into_iter().chain(code).chain(letter.reason.clone()).collect();
    (!texts.is_empty()).then(|| texts.join(": "))
}

/// List the events that a consumer could not handle, or quarantined items.
///
/// Lists the oldest first. The JSON output contains the events. With the platform token, lists those of the tenant of --tenant or the
/// context, else of all tenants.
#[derive(Args)]
pub(crate) struct List {
    /// Name of the consumer, or `_ingest` for quarantined items.
    #[arg(value_name = "CONSUMER")]
    consumer: DeadLetterOwner,
    #[command(flatten)]
    all_tenants: AllTenants,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<DeadLetter>;

    const ROUTES: Routes =
        Routes::Only(&[&routes::LIST_QUARANTINED, &routes::LIST_DEAD_LETTERS, &routes::GET_TENANT]);
    const ERRORS: Errors = &[ErrorKind::PlatformTokenMissing];
    const EXAMPLES: Examples = &[
        ("List the first dead letters of a consumer", "svc events dlq list archive --limit 10"),
        ("Save all dead letters with their events", "svc events dlq list archive --output ndjson"),
        ("List invalid items that senders have quarantined", "svc events dlq list _ingest"),
    ];
    const AGENT_NOTES: &'static str = "A consumer requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and has written source, \
        event id, type, reason, attempts and event. `_ingest` lists items that were sent with invalid=quarantine and are not valid events; \
        it also accepts a session of an administrator, who sees the own tenant. Exit status 3 means that the tenant does not exist, \
        or that the consumer does not exist and has no dead letters. Dead letters are deleted after \
        SVC_DLQ_MAX_AGE, 14 days by default.";
    const SEE_ALSO: Names = &["events dlq show", "events dlq replay", "events dlq delete", "consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenants = self.consumer.connect(context, self.all_tenants)?;
        tenants.print_list(&self.consumer.list(), &[], self.paging).await
    }
}

/// Print quarantined items.
///
/// Prints the original bytes of each item and then a line break, or only the bytes of a part of an item. Correct the output and send it
/// with `svc events send --file`. On a terminal, control characters are escaped.
#[derive(Args)]
pub(crate) struct Show {
    /// `_ingest`, the name of quarantined items.
    #[arg(value_name = "CONSUMER")]
    consumer: DeadLetterOwner,
    /// Numbers of the items, as `svc events dlq list _ingest` prints them.
    #[arg(value_name = "SEQUENCE", required = true, value_parser = up_to(u64::MAX))]
    sequences: Vec<u64>,
    #[command(flatten)]
    all_tenants: AllTenants,
}

impl CommandOutput for DeadLetter {
    fn table(&self) -> Table {
        Table::text(&self.event.to_string())
    }
}

impl Command for Show {
    type Output = Streamed<DeadLetter>;

    const ROUTES: Routes = Routes::Only(&[&routes::GET_QUARANTINED]);
    const ERRORS: Errors = &[ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[
        ("Print an invalid item, to correct it and send it again", "svc events dlq show _ingest 1"),
        ("Print an item with its reason and sender", "svc events dlq show _ingest 1 --output json"),
    ];
    const AGENT_NOTES: &'static str = "Only quarantined items. Redirect the output to a file to get the original bytes, with a line break \
        after each item or its last part. The JSON output has one object on one line per item; quarantine.payload is base64 of the \
        stored bytes. quarantine.part is set if the item is stored in parts of 256 KiB. Print all of them in the order of their \
        numbers. After sending the corrected item, delete the original, with all parts: svc events dlq delete _ingest SEQUENCE.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq delete", "events send"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        if let DeadLetterOwner::Consumer(name) = &self.consumer {
            let error = ErrorKind::InputInvalid.with_message("only quarantined items are shown one by one");
            let command =
                format!("Run `svc events dlq list {name} --output json`, which contains the events.");
            return Err(error.with_remediation(command));
        }
        let TenantsApi { api, tenant } = self.consumer.connect(context, self.all_tenants)?;
        for sequence in &self.sequences {
            let letter: DeadLetter = api.call(&routes::GET_QUARANTINED, &[sequence]).fetch().await?;
            if let Some(tenant) = tenant.as_ref().filter(|tenant| **tenant != letter.tenant_id) {
                let message = format!("tenant {tenant} has no quarantined item with the number {sequence}");
                let error = CliError::from_kind(ProblemKind::NotFound, routes::GET_QUARANTINED.path);
                return Err(error.with_message(message).with_remediation(NUMBERS));
            }
            if context.out().is_json() {
                context.out().print_line(&letter)?;
                continue;
            }
            let details = letter.quarantine.as_ref();
            let payload =
                details.and_then(|details| BASE64.decode(details.payload.as_deref()?.as_bytes()).ok());
            let mut payload = payload.ok_or(ErrorKind::UnexpectedResponse)?;
            // Each part but the last is followed by the next one.
            let part = details.and_then(|details| details.part.as_deref()?.split_once('/'));
            if part.is_none_or(|(number, count)| number == count) {
                payload.push(b'\n');
            }
            context.out().print_bytes(&payload)?;
        }
        Ok(Streamed::all())
    }
}

/// A consumer and some or all of its dead letters.
#[derive(Args)]
struct Selection {
    /// Name of the consumer, or `_ingest` for quarantined items.
    #[arg(value_name = "CONSUMER")]
    consumer: DeadLetterOwner,
    /// Numbers of the dead letters, as `svc events dlq list` prints them. Without them, --all is required.
    #[arg(value_name = "SEQUENCE", required_unless_present = "all", value_parser = up_to(u64::MAX))]
    sequences: Vec<u64>,
    /// Select all dead letters that exist now. If they belong to several tenants, requires --tenant or --all-tenants.
    #[arg(long, conflicts_with = "sequences")]
    all: bool,
    #[command(flatten)]
    all_tenants: AllTenants,
}

/// The part of a dead letter that is kept of a whole list.
#[derive(Deserialize)]
struct Number {
    sequence: u64,
    tenant_id: TenantId,
}

/// Returns the number of tenants that have dead letters, and their names with the number of each, such as `acme 2, beta 4`.
fn tenants_of(letters: &[Number]) -> (usize, String) {
    let mut counts = BTreeMap::<_, usize>::new();
    for letter in letters {
        *counts.entry(&letter.tenant_id).or_default() += 1;
    }
    let named = counts.iter().take(MAX_NAMED_TENANTS).map(|(tenant, count)| format!("{tenant} {count}"));
    let more = counts.len().saturating_sub(MAX_NAMED_TENANTS);
    let rest = (more > 0).then(|| format!("{more} more tenants"));
    (counts.len(), named.chain(rest).collect::<Vec<_>>().join(", "))
}

impl Selection {
    /// Numbers of all dead letters, after confirmation. Those of several tenants are selected only if the user named all tenants.
    async fn all(
        &self,
        context: &Context,
        tenants: &TenantsApi,
        question: impl FnOnce(usize, &DeadLetterOwner) -> String,
    ) -> Result<Vec<u64>> {
        let letters: Vec<Number> = tenants.list(&self.consumer.list()).await?;
        let (count, names) = tenants_of(&letters);
        if count > 1 && !self.all_tenants.all_tenants {
            return Err(ErrorKind::Usage
                .with_message(format!("{} has dead letters of several tenants: {names}", self.consumer))
                .with_remediation("Pass --tenant for those of one tenant, or --all-tenants."));
        }
        if !letters.is_empty() {
            let question = question(letters.len(), &self.consumer);
            context.prompt().confirm(&format!("{question} By tenant: {names}")).await?;
        }
        Ok(letters.into_iter().map(|letter| letter.sequence).collect())
    }

    /// Sends the numbers to the route, in parts. Asks for confirmation if all dead letters are selected. `skipped` is what skipped
    /// numbers are not, and what to do then.
    async fn send(
        self,
        context: &Context,
        route: &'static Route,
        question: impl FnOnce(usize, &DeadLetterOwner) -> String,
        skipped: (&str, &str),
    ) -> Result<HandledDeadLetters> {
        let tenants = self.consumer.connect(context, self.all_tenants)?;
        let sequences = if self.all { self.all(context, &tenants, question).await? } else { self.sequences };
        let TenantsApi { api, tenant } = tenants;
        let mut result = HandledDeadLetters::default();
        for part in sequences.chunks(MAX_DEAD_LETTER_SEQUENCES) {
            let request = DeadLetterSequences { sequences: part.to_vec(), tenant_id: tenant.clone() };
            let call = match &self.consumer {
                DeadLetterOwner::Consumer(name) => api.call(route, &[name]),
                DeadLetterOwner::Ingest => api.call(route, &[]),
            };
            let call = call.json(&request)?;
            let response: HandledDeadLetters = call.fetch().await?;
            result.handled.extend(response.handled);
            result.skipped.extend(response.skipped);
            if sequences.len() > MAX_DEAD_LETTER_SEQUENCES {
                let count = result.handled.len() + result.skipped.len();
                context.out().notice(&format!("{count} of {} dead letters", sequences.len()));
            }
        }
        if !result.skipped.is_empty() {
            let (missing, remediation) = skipped;
            let numbers = joined(&result.skipped);
            let of_tenant = tenant.map_or_else(String::new, |tenant| format!(" of tenant {tenant}"));
            let message = format!("{} has {missing}{of_tenant} with this number: {numbers}", self.consumer);
            if result.handled.is_empty() {
                return Err(ErrorKind::InputInvalid.with_message(message).with_remediation(remediation));
            }
            context.out().warn(&message);
        }
        Ok(result)
    }
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

impl CommandOutput for HandledDeadLetters {
    fn table(&self) -> Table {
        let skipped = (!self.skipped.is_empty()).then(|| text(joined(&self.skipped)));
        Table::fields([("handled", Some(text(self.handled.len()))), ("skipped", skipped)])
    }
}

/// Send dead letters to their consumer again.
///
/// Correct the consumer first. Each event is stored again as a new message, and its dead letter is deleted. Other consumers
/// receive it again too. Without --tenant or the tenant of the context, replays those of all tenants. With --all, asks for
/// confirmation. Quarantined items are not replayed: correct them and send them with `svc events send`.
#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    selection: Selection,
}

impl Command for Replay {
    type Output = HandledDeadLetters;

    const ROUTES: Routes =
        Routes::Only(&[&routes::LIST_DEAD_LETTERS, &routes::REPLAY_DEAD_LETTERS, &routes::GET_TENANT]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Replay two dead letters", "svc events dlq replay archive 17 18"),
        (
            "Replay all dead letters of a tenant in a script",
            "svc events dlq replay archive --all --tenant acme --yes",
        ),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc events dlq list` with the consumer. A dead letter that is not listed was sent: replay \
        only the numbers that are listed.",
    );
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. --all requires --yes without \
        a terminal, and --tenant or --all-tenants if the dead letters belong to several tenants. Skips replayed \
        numbers, and fails if all were. An event that fails again becomes a new dead letter.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq delete", "consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        if let DeadLetterOwner::Ingest = self.selection.consumer {
            let error = ErrorKind::InputInvalid
                .with_message("quarantined items cannot be replayed: they are not valid events");
            return Err(error.with_remediation(
                "Save an item (`svc events dlq show _ingest SEQUENCE > FILE`), correct it, send it (`svc events send --file FILE`), \
                and delete the original (`svc events dlq delete _ingest SEQUENCE`).",
            ));
        }
        let question =
            |count, consumer: &DeadLetterOwner| format!("Send {count} events to {consumer} again?");
        let skipped = (
            "no dead letter that can be replayed",
            "List the dead letters: `svc events dlq list` with the consumer. One without an event in its JSON output, or with an \
            event that does not match its source, id or type, is kept and cannot be replayed.",
        );
        self.selection.send(context, &routes::REPLAY_DEAD_LETTERS, question, skipped).await
    }
}

/// Delete dead letters.
///
/// The consumer does not get their events any more. The events themselves remain in the stream until their retention ends. A
/// quarantined item exists only here. With the platform token, deletes those of the tenant of --tenant or the context, else of all
/// tenants. With --all, asks for confirmation.
#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    selection: Selection,
}

impl Command for Delete {
    type Output = HandledDeadLetters;

    const ROUTES: Routes = Routes::Only(&[
        &routes::DELETE_QUARANTINED,
        &routes::LIST_QUARANTINED,
        &routes::DELETE_DEAD_LETTERS,
        &routes::LIST_DEAD_LETTERS,
        &routes::GET_TENANT,
    ]);
    const ERRORS: Errors = &[
        ErrorKind::PlatformTokenMissing,
        ErrorKind::InputNeeded,
        ErrorKind::InputInvalid,
        ErrorKind::Declined,
    ];
    const EXAMPLES: Examples = &[
        ("Delete two dead letters", "svc events dlq delete archive 17 18"),
        (
            "Delete all dead letters of a tenant in a script",
            "svc events dlq delete archive --all --tenant acme --yes",
        ),
        ("Delete a quarantined item after it was corrected and sent", "svc events dlq delete _ingest 17"),
    ];
    const AGENT_NOTES: &'static str = "A consumer requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE; `_ingest` also accepts a \
        session of an administrator. --all requires --yes without \
        a terminal, and --tenant or --all-tenants if the dead letters belong to several tenants. Save the events first: \
        svc events dlq list CONSUMER --output ndjson.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq replay"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let question =
            |count, consumer: &DeadLetterOwner| format!("Delete {count} dead letters of {consumer}?");
        let route = match self.selection.consumer {
            DeadLetterOwner::Consumer(_) => &routes::DELETE_DEAD_LETTERS,
            DeadLetterOwner::Ingest => &routes::DELETE_QUARANTINED,
        };
        let skipped = ("no dead letter", NUMBERS);
        self.selection.send(context, route, question, skipped).await
    }
}
