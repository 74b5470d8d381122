//! `svc config path`

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::credentials::CredentialStore;
use crate::error::Result;
use crate::output::{Report, Table};

/// Say where this client keeps its files.
#[derive(Args)]
pub(crate) struct PathCommand {}

/// Where the files lie. They need not exist yet.
#[derive(Serialize, JsonSchema)]
struct Places {
    /// The directory of all of them.
    directory: String,
    /// The stored sessions.
    credentials: String,
}

impl Report for Places {
    fn table(&self) -> Table {
        Table::of_fields([
            ("directory", Some(self.directory.clone())),
            ("credentials", Some(self.credentials.clone())),
        ])
    }
}

impl Command for PathCommand {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Files,
            examples: &[("See where sessions are stored", "svc config path")],
            agent_notes: "Works offline. XDG_CONFIG_HOME moves the directory on Unix.",
            see_also: &["auth status"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Places>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let store = CredentialStore::of_this_user()?;
        context.out().print(&Places {
            directory: store.directory().display().to_string(),
            credentials: store.path().display().to_string(),
        })
    }
}
