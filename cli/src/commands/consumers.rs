//! `svc consumers`: durable consumers of the event stream, managed by the platform administrator.

mod control;
mod create;

use std::time::Duration;

use chrono::TimeDelta;
use clap::Args;
use contract::consumers::{Consumer, ConsumerName, ConsumerStart, DeadLetter};
use contract::routes;
use tokio::time::sleep;

use crate::framework::api::Paging;
use crate::framework::arguments::AllTenants;
use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::{Command, ended, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{
    Cell, CommandOutput, ItemList, Row, Table, duration, name, optional, text, time,
};

use control::{Config, Pause, Reset, Resume};
use create::{Create, RotateLogin};

/// Maximum number of event types or subjects in a cell. The JSON output has all.
const MAX_VALUES: usize = 3;
/// Interval of `list --watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

group!(
    /// Manage the consumers of events as the platform administrator.
    Consumers {
        Create(Create),
        List(List),
        Get(Get),
        Pause(Pause),
        Resume(Resume),
        Reset(Reset),
        RotateLogin(RotateLogin),
        Config(Config),
        Delete(Delete),
    }
);

impl CommandOutput for Consumer {
    fn table(&self) -> Table {
        Table::fields(fields(self))
    }
}

fn fields(consumer: &Consumer) -> Vec<(&'static str, Option<Cell>)> {
    vec![
        ("consumer", Some(text(&consumer.name))),
        ("tenant", Some(text(tenant(consumer)))),
        ("event types", Some(text(event_types(consumer)))),
        ("partitions", consumer.partitions.map(|range| text(format!("{}-{}", range.first, range.last)))),
        ("streams", Some(text(consumer.streams.join(" ")))),
        ("created", Some(time(&consumer.created_at))),
        ("pending", Some(text(consumer.pending))),
        ("unacked", Some(text(consumer.ack_pending))),
        ("redelivered", Some(text(consumer.redelivered))),
        ("oldest unread", oldest_unread(consumer)),
        ("last delivery", consumer.last_delivered_at.as_ref().map(time)),
        ("last ack", consumer.last_acknowledged_at.as_ref().map(time)),
        ("ack wait", Some(text(format!("{} s", consumer.ack_wait_seconds)))),
        ("max unacked", Some(text(consumer.max_ack_pending))),
        ("paused", consumer.paused.then(|| text("yes"))),
        ("suspended until", consumer.suspension.as_ref().map(|suspension| time(&suspension.until))),
        (
            "suspended because",
            consumer
                .suspension
                .as_ref()
                .map(|it| text(format!("{} messages per second", it.messages_per_second))),
        ),
        ("start", Some(start(consumer))),
        ("subjects", Some(text(first(&consumer.filter_subjects)))),
    ]
}

impl Row for Consumer {
    const EMPTY: &'static str = "No consumers.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("CONSUMER", name(format!("{}{}", self.name, state(self)))),
            ("TENANT", text(tenant(self))),
            ("PENDING", text(self.pending)),
            ("BEHIND", optional(oldest_unread(self))),
            ("LAST ACK", optional(self.last_acknowledged_at.as_ref().map(time))),
            ("UNACKED", text(self.ack_pending)),
            ("EVENT TYPES", text(event_types(self))),
            ("START", start(self)),
            ("REDELIVERED", text(self.redelivered)),
        ]
    }
}

/// Why the consumer gets no events.
const fn state(consumer: &Consumer) -> &'static str {
    match consumer {
        Consumer { suspension: Some(_), .. } => " (suspended)",
        Consumer { paused: true, .. } => " (paused)",
        _ => "",
    }
}

fn tenant(consumer: &Consumer) -> String {
    consumer.tenant_id.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string)
}

fn start(consumer: &Consumer) -> Cell {
    match &consumer.start {
        ConsumerStart::At(at) => time(at),
        start => text(start),
    }
}

/// Returns the age of the oldest unread event, if there is one.
fn oldest_unread(consumer: &Consumer) -> Option<Cell> {
    let seconds = consumer.oldest_unread_seconds.filter(|seconds| *seconds > 0)?;
    let age = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds)?;
    Some(text(duration(age)))
}

fn event_types(consumer: &Consumer) -> String {
    if consumer.event_types.is_empty() { "all".to_owned() } else { first(&consumer.event_types) }
}

/// Returns the first values, and the number of the others.
fn first(values: &[String]) -> String {
    match values.split_at_checked(MAX_VALUES) {
        Some((shown, rest)) if !rest.is_empty() => format!("{} and {} more", shown.join(" "), rest.len()),
        _ => values.join(" "),
    }
}

/// List the consumers and their progress.
///
/// An administrator of a tenant gets the consumers of the tenant. With the platform token, lists those of the tenant of --tenant or the
/// context, else all. A consumer of all tenants reads the events of each tenant too, and is in the list of all only.
#[derive(Args)]
pub(crate) struct List {
    /// Print the list every two seconds until the command is interrupted.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    all_tenants: AllTenants,
    #[command(flatten)]
    paging: Paging,
}

impl Command for List {
    type Output = ItemList<Consumer>;

    const ROUTES: Routes = Routes::Only(&[&routes::LIST_CONSUMERS, &routes::GET_TENANT]);
    const EXAMPLES: Examples =
        &[("List all consumers with their settings as NDJSON", "svc consumers list --output ndjson")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, or the login of an \
        administrator of a tenant. A consumer with many pending events reads too slowly or is not connected.";
    const SEE_ALSO: Names = &["consumers create", "consumers get"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tenants = context.connect_to_tenants(Self::REQUIRES, self.all_tenants)?;
        loop {
            let consumers = tenants.print_list(routes::LIST_CONSUMERS.path, &[], self.paging).await?;
            if !self.watch {
                return Ok(consumers);
            }
            context.out().print(&consumers)?;
            sleep(WATCH_INTERVAL).await;
        }
    }
}

/// Show a consumer and its progress.
#[derive(Args)]
pub(crate) struct Get {
    /// Name of the consumer.
    name: ConsumerName,
}

impl Command for Get {
    type Output = Consumer;

    const ROUTES: Routes = Routes::Only(&[&routes::GET_CONSUMER]);
    const EXAMPLES: Examples = &[("Show a consumer", "svc consumers get acme-siem")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, or the login of an \
        administrator of the tenant of the consumer. Exit status 3 means that the consumer does not exist.";
    const SEE_ALSO: Names = &["consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        api.call(&routes::GET_CONSUMER, &[&self.name]).fetch().await
    }
}

/// Delete a consumer.
///
/// It reads no more events. Its position in the stream and its login are lost. Its dead letters remain until they expire. Asks for
/// confirmation.
#[derive(Args)]
pub(crate) struct Delete {
    /// Name of the consumer.
    name: ConsumerName,
}

ended!(
    /// Result of deleting a consumer.
    DeletedConsumer {
        /// Name of the consumer.
        name: ConsumerName,
        deleted
    }: "Consumer deleted."
);

impl Command for Delete {
    type Output = DeletedConsumer;

    const ROUTES: Routes = Routes::Only(&[&routes::DELETE_CONSUMER, &routes::LIST_DEAD_LETTERS]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[
        ("Delete a consumer after confirmation", "svc consumers delete archive"),
        ("Delete a consumer in a script", "svc consumers delete archive --yes"),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes without a \
        terminal; pass --yes only if the user asked for this change. A consumer that is created again starts at the oldest \
        stored event. Exit status 3 means that the consumer does not exist.";
    const SEE_ALSO: Names = &["consumers create", "consumers list"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let (path, name) = (routes::LIST_DEAD_LETTERS.path_with(&[&self.name]), &self.name);
        // Only for the warning: a leaked consumer is deleted also if they cannot be listed.
        let letters = api.list::<DeadLetter>(&path, &[], Some(1)).await;
        if letters.is_ok_and(|letters| !letters.is_empty()) {
            context.out().warn(&format!(
                "consumer {name} has dead letters, which are not replayed without it (`svc events dlq list {name}`)"
            ));
        }
        context.prompt().confirm(&format!("Delete consumer {name} and its position?")).await?;
        api.call(&routes::DELETE_CONSUMER, &[&self.name]).execute().await?;
        Ok(DeletedConsumer::new(self.name))
    }
}
