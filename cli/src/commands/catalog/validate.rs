//! `svc catalog validate`

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Access, Failure, Group, Overlay, faults_of, format_schema, schema_of};
use crate::commands::Command;
use crate::context::Context;
use crate::error::{Fault, Result};
use crate::output::{Report, Table};

/// Check a command catalog against the format that all catalogs have.
#[derive(Args)]
pub(crate) struct Validate {
    /// The catalog.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// A catalog that was found valid.
#[derive(Serialize, JsonSchema)]
struct Validated {
    /// Always true: an invalid one is an error.
    valid: bool,
    /// How many commands it describes.
    commands: usize,
}

impl Report for Validated {
    fn table(&self) -> Table {
        Table::of_text(&format!("The catalog is valid and describes {} commands.", self.commands))
    }
}

impl Command for Validate {
    fn overlay() -> Overlay {
        Overlay {
            group: Group::Tools,
            access: Access::Offline,
            examples: &[("Check a catalog", "svc catalog validate catalog/svc.catalog.json")],
            agent_notes: "Works offline. Every fault is told with its place, as a JSON Pointer.",
            see_also: &["catalog show"],
            errors: &[Failure::Local(Fault::InputUnreadable), Failure::Local(Fault::InputInvalid)],
            input_schema: Some(format_schema),
            output_schema: Some(schema_of::<Validated>),
        }
    }

    async fn run(self, context: &Context) -> Result<()> {
        let shown = self.file.display();
        let text = std::fs::read(&self.file)
            .map_err(|error| Fault::InputUnreadable.because(format!("{shown}: {error}")))?;
        let catalog: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| Fault::InputInvalid.because(format!("{shown} is not JSON: {error}")))?;
        let faults = faults_of(&catalog)?;
        if !faults.is_empty() {
            let faults = faults.join("\n  ");
            return Err(Fault::InputInvalid.because(format!("{shown} is no command catalog:\n  {faults}")));
        }
        let commands = catalog["commands"].as_array().map_or(0, Vec::len);
        context.out().print(&Validated { valid: true, commands })
    }
}
