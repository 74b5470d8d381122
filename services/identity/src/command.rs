//! Subcommands of `svc-identity`.

mod breach_set;
mod outbox;
mod trial;

use std::process::ExitCode;

use audit::AuditStreamSettings;
use bus::StreamsCommand;
use database::migrations;
use hashing::{RawToken, SystemEntropy, TokenKind};
use service::config::{Environment, Variables as _};
use service::process::{CommandResult, Program as _, print_line};

pub use breach_set::BreachSetCommand;
pub use outbox::OutboxCommand;
pub use trial::TrialCommand;

use crate::{Identity, MIGRATIONS};

/// Subcommands of `svc-identity`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Migrate the schema `identity`
    #[command(subcommand)]
    Migrate(migrations::Command),
    /// List undelivered outbox messages and retry dead-lettered ones
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Print or create the streams of audit events, as configured by the variables of identity
    #[command(subcommand)]
    Streams(StreamsCommand),
    /// Build the file of breached passwords for `SVC_BREACH_FILE`
    #[command(subcommand)]
    BreachSet(BreachSetCommand),
    /// Prepare a trial installation of the chart
    #[command(subcommand, hide = true)]
    Trial(TrialCommand),
    /// Print a new platform token for `SVC_PLATFORM_TOKEN`
    PlatformToken,
}

impl Command {
    pub(crate) async fn execute(self, environment: &Environment) -> CommandResult {
        match self {
            Self::Migrate(command) => MIGRATIONS.execute(command, environment).await,
            Self::Outbox(command) => command.execute(environment).await,
            Self::Streams(command) => {
                let definitions = AuditStreamSettings::load(environment)?.definitions();
                command.execute(Identity::NAME, [definitions, Vec::new()], environment).await
            }
            Self::BreachSet(command) => command.execute(),
            Self::Trial(command) => command.execute(environment).await,
            Self::PlatformToken => {
                print_line(RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
