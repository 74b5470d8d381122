//! `svc version`: versions of the client.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{self, HelpGroup, Overlay, Requirement, Routes, schema_of};
use crate::command::Command;
use crate::context::Context;
use crate::error::Result;
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
