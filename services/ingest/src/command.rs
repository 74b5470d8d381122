//! Subcommands of `svc-ingest`.

use std::process::ExitCode;

use bus::StreamsCommand;
use service::config::{Environment, Variables as _};
use service::process::Program as _;

use crate::Ingest;
use crate::config::EventStreamSettings;

/// Subcommands of `svc-ingest`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print or create the streams of events, as configured by the variables of ingest
    #[command(subcommand)]
    Streams(StreamsCommand),
}

impl Command {
    pub(crate) async fn execute(self, environment: &Environment) -> ExitCode {
        let Self::Streams(command) = self;
        let definitions = EventStreamSettings::load(environment).map(|settings| (&settings.profile()).into());
        command.execute(Ingest::NAME, definitions, environment).await
    }
}
