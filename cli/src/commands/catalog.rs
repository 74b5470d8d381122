//! `svc catalog`: the command catalog.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{
    Document, Errors, Examples, Names, Requirement, SchemaOf, document, format_schema, validation_errors,
};
use crate::commands::{Command, group};
use crate::context::Context;
use crate::error::{ErrorKind, Result};
use crate::output::{CommandOutput, Table};

group!(
    /// Show and validate the command catalog.
    Catalog {
        Show(Show),
        Validate(Validate),
    }
);

/// Print the command catalog as JSON.
#[derive(Args)]
pub(crate) struct Show {}

impl CommandOutput for Document {
    fn table(&self) -> Table {
        match serde_json::to_string_pretty(self) {
            Ok(text) => Table::text(&text),
            // Strings, numbers and maps with string keys always serialize.
            Err(_) => Table::empty(),
        }
    }
}

impl Command for Show {
    type Output = Document;

    const REQUIRES: Requirement = Requirement::Nothing;
    const EXAMPLES: Examples = &[("Print the catalog", "svc catalog show --output json")];
    const AGENT_NOTES: &'static str = "Works offline. Replaces the help of all commands.";
    const SEE_ALSO: Names = &["catalog validate", "version"];

    async fn run(self, context: &Context) -> Result<()> {
        context.out().print(&document(context.tree()))
    }
}

/// Validate a command catalog against the JSON Schema of the format.
#[derive(Args)]
pub(crate) struct Validate {
    /// Catalog file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Result of validating a catalog.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ValidatedCatalog {
    /// Always true; an invalid catalog is an error.
    valid: bool,
    /// Number of commands.
    commands: usize,
}

impl CommandOutput for ValidatedCatalog {
    fn table(&self) -> Table {
        Table::text(&format!("The catalog is valid ({} commands).", self.commands))
    }
}

impl Command for Validate {
    type Output = ValidatedCatalog;

    const REQUIRES: Requirement = Requirement::Nothing;
    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[("Validate a catalog", "svc catalog validate catalog/svc.catalog.json")];
    const AGENT_NOTES: &'static str = "Works offline. The error message lists each violation with its JSON \
        Pointer.";
    const SEE_ALSO: Names = &["catalog show"];
    const INPUT_SCHEMA: Option<SchemaOf> = Some(format_schema);

    async fn run(self, context: &Context) -> Result<()> {
        let path = self.file.display();
        let text = std::fs::read(&self.file)
            .map_err(|error| ErrorKind::InputUnreadable.with_message(format!("{path}: {error}")))?;
        let catalog: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| ErrorKind::InputInvalid.with_message(format!("{path} is not JSON: {error}")))?;
        let errors = validation_errors(&catalog)?;
        if !errors.is_empty() {
            let message = format!("{path} is not a valid command catalog:\n  {}", errors.join("\n  "));
            return Err(ErrorKind::InputInvalid.with_message(message));
        }
        let commands = catalog["commands"].as_array().map_or(0, Vec::len);
        context.out().print(&ValidatedCatalog { valid: true, commands })
    }
}
