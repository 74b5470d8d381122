//! Delivery and position of a consumer, and the accounts of all consumers at the broker.

use std::path::PathBuf;

use clap::Args;
use contract::consumers::{Consumer, ConsumerAccounts, ConsumerName, ConsumerStart, ResetConsumer};
use contract::routes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::catalog::{Errors, Examples, Names, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::files::replace_file;
use crate::framework::output::{CommandOutput, Table};

/// Stop the delivery of events to a consumer.
#[derive(Args)]
pub(crate) struct Pause {
    /// Name of the consumer.
    name: ConsumerName,
}

impl Command for Pause {
    type Output = Consumer;

    const ROUTES: Routes = Routes::Only(&[&routes::PAUSE_CONSUMER]);
    const EXAMPLES: Examples =
        &[("Stop a consumer during maintenance of its database", "svc consumers pause archive")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. Events wait in the stream \
        until their retention ends.";
    const SEE_ALSO: Names = &["consumers resume"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        api.call(&routes::PAUSE_CONSUMER, &[&self.name]).fetch().await
    }
}

/// Continue the delivery of events to a consumer.
///
/// Also ends a suspension of its login.
#[derive(Args)]
pub(crate) struct Resume {
    /// Name of the consumer.
    name: ConsumerName,
}

impl Command for Resume {
    type Output = Consumer;

    const ROUTES: Routes = Routes::Only(&[&routes::RESUME_CONSUMER]);
    const EXAMPLES: Examples = &[("Continue a consumer", "svc consumers resume archive")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE.";
    const SEE_ALSO: Names = &["consumers pause"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let consumer = api.call(&routes::RESUME_CONSUMER, &[&self.name]).fetch().await?;
        context.notice_later(
            "A program that waits gets the stored events with the next event or with its next request, after a minute at most.",
        );
        Ok(consumer)
    }
}

/// Let a consumer read from another event.
///
/// It reads all events from there again, also those that it has handled, or skips those before. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Reset {
    /// Name of the consumer.
    name: ConsumerName,
    /// Next event: `all` stored events, `new` ones only, or those since a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "START")]
    to: ConsumerStart,
}

impl Command for Reset {
    type Output = Consumer;

    const ROUTES: Routes = Routes::Only(&[&routes::RESET_CONSUMER]);
    const ERRORS: Errors = ErrorKind::CONFIRMATION;
    const EXAMPLES: Examples = &[(
        "Read the events since a time again",
        "svc consumers reset archive --to 2026-01-31T12:00:00Z --yes",
    )];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE, and --yes without a \
        terminal; pass --yes only if the user asked for this change: skipped events are not read any more. The login remains. \
        Programs that read with Consume of nats.go or consume of nats.js must be restarted.";
    const SEE_ALSO: Names = &["consumers get", "events dlq replay"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        context.prompt().confirm(&format!("Let consumer {} read from another event?", self.name)).await?;
        let call = api.call(&routes::RESET_CONSUMER, &[&self.name]).json(&ResetConsumer { to: self.to })?;
        let consumer = call.fetch().await?;
        context.notice_later(
            "Restart the programs that read it with `Consume` of nats.go or `consume` of nats.js: they stop at a reset. Others continue.",
        );
        Ok(consumer)
    }
}

/// Print the accounts of all consumers for the configuration of the broker.
///
/// Prints the complete file `consumers.conf`, derived from the consumers. Not needed where svc-ingest keeps the file.
#[derive(Args)]
pub(crate) struct Config {
    /// Replace this file in one step, readable only by its owner (mode 0600), instead of printing its content.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// The accounts of all consumers, or the file that has them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Accounts {
    /// The complete file `consumers.conf` of the broker, with the hashes of all logins. Absent with `--file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Only with `--file`: the file that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

impl CommandOutput for Accounts {
    fn table(&self) -> Table {
        self.content.as_deref().map_or_else(|| Table::message("File replaced."), Table::text)
    }
}

impl Command for Config {
    type Output = Accounts;

    const ROUTES: Routes = Routes::Only(&[&routes::GET_CONSUMER_ACCOUNTS]);
    const ERRORS: Errors = &[ErrorKind::OutputFailed];
    const EXAMPLES: Examples = &[
        ("Print the file for the broker", "svc consumers config"),
        (
            "Replace the file next to the configuration of the broker",
            "svc consumers config --file consumers.conf",
        ),
    ];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. The file contains hashes of \
        passwords, no password. Does not reload the broker. --file replaces an existing file, and the user that runs the command \
        becomes its owner: run it as the user of nats-server.";
    const SEE_ALSO: Names = &["consumers create", "consumers rotate-login"];
    const WRITES_FILE: bool = true;

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        let accounts: ConsumerAccounts = api.call(&routes::GET_CONSUMER_ACCOUNTS, &[]).fetch().await?;
        let Some(file) = self.file else {
            return Ok(Accounts { content: Some(accounts.content), file: None });
        };
        replace_file(&file, accounts.content.as_bytes())
            .map_err(|error| CliError::write_failed(&error, &file.display().to_string()))?;
        Ok(Accounts { content: None, file: Some(file) })
    }
}
