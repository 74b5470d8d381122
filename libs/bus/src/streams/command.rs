//! The subcommand `streams` of the services that manage streams.

use std::path::PathBuf;
use std::process::ExitCode;

use service::chain;
use service::config::{ConfigErrors, Environment, Variables as _};
use service::process::report_config_errors;

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

/// The streams that a command handles.
pub struct AccountStreams {
    /// Those of the account of the service.
    pub own: Vec<StreamDefinition>,
    /// Those of the account `FACADE`.
    pub facade: Vec<StreamDefinition>,
}

impl From<Vec<StreamDefinition>> for AccountStreams {
    fn from(own: Vec<StreamDefinition>) -> Self {
        Self { own, facade: Vec::new() }
    }
}

enum Failure {
    Config(ConfigErrors),
    Other(String),
}

impl StreamsCommand {
    /// Runs the command with the streams of a service, which its variables define. Prints the result.
    pub async fn execute(
        self,
        service: &str,
        definitions: Result<impl Into<AccountStreams>, ConfigErrors>,
        environment: &Environment,
    ) -> ExitCode {
        let result = match definitions {
            Ok(definitions) => self.try_execute(service, definitions.into(), environment).await,
            Err(errors) => Err(Failure::Config(errors)),
        };
        match result {
            Ok(message) => {
                println!("{message}");
                ExitCode::SUCCESS
            }
            Err(Failure::Config(errors)) => report_config_errors(&errors),
            Err(Failure::Other(error)) => {
                eprintln!("svc-{service}: {error}");
                ExitCode::FAILURE
            }
        }
    }

    async fn try_execute(
        self,
        service: &str,
        definitions: AccountStreams,
        environment: &Environment,
    ) -> Result<String, Failure> {
        let AccountStreams { own: definitions, facade } = definitions;
        let Self::Apply { nats_url_file } = self else {
            let configs: Vec<_> = definitions.iter().map(StreamDefinition::config).collect();
            return serde_json::to_string_pretty(&configs).map_err(|error| Failure::Other(error.to_string()));
        };
        let mut environment = environment.clone();
        if let Some(file) = nats_url_file {
            let url = std::fs::read_to_string(&file)
                .map_err(|error| Failure::Other(format!("cannot read {}: {error}", file.display())))?;
            environment = environment.with([("SVC_NATS_URL", url.trim())]);
        }
        let nats = NatsSettings::load(&environment).map_err(Failure::Config)?.for_service(service);
        let client = connect(&nats).await.map_err(|error| Failure::Other(chain(&error)))?;
        let count = definitions.len();
        for (prefix, definitions) in [(API_PREFIX, definitions), (FACADE_API_PREFIX, facade)] {
            let context = async_nats::jetstream::with_prefix(client.clone(), prefix);
            ensure(&context, definitions).await.map_err(|error| Failure::Other(chain(&error)))?;
        }
        Ok(format!("{count} streams exist with this configuration"))
    }
}
