//! The fixed format of a command catalog, as types and as JSON Schema.

use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::{ErrorKind, Result};

/// Published JSON Schema of the format.
const SCHEMA: &str = include_str!("../../../catalog/command-catalog.v1.schema.json");
/// `$id` of the schema.
pub(super) const SCHEMA_ID: &str = "https://svc.example/schemas/command-catalog/v1";

/// A command catalog.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// JSON Schema of this format.
    #[serde(rename = "$schema")]
    pub(super) schema: &'static str,
    /// Version of the catalog.
    pub(super) version: &'static str,
    /// Name of the client.
    pub(super) cli: &'static str,
    /// Purpose of the client.
    pub(super) description: String,
    /// All commands, in the order of the help.
    pub(super) commands: Vec<CommandDescriptor>,
}

/// A command.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CommandDescriptor {
    /// Full name, such as `auth login`.
    pub(super) name: String,
    /// Heading in the help.
    pub(super) group: &'static str,
    /// Usage.
    pub(super) synopsis: String,
    /// Help text.
    pub(super) description: String,
    /// Options, global options last.
    pub(super) options: Vec<CatalogOption>,
    /// Positional arguments, in order.
    pub(super) arguments: Vec<CatalogArgument>,
    /// Possible exit statuses.
    pub(super) exit_codes: Vec<ExitCode>,
    /// Example command lines.
    pub(super) examples: Vec<Example>,
    /// Notes for an agent that runs the command.
    pub(super) agent_notes: &'static str,
    /// Names of related commands.
    pub(super) see_also: Vec<&'static str>,
    /// Possible errors.
    pub(super) errors: Vec<CatalogError>,
    /// JSON Schema of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_schema: Option<Value>,
    /// JSON Schema of the data printed with `--output json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Value>,
}

/// An option.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogOption {
    /// Name with two hyphens.
    pub(super) flag: String,
    /// `boolean` for a switch, else the type of the value; alternatives are separated by `|`.
    #[serde(rename = "type")]
    pub(super) value_type: String,
    /// Whether the option is required.
    pub(super) required: bool,
    /// Help text.
    pub(super) description: String,
    /// Default value.
    pub(super) default: Option<String>,
    /// Environment variable that sets the option.
    pub(super) env: Option<String>,
}

/// A positional argument.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogArgument {
    /// Name in the usage.
    pub(super) name: String,
    /// Whether the argument is required.
    pub(super) required: bool,
    /// Help text.
    pub(super) description: String,
}

/// An exit status.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ExitCode {
    /// Number.
    pub(super) code: u8,
    /// Meaning.
    pub(super) meaning: &'static str,
}

/// An example command line.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Example {
    /// What the example does.
    pub(super) description: &'static str,
    /// Command line.
    pub(super) command: &'static str,
}

/// A possible error.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogError {
    /// Stable code for scripts.
    pub(super) code: &'static str,
    /// What happened.
    pub(super) message: &'static str,
    /// What to do about it.
    pub(super) remediation: &'static str,
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
