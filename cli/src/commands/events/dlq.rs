//! `svc events dlq`: dead letters of consumers, for the platform administrator.

use clap::Args;
use contract::consumers::{ConsumerName, DeadLetter, MAX_REPLAY, ReplayDeadLetters, ReplayedDeadLetters};
use contract::routes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arguments::Paging;
use crate::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::commands::{Command, group};
use crate::context::Context;
use crate::error::{ErrorKind, Result};
use crate::output::{Cell, CommandOutput, ItemList, Row, Table, optional, text, time};

group!(
    /// Dead letters of consumers.
    DeadLetters {
        List(List),
        Replay(Replay),
    }
);

impl Row for DeadLetter {
    const HEADINGS: &'static [&'static str] =
        &["SEQUENCE", "FAILED", "TENANT", "SOURCE", "EVENT ID", "TYPE", "ATTEMPTS", "REASON"];
    const EMPTY: &'static str = "No dead letters.";

    fn cells(&self) -> Vec<Cell> {
        vec![
            text(self.sequence),
            time(&self.failed_at),
            text(&self.tenant_id),
            optional(self.source_id.as_ref().map(text)),
            optional(self.event_id.as_ref().map(text)),
            optional(self.event_type.as_ref().map(text)),
            optional(self.attempts.map(text)),
            optional(self.reason.as_ref().map(text)),
        ]
    }
}

/// List the events that a consumer could not handle.
///
/// The oldest first. The JSON output contains the events.
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
    const SEE_ALSO: Names = &["events dlq replay", "consumers list"];

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.platform_token()?;
        let path = routes::LIST_DEAD_LETTERS.path_with(&[&self.consumer]);
        let list = context
            .api()?
            .list::<DeadLetter>(&path, &[], self.paging.into(), |call| call.bearer(&credential.bearer))
            .await?;
        context.print_list(list)
    }
}

/// Send dead letters to their consumer again.
///
/// Correct the consumer first. Each event is stored again as a new message, and its dead letter is deleted. Other consumers
/// receive it again too. With --all, asks for confirmation.
#[derive(Args)]
pub(crate) struct Replay {
    /// Name of the consumer.
    #[arg(value_name = "CONSUMER")]
    consumer: ConsumerName,
    /// Numbers of the dead letters, as `svc events dlq list` prints them.
    #[arg(value_name = "SEQUENCE", required_unless_present = "all")]
    sequences: Vec<u64>,
    /// Replay all dead letters that the consumer has now.
    #[arg(long, conflicts_with = "sequences")]
    all: bool,
}

/// The part of a dead letter that is kept of a whole list.
#[derive(Deserialize)]
struct Number {
    sequence: u64,
}

/// Result of a replay.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct ReplayResult {
    /// Dead letters that were sent again and deleted.
    replayed: Vec<u64>,
    /// Numbers that are no dead letter of the consumer, or of one that does not match its event.
    skipped: Vec<u64>,
}

impl CommandOutput for ReplayResult {
    fn table(&self) -> Table {
        Table::fields([
            ("replayed", Some(text(self.replayed.len()))),
            ("skipped", Some(text(self.skipped.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")))),
        ])
    }
}

impl Command for Replay {
    type Output = ReplayResult;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::LIST_DEAD_LETTERS, &routes::REPLAY_DEAD_LETTERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Replay two dead letters", "svc events dlq replay archive 17 18"),
        ("Replay all dead letters in a script", "svc events dlq replay archive --all --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. --all requires --yes without \
        a terminal. A repeated command skips replayed numbers. An event that fails again becomes a new dead letter.";
    const SEE_ALSO: Names = &["events dlq list", "consumers list"];

    async fn run(self, context: &Context) -> Result<()> {
        let credential = context.platform_token()?;
        let api = context.api()?;
        let sequences = if self.all {
            let path = routes::LIST_DEAD_LETTERS.path_with(&[&self.consumer]);
            let letters: Vec<Number> = api.list_all(&path, |call| call.bearer(&credential.bearer)).await?;
            let sequences: Vec<_> = letters.into_iter().map(|letter| letter.sequence).collect();
            if !sequences.is_empty() {
                let question = format!("Send {} events to {} again?", sequences.len(), self.consumer);
                context.prompt().confirm(&question).await?;
            }
            sequences
        } else {
            self.sequences
        };
        let mut result = ReplayResult::default();
        for part in sequences.chunks(MAX_REPLAY) {
            let request = ReplayDeadLetters { sequences: part.to_vec() };
            let call =
                api.call(&routes::REPLAY_DEAD_LETTERS, &[&self.consumer]).bearer(&credential.bearer)?;
            let done: ReplayedDeadLetters = call.json(&request)?.fetch().await?;
            result.replayed.extend(done.replayed);
            result.skipped.extend(done.skipped);
            if sequences.len() > MAX_REPLAY {
                let count = result.replayed.len() + result.skipped.len();
                context.out().notice(&format!("{count} of {} dead letters", sequences.len()));
            }
        }
        if !result.skipped.is_empty() {
            context
                .out()
                .warn(&format!("{} numbers are no dead letter of this consumer", result.skipped.len()));
        }
        context.out().print(&result)
    }
}
