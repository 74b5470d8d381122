//! The subcommand `streams` of the services that manage streams.

use std::path::PathBuf;
use std::process::ExitCode;

use service::config::{Environment, Variables as _};
use service::process::{CommandResult, print_line};

use super::{API_PREFIX, FACADE_API_PREFIX, StreamDefinition};
use crate::{NatsSettings, connect, ensure};

/// Subcommands of `streams`.
#[derive(clap::Subcommand)]
pub enum StreamsCommand {
    /// Print the configuration of the streams as a JSON array; `nats stream add --config` reads one element
    Print,
    /// Create missing streams, and update retention, size and compression of existing ones
    Apply {
        /// File with the URL of a NATS user that may create streams [default: `SVC_NATS_URL`]
        #[arg(long, value_name = "FILE")]
        nats_url_file: Option<PathBuf>,
    },
}

impl StreamsCommand {
    /// Runs the command with the streams of a service, which its variables define: those of its account, and those of the account
    /// `FACADE`. Prints the result.
    ///
    /// # Errors
    /// The configuration is invalid, the broker cannot be reached, or a stream has another configuration that cannot be changed.
    pub async fn execute(
        self,
        service: &str,
        [definitions, facade]: [Vec<StreamDefinition>; 2],
        environment: &Environment,
    ) -> CommandResult {
        let Self::Apply { nats_url_file } = self else {
            let configs: Vec<_> = definitions.iter().map(StreamDefinition::config).collect();
            print_line(&serde_json::to_string_pretty(&configs)?)?;
            return Ok(ExitCode::SUCCESS);
        };
        let mut environment = environment.clone();
        if let Some(file) = nats_url_file {
            let url = std::fs::read_to_string(&file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            environment = environment.with([("SVC_NATS_URL", url.trim())]);
        }
        let client = connect(&NatsSettings::load(&environment)?.for_service(service)).await?;
        let count = definitions.len();
        for (prefix, definitions) in [(API_PREFIX, definitions), (FACADE_API_PREFIX, facade)] {
            let context = async_nats::jetstream::with_prefix(client.clone(), prefix);
            ensure(&context, definitions).await?;
        }
        print_line(&format!("{count} streams exist with this configuration"))?;
        Ok(ExitCode::SUCCESS)
    }
}
