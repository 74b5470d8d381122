//! `svc events dlq`: dead letters of consumers, for the platform administrator, and quarantined items, also for administrators of their
//! tenant.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use contract::consumers::{
    ConsumerName, DeadLetter, DeadLetterSequences, DeletedDeadLetters, InvalidConsumerName,
    MAX_DEAD_LETTER_SEQUENCES, ReplayedDeadLetters,
};
use contract::routes::{self, Route};
use data_encoding::BASE64;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenancy::TenantId;

use crate::framework::api::{Api, ListLimit, Paging};
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Streamed, Table, optional, text, time};

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
    async fn connect(&self, context: &Context) -> Result<Api> {
        context
            .connect(match self {
                Self::Consumer(_) => Requirement::PlatformToken,
                Self::Ingest => Requirement::SessionOrPlatformToken,
            })
            .await
    }

    async fn list<T: DeserializeOwned>(&self, api: &Api, limit: ListLimit) -> Result<ItemList<T>> {
        match self {
            Self::Consumer(name) => api.list(&routes::LIST_DEAD_LETTERS.path_with(&[name]), &[], limit).await,
            Self::Ingest => {
                // A session belongs to one tenant.
                let platform = api.credential().filter(|credential| credential.is_platform_token());
                let tenant = platform.and_then(|credential| credential.tenant.as_ref()).map(TenantId::as_str);
                api.list(routes::LIST_QUARANTINED.path, &[("tenant_id", tenant)], limit).await
            }
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
            ("SOURCE", optional(self.source_id.as_ref().map(text))),
            ("EVENT ID", optional(self.event_id.as_ref().map(text))),
            ("TYPE", optional(self.event_type.as_ref().map(text))),
            ("ATTEMPTS", optional(self.attempts.map(text))),
            ("REASON", optional(reason(self).map(text))),
        ]
    }
}

/// Returns the reason; for a quarantined item also the code of the problem.
fn reason(letter: &DeadLetter) -> Option<String> {
    let code = letter.quarantine.iter().map(|details| details.code.as_str());
    let parts: Vec<_> = code.chain(letter.reason.as_deref()).collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

/// List the events that a consumer could not handle, or quarantined items.
///
/// Lists the oldest first. The JSON output contains the events.
#[derive(Args)]
pub(crate) struct List {
    /// Name of the consumer, or `_ingest` for quarantined items.
    #[arg(value_name = "CONSUMER")]
    consumer: DeadLetterOwner,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<DeadLetter>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_QUARANTINED, &routes::LIST_DEAD_LETTERS]);
    const ERRORS: Errors = &[ErrorKind::PlatformTokenMissing];
    const EXAMPLES: Examples = &[
        ("List the first dead letters of a consumer", "svc events dlq list archive"),
        ("Save all dead letters with their events", "svc events dlq list archive --all --output ndjson"),
        ("List invalid items that senders have quarantined", "svc events dlq list _ingest"),
    ];
    const AGENT_NOTES: &'static str = "A consumer requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and has written source, \
        event id, type, reason, attempts and event. `_ingest` lists items that were sent with invalid=quarantine and are not valid events; \
        it also accepts a session of an administrator, who sees the own tenant. Exit status 3 means that the consumer \
        does not exist and has no dead letters. Dead letters are deleted after \
        SVC_DLQ_MAX_AGE, 14 days by default.";
    const SEE_ALSO: Names = &["events dlq show", "events dlq replay", "events dlq delete", "consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = self.consumer.connect(context).await?;
        self.consumer.list(&api, self.paging.into()).await
    }
}

/// Print quarantined items.
///
/// Prints the original bytes of each item and then a line break, or only the bytes of a part of a body. Correct the output and send it with
/// `svc events send --file`. On a terminal, control characters are escaped.
#[derive(Args)]
pub(crate) struct Show {
    /// `_ingest`, the name of quarantined items.
    #[arg(value_name = "CONSUMER")]
    consumer: DeadLetterOwner,
    /// Numbers of the items, as `svc events dlq list _ingest` prints them.
    #[arg(value_name = "SEQUENCE", required = true)]
    sequences: Vec<u64>,
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
        after each item. The JSON output has one object on one line per item; quarantine.payload is base64 of the stored bytes. \
        quarantine.truncated_from is set if the item was larger than the stored \
        256 KiB. After sending the corrected item, delete the original: svc events dlq delete _ingest SEQUENCE.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq delete", "events send"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        if let DeadLetterOwner::Consumer(name) = &self.consumer {
            let error = ErrorKind::InputInvalid.with_message("only quarantined items are shown one by one");
            let command =
                format!("Run `svc events dlq list {name} --output json`, which contains the events.");
            return Err(error.with_remediation(command));
        }
        let api = self.consumer.connect(context).await?;
        for sequence in &self.sequences {
            let letter: DeadLetter = api.call(&routes::GET_QUARANTINED, &[sequence]).fetch().await?;
            if context.out().is_json() {
                context.out().print_line(&letter)?;
                continue;
            }
            let details = letter.quarantine.as_ref();
            let payload =
                details.and_then(|details| BASE64.decode(details.payload.as_deref()?.as_bytes()).ok());
            let mut payload = payload.ok_or(ErrorKind::UnexpectedResponse)?;
            if details.is_some_and(|details| details.part.is_none()) {
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
    #[arg(value_name = "SEQUENCE", required_unless_present = "all")]
    sequences: Vec<u64>,
    /// Select all dead letters that exist now.
    #[arg(long, conflicts_with = "sequences")]
    all: bool,
}

/// The part of a dead letter that is kept of a whole list.
#[derive(Deserialize)]
struct Number {
    sequence: u64,
}

/// Result of a request for some dead letters.
trait Handled: DeserializeOwned {
    const NONE: Self;
    /// What skipped numbers do not have.
    const SKIPPED: &'static str;
    const REMEDIATION: &'static str;

    /// Numbers that were handled, and numbers that were skipped.
    fn numbers(&mut self) -> [&mut Vec<u64>; 2];
}

impl Handled for ReplayedDeadLetters {
    const NONE: Self = Self { replayed: Vec::new(), skipped: Vec::new() };
    const SKIPPED: &'static str = "no dead letter that can be replayed";
    const REMEDIATION: &'static str = "List the dead letters: `svc events dlq list` with the consumer. One without an event in its \
        JSON output, or with an event that does not match its source, id or type, is kept and cannot be replayed.";

    fn numbers(&mut self) -> [&mut Vec<u64>; 2] {
        [&mut self.replayed, &mut self.skipped]
    }
}

impl Handled for DeletedDeadLetters {
    const NONE: Self = Self { deleted: Vec::new(), skipped: Vec::new() };
    const SKIPPED: &'static str = "no dead letter";
    const REMEDIATION: &'static str = "List the dead letters: `svc events dlq list` with the consumer.";

    fn numbers(&mut self) -> [&mut Vec<u64>; 2] {
        [&mut self.deleted, &mut self.skipped]
    }
}

impl Selection {
    /// Sends the numbers to the route, in parts. Asks for confirmation if all dead letters are selected.
    async fn send<T: Handled>(
        self,
        context: &Context,
        route: impl FnOnce(&DeadLetterOwner) -> &'static Route,
        question: impl FnOnce(usize, &DeadLetterOwner) -> String,
    ) -> Result<T> {
        let api = self.consumer.connect(context).await?;
        let route = route(&self.consumer);
        let sequences = if self.all {
            let letters = self.consumer.list::<Number>(&api, ListLimit::All).await?.items;
            let sequences: Vec<_> = letters.into_iter().map(|letter| letter.sequence).collect();
            if !sequences.is_empty() {
                context.prompt().confirm(&question(sequences.len(), &self.consumer)).await?;
            }
            sequences
        } else {
            self.sequences
        };
        let mut result = T::NONE;
        for part in sequences.chunks(MAX_DEAD_LETTER_SEQUENCES) {
            let request = DeadLetterSequences { sequences: part.to_vec() };
            let call = match &self.consumer {
                DeadLetterOwner::Consumer(name) => api.call(route, &[name]),
                DeadLetterOwner::Ingest => api.call(route, &[]),
            };
            let call = call.json(&request)?;
            let mut response: T = call.fetch().await?;
            for (all, new) in result.numbers().into_iter().zip(response.numbers()) {
                all.append(new);
            }
            if sequences.len() > MAX_DEAD_LETTER_SEQUENCES {
                let count: usize = result.numbers().iter().map(|numbers| numbers.len()).sum();
                context.out().notice(&format!("{count} of {} dead letters", sequences.len()));
            }
        }
        let [handled, skipped] = result.numbers();
        if !skipped.is_empty() {
            let numbers = skipped.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let message = format!("{} has {} with this number: {numbers}", self.consumer, T::SKIPPED);
            if handled.is_empty() {
                return Err(ErrorKind::InputInvalid.with_message(message).with_remediation(T::REMEDIATION));
            }
            context.out().warn(&message);
        }
        Ok(result)
    }
}

/// Cells of the table: the number of handled dead letters, and the skipped numbers.
fn table(handled: &'static str, numbers: &[u64], skipped: &[u64]) -> Table {
    let skipped: Vec<_> = skipped.iter().map(u64::to_string).collect();
    let skipped = (!skipped.is_empty()).then(|| text(skipped.join(" ")));
    Table::fields([(handled, Some(text(numbers.len()))), ("skipped", skipped)])
}

/// Send dead letters to their consumer again.
///
/// Correct the consumer first. Each event is stored again as a new message, and its dead letter is deleted. Other consumers
/// receive it again too. With --all, asks for confirmation. Quarantined items are not replayed: correct them and send them with
/// `svc events send`.
#[derive(Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    selection: Selection,
}

impl CommandOutput for ReplayedDeadLetters {
    fn table(&self) -> Table {
        table("replayed", &self.replayed, &self.skipped)
    }
}

impl Command for Replay {
    type Output = ReplayedDeadLetters;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_DEAD_LETTERS, &routes::REPLAY_DEAD_LETTERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Replay two dead letters", "svc events dlq replay archive 17 18"),
        ("Replay all dead letters in a script", "svc events dlq replay archive --all --yes"),
    ];
    const AFTER_LOST_RESPONSE: Option<&'static str> = Some(
        "Run `svc events dlq list` with the consumer. A dead letter that is not listed was sent: replay \
        only the numbers that are listed.",
    );
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. --all requires --yes without \
        a terminal. A repeated command skips replayed numbers. An event that fails again becomes a new dead letter.";
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
        self.selection.send(context, |_| &routes::REPLAY_DEAD_LETTERS, question).await
    }
}

/// Delete dead letters.
///
/// The consumer does not get their events any more. The events themselves remain in the stream until their retention ends. A
/// quarantined item exists only here. With --all, asks for confirmation.
#[derive(Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    selection: Selection,
}

impl CommandOutput for DeletedDeadLetters {
    fn table(&self) -> Table {
        table("deleted", &self.deleted, &self.skipped)
    }
}

impl Command for Delete {
    type Output = DeletedDeadLetters;

    const ROUTES: Routes = Routes::Only(&[
        &routes::DELETE_QUARANTINED,
        &routes::LIST_QUARANTINED,
        &routes::DELETE_DEAD_LETTERS,
        &routes::LIST_DEAD_LETTERS,
    ]);
    const ERRORS: Errors = &[
        ErrorKind::PlatformTokenMissing,
        ErrorKind::InputNeeded,
        ErrorKind::InputInvalid,
        ErrorKind::Declined,
    ];
    const EXAMPLES: Examples = &[
        ("Delete two dead letters", "svc events dlq delete archive 17 18"),
        ("Delete all dead letters in a script", "svc events dlq delete archive --all --yes"),
        ("Delete a quarantined item after it was corrected and sent", "svc events dlq delete _ingest 17"),
    ];
    const AGENT_NOTES: &'static str = "A consumer requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE; `_ingest` also accepts a \
        session of an administrator. --all requires --yes without \
        a terminal. Save the events first: svc events dlq list CONSUMER --all --output ndjson.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq replay"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let question =
            |count, consumer: &DeadLetterOwner| format!("Delete {count} dead letters of {consumer}?");
        let route = |consumer: &DeadLetterOwner| match consumer {
            DeadLetterOwner::Consumer(_) => &routes::DELETE_DEAD_LETTERS,
            DeadLetterOwner::Ingest => &routes::DELETE_QUARANTINED,
        };
        self.selection.send(context, route, question).await
    }
}
