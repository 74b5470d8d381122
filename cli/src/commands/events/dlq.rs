//! `svc events dlq`: dead letters of consumers, for the platform administrator.

use clap::Args;
use contract::consumers::{
    ConsumerName, DeadLetter, DeadLetterSequences, DeletedDeadLetters, MAX_DEAD_LETTER_SEQUENCES,
    ReplayedDeadLetters,
};
use contract::routes::{self, Route};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::framework::api::Paging;
use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, optional, text, time};

group!(
    /// Dead letters of consumers.
    DeadLetters {
        List(List),
        Replay(Replay),
        Delete(Delete),
    }
);

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
            ("REASON", optional(self.reason.as_ref().map(text))),
        ]
    }
}

/// List the events that a consumer could not handle.
///
/// Lists the oldest first. The JSON output contains the events.
#[derive(Args)]
pub(crate) struct List {
    /// Name of the consumer.
    #[arg(value_name = "CONSUMER")]
    consumer: ConsumerName,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<DeadLetter>;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::LIST_DEAD_LETTERS]);
    const EXAMPLES: Examples = &[
        ("List the first dead letters of a consumer", "svc events dlq list archive"),
        ("Save all dead letters with their events", "svc events dlq list archive --all --output ndjson"),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. The consumer wrote source, \
        event id, type, reason, attempts and event. Exit status 3 means that the consumer \
        does not exist and has no dead letters. Dead letters are deleted after \
        SVC_DLQ_MAX_AGE, 14 days by default.";
    const SEE_ALSO: Names = &["events dlq replay", "events dlq delete", "consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let path = routes::LIST_DEAD_LETTERS.path_with(&[&self.consumer]);
        context.connect(Self::REQUIRES).await?.list(&path, &[], self.paging).await
    }
}

/// A consumer and some or all of its dead letters.
#[derive(Args)]
struct Selection {
    /// Name of the consumer.
    #[arg(value_name = "CONSUMER")]
    consumer: ConsumerName,
    /// Numbers of the dead letters, as `svc events dlq list` prints them.
    #[arg(value_name = "SEQUENCE", required_unless_present = "all")]
    sequences: Vec<u64>,
    /// Select all dead letters that the consumer has now.
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

    /// Numbers that were handled, and numbers that were skipped.
    fn numbers(&mut self) -> [&mut Vec<u64>; 2];
}

impl Handled for ReplayedDeadLetters {
    const NONE: Self = Self { replayed: Vec::new(), skipped: Vec::new() };

    fn numbers(&mut self) -> [&mut Vec<u64>; 2] {
        [&mut self.replayed, &mut self.skipped]
    }
}

impl Handled for DeletedDeadLetters {
    const NONE: Self = Self { deleted: Vec::new(), skipped: Vec::new() };

    fn numbers(&mut self) -> [&mut Vec<u64>; 2] {
        [&mut self.deleted, &mut self.skipped]
    }
}

impl Selection {
    /// Sends the numbers to the route, in parts. Asks for confirmation if all dead letters are selected.
    async fn send<T: Handled>(
        self,
        context: &Context,
        route: &Route,
        question: impl FnOnce(usize, &ConsumerName) -> String,
    ) -> Result<T> {
        let api = context.connect(Requirement::PlatformToken).await?;
        let sequences = if self.all {
            let path = routes::LIST_DEAD_LETTERS.path_with(&[&self.consumer]);
            let letters = api.list_all::<Number>(&path).await?.items;
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
            let call = api.call(route, &[&self.consumer]).json(&request)?;
            let mut response: T = call.fetch().await?;
            for (all, new) in result.numbers().into_iter().zip(response.numbers()) {
                all.append(new);
            }
            if sequences.len() > MAX_DEAD_LETTER_SEQUENCES {
                let count: usize = result.numbers().iter().map(|numbers| numbers.len()).sum();
                context.out().notice(&format!("{count} of {} dead letters", sequences.len()));
            }
        }
        let [_, skipped] = result.numbers();
        if !skipped.is_empty() {
            context.out().warn(&format!("{} numbers are no dead letter of this consumer", skipped.len()));
        }
        Ok(result)
    }
}

/// Cells of the table: the number of handled dead letters, and the skipped numbers.
fn table(handled: &'static str, numbers: &[u64], skipped: &[u64]) -> Table {
    Table::fields([
        (handled, Some(text(numbers.len()))),
        ("skipped", Some(text(skipped.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")))),
    ])
}

/// Send dead letters to their consumer again.
///
/// Correct the consumer first. Each event is stored again as a new message, and its dead letter is deleted. Other consumers
/// receive it again too. With --all, asks for confirmation.
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

    const REQUIRES: Requirement = Requirement::PlatformToken;
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
        let question = |count, consumer: &ConsumerName| format!("Send {count} events to {consumer} again?");
        let route = &routes::REPLAY_DEAD_LETTERS;
        self.selection.send(context, route, question).await
    }
}

/// Delete dead letters.
///
/// The consumer does not get their events any more. The events themselves remain in the stream until their retention ends. With
/// --all, asks for confirmation.
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

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::LIST_DEAD_LETTERS, &routes::DELETE_DEAD_LETTERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Delete two dead letters", "svc events dlq delete archive 17 18"),
        ("Delete all dead letters in a script", "svc events dlq delete archive --all --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. --all requires --yes without \
        a terminal. Save the events first: svc events dlq list CONSUMER --all --output ndjson.";
    const SEE_ALSO: Names = &["events dlq list", "events dlq replay"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let question = |count, consumer: &ConsumerName| format!("Delete {count} dead letters of {consumer}?");
        let route = &routes::DELETE_DEAD_LETTERS;
        self.selection.send(context, route, question).await
    }
}
