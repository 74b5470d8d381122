//! `svc catalog show`

use clap::Args;

use crate::catalog::{Access, Document, Group, Overlay, document, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::Result;
use crate::output::{Report, Table};

/// Print the command catalog, a JSON document whatever the format.
#[derive(Args)]
pub(crate) struct Show {}

impl Report for Document {
    fn table(&self) -> Table {
        match serde_json::to_string_pretty(self) {
            Ok(text) => Table::of_text(&text),
            // A document of strings, numbers and maps always is JSON.
            Err(_) => Table::nothing(),
        }
    }
}

impl Command for Show {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Offline,
            examples: &[("Print the catalog", "svc catalog show --output json")],
            agent_notes: "Works offline. Read it once, instead of the help of every command.",
            see_also: &["catalog validate", "version"],
            errors: &[],
            input_schema: None,
            output_schema: Some(schema_of::<Document>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        context.out().print(&document())
    }
}
