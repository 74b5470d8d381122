//! Delivery and position of a consumer, and the accounts of all consumers at the broker.

use clap::Args;
use contract::consumers::{Consumer, ConsumerAccounts, ConsumerName, ConsumerStart, ResetConsumer};
use contract::routes;

use crate::framework::catalog::{Errors, Examples, Names, Requirement, Routes};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table};

/// Stop the delivery of events to a consumer.
#[derive(Args)]
pub(crate) struct Pause {
    /// Name of the consumer.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
}

impl Command for Pause {
    type Output = Consumer;

    const REQUIRES: Requirement = Requirement::PlatformToken;
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
#[derive(Args)]
pub(crate) struct Resume {
    /// Name of the consumer.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
}

impl Command for Resume {
    type Output = Consumer;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::RESUME_CONSUMER]);
    const EXAMPLES: Examples = &[("Continue a consumer", "svc consumers resume archive")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE.";
    const SEE_ALSO: Names = &["consumers pause"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        api.call(&routes::RESUME_CONSUMER, &[&self.name]).fetch().await
    }
}

/// Let a consumer read from another event.
///
/// It reads all events from there again, also those that it has handled, or skips those before. Asks for confirmation.
#[derive(Args)]
pub(crate) struct Reset {
    /// Name of the consumer.
    #[arg(value_name = "NAME")]
    name: ConsumerName,
    /// Next event: `all` stored events, `new` ones only, or those since a time such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "START")]
    to: ConsumerStart,
}

impl Command for Reset {
    type Output = Consumer;

    const REQUIRES: Requirement = Requirement::PlatformToken;
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
pub(crate) struct Config {}

impl CommandOutput for ConsumerAccounts {
    fn table(&self) -> Table {
        Table::text(&self.content)
    }
}

impl Command for Config {
    type Output = ConsumerAccounts;

    const REQUIRES: Requirement = Requirement::PlatformToken;
    const ROUTES: Routes = Routes::Only(&[&routes::GET_CONSUMER_ACCOUNTS]);
    const EXAMPLES: Examples = &[("Print the file for the broker", "svc consumers config")];
    const AGENT_NOTES: &'static str = "Requires SVC_PLATFORM_TOKEN or SVC_PLATFORM_TOKEN_FILE. The file contains hashes of \
        passwords, no password.";
    const SEE_ALSO: Names = &["consumers create", "consumers rotate-login"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let api = context.connect(Self::REQUIRES).await?;
        api.call(&routes::GET_CONSUMER_ACCOUNTS, &[]).fetch().await
    }
}
