//! `svc version`

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{self, Access, Group, Overlay, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Table};

/// Print the version of this client and of its catalog.
#[derive(Args)]
pub(crate) struct Version {}

/// The versions.
#[derive(Serialize, JsonSchema)]
struct Versions {
    /// This client.
    version: &'static str,
    /// Its command catalog: a new major means that something was taken away.
    catalog_version: &'static str,
}

impl Report for Versions {
    fn table(&self) -> Table {
        Table::of_fields([
            ("svc", Some(self.version.to_owned())),
            ("catalog", Some(self.catalog_version.to_owned())),
        ])
    }
}

impl Command for Version {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Offline,
            examples: &[("Print the versions", "svc version")],
            agent_notes: "Works offline, and asks no service for its version.",
            see_also: &["catalog show"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Versions>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        context
            .out()
            .print(&Versions { version: env!("CARGO_PKG_VERSION"), catalog_version: catalog::VERSION })
    }
}
