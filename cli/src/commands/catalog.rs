//! `svc catalog`: the description of all commands for programs.

use std::borrow::Cow;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::Args;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::framework::catalog::{
    CommandDescriptor, CommandTree, Document, Errors, Examples, Names, SchemaOf, Summary, descriptor,
    document, format_schema, leaves, summary, to_text, validation_errors,
};
use crate::framework::command::{Command, group};
use crate::framework::context::Context;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::input::{open, read_stdin, run_blocking};
use crate::framework::output::{CommandOutput, Table};

group!(
    /// Show and validate the command catalog.
    Catalog {
        Show(Show),
        Validate(Validate),
    }
);

/// Print the command catalog, or one command, as JSON.
///
/// Each command is complete in itself: all options, exit codes and errors. With the name of a command, prints only this one.
#[derive(Args)]
pub(crate) struct Show {
    /// Name of a command, such as `auth login` [default: all commands].
    #[arg(conflicts_with = "summary")]
    command: Vec<String>,
    /// Print only names, synopses, groups and purposes.
    #[arg(long)]
    summary: bool,
    /// Add fields that the format does not have: effect and variables of a command, exit code of an error, schemas of files.
    #[arg(long, conflicts_with = "summary")]
    extended: bool,
}

/// What `catalog show` prints.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Shown {
    /// The catalog.
    Document(Document),
    /// With COMMAND: the complete descriptor of the command.
    Command(Box<CommandDescriptor>),
    /// With --summary: all commands in brief.
    Summary(Summary),
}

/// The format has its own schema, which `catalog validate` reads.
impl JsonSchema for Shown {
    fn schema_name() -> Cow<'static, str> {
        "Shown".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The input_schema of `catalog validate` describes all fields.",
            "type": "object",
            "anyOf": [
                {"description": "The catalog.", "required": ["$schema", "version", "cli", "description", "commands"]},
                {
                    "description": "With COMMAND: one of `commands`, complete.",
                    "required": ["name", "synopsis", "options", "arguments", "exit_codes", "errors"],
                },
                {
                    "description": "With --summary: `commands` have name, group, synopsis and description.",
                    "required": ["version", "cli", "description", "commands"],
                },
            ],
        })
    }
}

impl CommandOutput for Shown {
    fn table(&self) -> Table {
        match self {
            Self::Summary(summary) => Table::items(&summary.commands),
            // Strings, numbers and maps with string keys always serialize.
            shown => to_text(shown).map_or_else(|_| Table::empty(), |text| Table::text(&text)),
        }
    }

    fn json(&self) -> serde_json::Result<String> {
        to_text(self)
    }
}

impl Command for Show {
    type Output = Shown;

    const EXAMPLES: Examples = &[
        ("List all commands in brief", "svc catalog show --summary"),
        ("Print everything about one command", "svc catalog show auth login"),
        ("Print the whole catalog", "svc catalog show --output json"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. Start with --summary (9 KB), then print the commands \
        that you need; the whole catalog is large.";
    const SEE_ALSO: Names = &["catalog validate", "version"];

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let tree = context.tree();
        Ok(if self.summary {
            Shown::Summary(summary(tree))
        } else if self.command.is_empty() {
            Shown::Document(document(tree, self.extended))
        } else {
            let name = self.command.join(" ");
            // The name as in a command line.
            let name = name.strip_prefix("svc ").unwrap_or(&name);
            let descriptor =
                descriptor(tree, name, self.extended).ok_or_else(|| unknown_command(tree, name))?;
            Shown::Command(Box::new(descriptor))
        })
    }
}

/// Names the commands of a group.
fn unknown_command(tree: CommandTree, name: &str) -> CliError {
    let root = (tree.command)();
    let prefix = format!("{name} ");
    let members: Vec<_> = leaves(&root)
        .into_iter()
        .filter(|(member, _)| member.starts_with(&prefix))
        .map(|(member, _)| format!("`{member}`"))
        .collect();
    if members.is_empty() {
        let error = ErrorKind::Usage.with_message(format!("there is no command `{name}`"));
        return error.with_remediation("List the commands: `svc catalog show --summary`.");
    }
    ErrorKind::Usage
        .with_message(format!("`{name}` is a group of commands"))
        .with_remediation(format!("Pass one of its commands: {}.", members.join(", ")))
}

/// Validate a command catalog against the JSON Schema of the format.
#[derive(Args)]
pub(crate) struct Validate {
    /// Catalog file; `-` reads standard input.
    file: PathBuf,
}

/// Result of validating a catalog.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ValidatedCatalog {
    /// Always true; an invalid catalog is an error.
    valid: bool,
    /// Number of descriptors.
    commands: usize,
}

impl CommandOutput for ValidatedCatalog {
    fn table(&self) -> Table {
        Table::message(&format!("The catalog is valid ({} descriptors).", self.commands))
    }
}

impl Command for Validate {
    type Output = ValidatedCatalog;

    const ERRORS: Errors = &[ErrorKind::InputUnreadable, ErrorKind::InputInvalid];
    const EXAMPLES: Examples = &[
        ("Validate a catalog", "svc catalog validate catalog/svc.catalog.json"),
        ("Validate standard input", "svc catalog validate - < catalog/svc.catalog.json"),
    ];
    const READ_ONLY: bool = true;
    const AGENT_NOTES: &'static str = "Works offline. The error message lists each violation with its JSON \
        Pointer.";
    const SEE_ALSO: Names = &["catalog show"];
    const INPUT_SCHEMA: Option<SchemaOf> = Some(format_schema);

    async fn run(self, context: &Context) -> Result<Self::Output> {
        let (text, name) = if self.file.as_os_str() == "-" {
            (read_stdin("catalog", context.out()).await?, "standard input".to_owned())
        } else {
            let name = self.file.display().to_string();
            let read = move || {
                let unreadable = |error: io::Error| {
                    ErrorKind::InputUnreadable.with_message(format!("{}: {error}", self.file.display()))
                };
                let mut text = Vec::new();
                open(&self.file).map_err(unreadable)??.read_to_end(&mut text).map_err(unreadable)?;
                Ok(text)
            };
            (run_blocking(read).await?, name)
        };
        let catalog: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| ErrorKind::InputInvalid.with_message(format!("{name} is not JSON: {error}")))?;
        let errors = validation_errors(&catalog)?;
        if !errors.is_empty() {
            let message = format!("{name} is not a valid command catalog:\n  {}", errors.join("\n  "));
            return Err(ErrorKind::InputInvalid.with_message(message));
        }
        let commands = catalog["commands"].as_array().map_or(0, Vec::len);
        Ok(ValidatedCatalog { valid: true, commands })
    }
}
