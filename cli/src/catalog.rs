//! The command catalog: the clap definition of each command and its constants, in the fixed format of version 1, as types and
//! as JSON Schema.

mod build;
mod entry;
#[cfg(test)]
mod tests;

use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::{ErrorKind, Result};

pub(crate) use build::{document, leaves};
pub(crate) use entry::{
    CatalogEntry, Errors, Examples, HelpGroup, Names, Requirement, Routes, SchemaOf, schema_of,
};

/// Version of the catalog of this client. Removing or renaming a command, option or argument requires a new major version;
/// adding one requires a new minor version.
pub(crate) const VERSION: &str = "1.3.0";

/// All commands of the client: their clap definition, and their constants in the same order.
#[derive(Clone, Copy)]
pub(crate) struct CommandTree {
    pub(crate) command: fn() -> clap::Command,
    pub(crate) entries: fn() -> Vec<CatalogEntry>,
}

/// Published JSON Schema of the format.
const SCHEMA: &str = include_str!("../../catalog/command-catalog.v1.schema.json");
/// `$id` of the schema.
const SCHEMA_ID: &str = "https://svc.example/schemas/command-catalog/v1";

/// A command catalog.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// JSON Schema of this format.
    #[serde(rename = "$schema")]
    schema: &'static str,
    /// Version of the catalog.
    version: &'static str,
    /// Name of the client.
    cli: &'static str,
    /// Purpose of the client.
    description: String,
    /// All commands, in the order of the help.
    commands: Vec<CommandDescriptor>,
}

/// A command.
#[derive(Debug, Serialize, JsonSchema)]
struct CommandDescriptor {
    /// Full name, such as `auth login`.
    name: String,
    /// Heading in the help.
    group: &'static str,
    /// Usage.
    synopsis: String,
    /// Help text.
    description: String,
    /// Options, global options last.
    options: Vec<CatalogOption>,
    /// Positional arguments, in order.
    arguments: Vec<CatalogArgument>,
    /// Possible exit statuses.
    exit_codes: Vec<ExitCode>,
    /// Example command lines.
    examples: Vec<Example>,
    /// Notes for an agent that runs the command.
    agent_notes: &'static str,
    /// Names of related commands.
    see_also: Vec<&'static str>,
    /// Possible errors.
    errors: Vec<CatalogError>,
    /// JSON Schema of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    /// JSON Schema of the data printed with `--output json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
}

/// An option.
#[derive(Debug, Serialize, JsonSchema)]
struct CatalogOption {
    /// Name with two hyphens.
    flag: String,
    /// `boolean` for a switch, else the type of the value; alternatives are separated by `|`.
    #[serde(rename = "type")]
    value_type: String,
    /// Whether the option is required.
    required: bool,
    /// Help text.
    description: String,
    /// Default value.
    default: Option<String>,
    /// Environment variable that sets the option.
    env: Option<String>,
}

/// A positional argument.
#[derive(Debug, Serialize, JsonSchema)]
struct CatalogArgument {
    /// Name in the usage.
    name: String,
    /// Whether the argument is required.
    required: bool,
    /// Help text.
    description: String,
}

/// An exit status.
#[derive(Debug, Serialize, JsonSchema)]
struct ExitCode {
    /// Number.
    code: u8,
    /// Meaning.
    meaning: &'static str,
}

/// An example command line.
#[derive(Debug, Serialize, JsonSchema)]
struct Example {
    /// What the example does.
    description: &'static str,
    /// Command line.
    command: &'static str,
}

/// A possible error.
#[derive(Debug, Serialize, JsonSchema)]
struct CatalogError {
    /// Stable code for scripts.
    code: &'static str,
    /// What happened.
    message: &'static str,
    /// What to do about it.
    remediation: &'static str,
}

/// JSON Schema of the format.
pub(crate) fn format_schema() -> Value {
    // The tests check that the embedded schema is JSON.
    serde_json::from_str(SCHEMA).unwrap_or_default()
}

/// Checks a catalog against the format. Returns each violation with its JSON Pointer.
pub(crate) fn validation_errors(catalog: &Value) -> Result<Vec<String>> {
    let defect = |error: jsonschema::ValidationError<'_>| {
        ErrorKind::Defect.with_message(format!("invalid embedded schema: {error}"))
    };
    let validator: Validator =
        jsonschema::options().should_validate_formats(true).build(&format_schema()).map_err(defect)?;
    let errors = validator.iter_errors(catalog);
    Ok(errors.map(|error| format!("{}: {error}", error.instance_path())).collect())
}
