//! `svc consumers`: durable consumers of the event stream, managed by the platform administrator.

use clap::Args;
use contract::consumers::{Consumer, ConsumerName, CreateConsumer, NatsPermissions, Partitions};
use contract::routes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{Cell, CommandOutput, ItemList, Row, Table, optional, text, time};

group!(
    /// Manage the consumers of events as the platform administrator.
    Consumers {
        Create(Create),
        List(List),
        Delete(Delete),
    }
);

impl CommandOutput for Consumer {
    fn table(&self) -> Table {
        Table::fields([
            ("consumer", Some(text(&self.name))),
            ("tenant", Some(text(tenant(self)))),
            ("event types", Some(text(event_types(self)))),
            ("partitions", self.partitions.map(|range| text(format!("{}-{}", range.first, range.last)))),
            ("streams", Some(text(self.streams.join(" ")))),
            ("created", Some(time(&self.created_at))),
            ("pending", Some(text(self.pending))),
            ("publish", Some(text(self.nats.publish.join("  ")))),
            ("subscribe", Some(text(self.nats.subscribe.join("  ")))),
        ])
    }
}

impl Row for Consumer {
    const EMPTY: &'static str = "No consumers.";

    fn columns(&self) -> Vec<(&'static str, Cell)> {
        vec![
            ("CONSUMER", text(&self.name)),
            ("TENANT", text(tenant(self))),
            ("EVENT TYPES", text(event_types(self))),
            ("PENDING", text(self.pending)),
            ("UNACKED", text(self.ack_pending)),
            ("REDELIVERED", text(self.redelivered)),
            ("LAST ACK", optional(self.last_acknowledged_at.as_ref().map(time))),
        ]
    }
}

fn tenant(consumer: &Consumer) -> String {
    consumer.tenant_id.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string)
}

fn event_types(consumer: &Consumer) -> String {
    if consumer.event_types.is_empty() { "all".to_owned() } else { consumer.event_types.join(" ") }
}

/// Create a consumer and print the permissions of its NATS user.
///
/// Creates a durable pull consumer. The administrator of the broker adds the printed user to `consumers.conf`. Without
/// --tenant or `SVC_TENANT`, the consumer reads the events of all tenants; the tenant of the context does not apply.
#[derive(Args)]
pub(crate) struct Create {
    /// Name: 1 to 63 characters of a-z, 0-9 and `-`.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
    /// Event type to read; repeatable. The consumer also gets other types with the subject of `GENERIC_EVENT` [default: all].
    #[arg(long, value_name = "TYPE")]
    event_type: Vec<String>,
    /// Partitions to read, such as 0-31, to share the events among consumers [default: all].
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_partitions)]
    partitions: Option<Partitions>,
}

impl Command for Create {
    type Output = Consumer;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::CREATE_CONSUMER]);
    const EXAMPLES: Examples = &[
        ("Create a consumer of all events", "svc consumers create archive"),
        (
            "Create a consumer of the logins of one tenant",
            "svc consumers create acme-logins --tenant acme --event-type USER_LOGIN",
        ),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Without --tenant or \
        SVC_TENANT, the consumer reads all tenants. A repeated command with the same options changes nothing; with other \
        options it fails with consumer_exists. The output contains no password.";
    const SEE_ALSO: Names = &["consumers list", "consumers delete", "events send"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let request = CreateConsumer {
            name: self.name,
            tenant_id: context.tenant_option().cloned(),
            event_types: self.event_type,
            partitions: self.partitions,
        };
        let consumer: Consumer = api.call(&routes::CREATE_CONSUMER, &[]).json(&request)?.fetch().await?;
        context
            .notice_later("Add this user to consumers.conf of the broker and reload it (docs/consumers.md):");
        for line in nats_user(&consumer) {
            context.notice_later(line);
        }
        context.notice_later("Then read the events:");
        for stream in &consumer.streams {
            context.notice_later(connection_example(&consumer, stream));
        }
        Ok(consumer)
    }
}

/// Returns the lines of the user in the configuration of the broker.
fn nats_user(consumer: &Consumer) -> Vec<String> {
    let NatsPermissions { publish, subscribe, .. } = &consumer.nats;
    let quoted =
        |subjects: &[String]| subjects.iter().map(|subject| format!("\"{subject}\"")).collect::<Vec<_>>();
    let password = format!("NATS_{}_PASSWORD", consumer.name.as_str().to_uppercase().replace('-', "_"));
    let mut lines = vec![
        format!("    {{ user: {}, password: ${password}", consumer.name),
        "      permissions: {".to_owned(),
        "        publish: { allow: [".to_owned(),
    ];
    lines.extend(quoted(publish).into_iter().map(|subject| format!("          {subject}")));
    lines.push("        ] }".to_owned());
    lines.push(format!("        subscribe: {{ allow: [ {} ] }}", quoted(subscribe).join(", ")));
    lines.push("    } }".to_owned());
    lines
}

/// Returns a command that reads one event.
fn connection_example(consumer: &Consumer, stream: &str) -> String {
    let Consumer { name, nats, .. } = consumer;
    format!(
        "  NATS_URL=nats://HOST:4222 NATS_USER={name} NATS_PASSWORD=... nats --js-api-prefix {} --inbox-prefix {} consumer next {stream} {name} --ack",
        nats.api_prefix, nats.inbox_prefix
    )
}

fn parse_partitions(text: &str) -> std::result::Result<Partitions, String> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(Partitions { first: first.parse().ok()?, last: last.parse().ok()? }));
    range.ok_or_else(|| "expected two numbers of 0 to 63, such as 0-31".to_owned())
}

/// List the consumers and their progress.
#[derive(Args)]
pub(crate) struct List {}

impl Command for List {
    type Output = ItemList<Consumer>;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::LIST_CONSUMERS]);
    const EXAMPLES: Examples =
        &[("List all consumers with their permissions as NDJSON", "svc consumers list --output ndjson")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Reads all pages. A consumer \
        with many pending events reads too slowly or is not connected.";
    const SEE_ALSO: Names = &["consumers create", "consumers delete"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        context.connect(Self::REQUIRES).await?.list_all(routes::LIST_CONSUMERS.path).await
    }
}

/// Delete a consumer.
///
/// Its position in the stream is lost. Remove its user from the broker too. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Delete {
    /// Name of the consumer.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
}

/// Result of deleting a consumer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedConsumer {
    /// Name of the consumer.
    name: ConsumerName,
    /// Always true.
    deleted: bool,
}

impl CommandOutput for DeletedConsumer {
    fn table(&self) -> Table {
        Table::message("Consumer deleted.")
    }
}

impl Command for Delete {
    type Output = DeletedConsumer;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::DELETE_CONSUMER]);
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
        context.prompt().confirm(&format!("Delete consumer {} and its position?", self.name)).await?;
        api.call(&routes::DELETE_CONSUMER, &[&self.name]).execute().await?;
        Ok(DeletedConsumer { name: self.name, deleted: true })
    }
}
