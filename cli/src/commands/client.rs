//! Commands about the client itself: `svc version` and `svc completion`.

use clap::Args;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{self, Examples, Names, Requirement};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::help;
use crate::output::{CommandOutput, Table, text};

/// Print the versions of the client and its command catalog.
#[derive(Args)]
pub(crate) struct Version {}

/// Versions of the client.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientVersion {
    /// Version of the client.
    version: &'static str,
    /// Version of the command catalog. A new major version means that commands or options were removed.
    catalog_version: &'static str,
}

impl CommandOutput for ClientVersion {
    fn table(&self) -> Table {
        Table::fields([("svc", Some(text(self.version))), ("catalog", Some(text(self.catalog_version)))])
    }
}

impl Command for Version {
    type Output = ClientVersion;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[("Print the versions", "svc version")];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Does not print the version of the service.";
    const SEE_ALSO: Names = &["catalog show"];

    async fn run(self, context: &Context) -> Result<()> {
        context
            .out()
            .print(&ClientVersion { version: env!("CARGO_PKG_VERSION"), catalog_version: catalog::VERSION })
    }
}

/// Print a shell completion script.
#[derive(Args)]
pub(crate) struct Completion {
    /// Shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// A completion script.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompletionScript {
    /// Shell.
    shell: String,
    /// Script.
    script: String,
}

impl CommandOutput for CompletionScript {
    fn table(&self) -> Table {
        Table::text(&self.script)
    }
}

impl Command for Completion {
    type Output = CompletionScript;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[
        ("Print the completion script for bash", "svc completion bash"),
        ("Print the completion script for zsh", "svc completion zsh"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Only useful in an interactive shell.";
    const SEE_ALSO: Names = &["catalog show"];

    async fn run(self, context: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(context.tree()), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        context.out().print(&CompletionScript { shell: self.shell.to_string(), script })
    }
}
