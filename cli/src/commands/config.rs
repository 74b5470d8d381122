//! `svc config`: configuration of the client.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{HelpGroup, Overlay, Requirement, Routes, schema_of};
use crate::command::{Command, group};
use crate::context::Context;
use crate::credentials::CredentialStore;
use crate::error::Result;
use crate::output::{CommandOutput, Table};

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
