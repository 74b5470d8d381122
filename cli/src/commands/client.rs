//! Commands about the client itself: `svc version`, `svc config` and `svc completion`.

use clap::Args;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{self, HelpGroup, Overlay, Requirement, Routes, schema_of};
use crate::commands::{Command, group};
use crate::context::Context;
use crate::credentials::CredentialStore;
use crate::error::Result;
use crate::help;
use crate::output::{CommandOutput, Table};

/// Print the versions of the client and its command catalog.
#[derive(Args)]
pub(crate) struct Version {}

/// Versions of the client.
#[derive(Serialize, JsonSchema)]
struct ClientVersion {
    /// Version of the client.
    version: &'static str,
    /// Version of the command catalog. A new major version means that commands or options were removed.
    catalog_version: &'static str,
}

impl CommandOutput for ClientVersion {
    fn table(&self) -> Table {
        Table::fields([
            ("svc", Some(self.version.to_owned())),
            ("catalog", Some(self.catalog_version.to_owned())),
        ])
    }
}

impl Command for Version {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Tools,
        requires: Requirement::Nothing,
        routes: Routes::NONE,
        errors: &[],
        examples: &[("Print the versions", "svc version")],
        agent_notes: "Works offline. Does not print the version of the service.",
        see_also: &["catalog show"],
        input_schema: None,
        output_schema: Some(schema_of::<ClientVersion>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        context
            .out()
            .print(&ClientVersion { version: env!("CARGO_PKG_VERSION"), catalog_version: catalog::VERSION })
    }
}

group!(
    /// Show the configuration of this client.
    Config {
        Path(PathCommand),
    }
);

/// Print the paths of the client's files.
#[derive(Args)]
pub(crate) struct PathCommand {}

/// Paths of the client's files, which may not exist.
#[derive(Serialize, JsonSchema)]
struct ConfigPaths {
    /// Configuration directory.
    directory: String,
    /// Credentials file.
    credentials: String,
}

impl CommandOutput for ConfigPaths {
    fn table(&self) -> Table {
        Table::fields([
            ("directory", Some(self.directory.clone())),
            ("credentials", Some(self.credentials.clone())),
        ])
    }
}

impl Command for PathCommand {
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Tools,
        requires: Requirement::ConfigDirectory,
        routes: Routes::NONE,
        errors: &[],
        examples: &[("Print where sessions are stored", "svc config path")],
        agent_notes: "Works offline. On Unix, XDG_CONFIG_HOME changes the directory.",
        see_also: &["auth status"],
        input_schema: None,
        output_schema: Some(schema_of::<ConfigPaths>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let store = CredentialStore::for_current_user()?;
        context.out().print(&ConfigPaths {
            directory: store.directory().display().to_string(),
            credentials: store.path().display().to_string(),
        })
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
struct CompletionScript {
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
    const OVERLAY: Overlay = Overlay {
        group: HelpGroup::Tools,
        requires: Requirement::Nothing,
        routes: Routes::NONE,
        errors: &[],
        examples: &[
            ("Print the completion script for bash", "svc completion bash"),
            ("Print the completion script for zsh", "svc completion zsh"),
        ],
        agent_notes: "Works offline. Only useful in an interactive shell.",
        see_also: &["catalog show"],
        input_schema: None,
        output_schema: Some(schema_of::<CompletionScript>),
    };

    async fn run(self, context: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut help::command(context.tree()), "svc", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        context.out().print(&CompletionScript { shell: self.shell.to_string(), script })
    }
}
