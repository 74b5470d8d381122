//! Subcommands of `svc-ingest`.

use std::path::PathBuf;
use std::process::ExitCode;

use bus::NatsSettings;
use service::chain;
use service::config::{ConfigErrors, Environment, Variables as _};
use service::process::report_config_errors;

use crate::config::StreamSettings;

/// Subcommands of `svc-ingest`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print or create the streams, as configured by the variables of ingest
    #[command(subcommand)]
    Streams(StreamsCommand),
}

/// Subcommands of `svc-ingest streams`.
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

enum Failure {
    Config(ConfigErrors),
    Other(String),
}

impl Command {
    pub(crate) async fn execute(self, environment: &Environment) -> ExitCode {
        let Self::Streams(command) = self;
        match command.execute(environment).await {
            Ok(message) => {
                println!("{message}");
                ExitCode::SUCCESS
            }
            Err(Failure::Config(errors)) => report_config_errors(&errors),
            Err(Failure::Other(error)) => {
                eprintln!("svc-ingest: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

impl StreamsCommand {
    async fn execute(self, environment: &Environment) -> Result<String, Failure> {
        let profile = StreamSettings::load(environment).map_err(Failure::Config)?.profile();
        let definitions = profile.definitions();
        let configs: Vec<_> = definitions.iter().map(bus::StreamDefinition::config).collect();
        let Self::Apply { nats_url_file } = self else {
            return serde_json::to_string_pretty(&configs).map_err(|error| Failure::Other(error.to_string()));
        };
        let mut environment = environment.clone();
        if let Some(file) = nats_url_file {
            let url = std::fs::read_to_string(&file)
                .map_err(|error| Failure::Other(format!("cannot read {}: {error}", file.display())))?;
            environment = environment.with([("SVC_NATS_URL", url.trim())]);
        }
        let nats = NatsSettings::load(&environment).map_err(Failure::Config)?.of_service("ingest");
        let client = bus::connect(&nats).await.map_err(|error| Failure::Other(chain(&error)))?;
        let context = async_nats::jetstream::new(client);
        bus::ensure(&context, &profile).await.map_err(|error| Failure::Other(chain(&error)))?;
        Ok(format!("{} streams exist with this configuration", configs.len()))
    }
}
