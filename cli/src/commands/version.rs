//! `svc version`: versions of client and server.

use std::time::Duration;

use clap::Args;
use contract::{identity, routes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::framework::catalog::{self, Examples, Names};
use crate::framework::command::Command;
use crate::framework::context::Context;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::output::{CommandOutput, Table, text};

/// Version of this client.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest wait for the version of the server.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Print the versions of the client and of the server.
///
/// Warns if they belong to different releases. Works without a server, and sends no credential.
#[derive(Args)]
pub(crate) struct Version {
    /// Print only the version of the client, without a request.
    #[arg(long)]
    client: bool,
}

/// Versions of client and server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Versions {
    /// Version of the client.
    version: &'static str,
    /// Version of the command catalog. A new major version means that commands or options were removed.
    catalog_version: &'static str,
    /// Version of the server. Null with --client, and if the server does not answer.
    server_version: Option<String>,
    /// Whether client and server differ in the major or minor version.
    skew: bool,
}

impl CommandOutput for Versions {
    fn table(&self) -> Table {
        Table::fields([
            ("client", Some(text(self.version))),
            ("catalog", Some(text(self.catalog_version))),
            ("server", self.server_version.as_ref().map(text)),
        ])
    }
}

impl Command for Version {
    type Output = Versions;

    const EXAMPLES: Examples = &[
        ("Print the versions of client and server", "svc version"),
        ("Print the version of the client without a request", "svc version --client"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "If the server does not answer within 5 s, `server_version` is null, \
        stderr has a warning with the reason, and the exit status is 0.";
    const SEE_ALSO: Names = &["catalog show"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let server_version = if self.client { None } else { server_version(context).await };
        let skew = server_version.as_deref().is_some_and(|server| release(server) != release(VERSION));
        if let Some(server) = server_version.as_deref().filter(|_| skew) {
            context.out().warn(&format!(
                "client {VERSION} and server {server} differ: use a client of release {}",
                release(server).join(".")
            ));
        }
        let catalog_version = catalog::VERSION;
        Ok(Versions { version: VERSION, catalog_version, server_version, skew })
    }
}

/// Version of the server. Warns if it is unknown.
async fn server_version(context: &Context) -> Option<String> {
    let request = async {
        let api = context.api()?;
        let call = api.call(&routes::GET_VERSION, &[]).fetch::<identity::Version>();
        let answer = tokio::time::timeout(MAX_WAIT.min(context.timeout()), call).await;
        answer.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    };
    match request.await {
        Ok(server) => Some(server.version),
        Err(error) => {
            context.out().warn(&format!("the version of the server is unknown: {}", error.message));
            None
        }
    }
}

/// Major and minor version.
pub(super) fn release(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
}
