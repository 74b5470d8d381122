//! The fixed format of a command catalog, as types and as the JSON Schema that any catalog is checked against.

use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Fault, Result};

/// The JSON Schema of the format, as it is published.
const SCHEMA: &str = include_str!("../../../catalog/command-catalog.v1.schema.json");
/// The schema's own name.
pub(super) const SCHEMA_ID: &str = "https://svc.example/schemas/command-catalog/v1";

/// A catalog.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Which format this is.
    #[serde(rename = "$schema")]
    pub(super) schema: &'static str,
    /// Version of the catalog.
    pub(super) version: &'static str,
    /// Name of the client.
    pub(super) cli: &'static str,
    /// What the client is for.
    pub(super) description: String,
    /// Every command, in the order of the help.
    pub(super) commands: Vec<CommandDescriptor>,
}

/// A command.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CommandDescriptor {
    /// The words that name it, as `auth login`.
    pub(super) name: String,
    /// What it belongs to.
    pub(super) group: &'static str,
    /// How it is typed.
    pub(super) synopsis: String,
    /// What it does.
    pub(super) description: String,
    /// Its options, the global ones last.
    pub(super) options: Vec<CatalogOption>,
    /// Its arguments, in order.
    pub(super) arguments: Vec<CatalogArgument>,
    /// How it can end.
    pub(super) exit_codes: Vec<ExitCode>,
    /// Command lines that show its use.
    pub(super) examples: Vec<Example>,
    /// What an agent should know before it runs the command.
    pub(super) agent_notes: &'static str,
    /// Names of related commands.
    pub(super) see_also: Vec<&'static str>,
    /// What it can fail with.
    pub(super) errors: Vec<CatalogError>,
    /// JSON Schema of what it reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_schema: Option<Value>,
    /// JSON Schema of what it prints with `--output json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Value>,
}

/// An option.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogOption {
    /// As it is typed, with its two hyphens.
    pub(super) flag: String,
    /// `boolean` for a switch, else what its value is; alternatives are separated by `|`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Whether the command needs it.
    pub(super) required: bool,
    /// What it does.
    pub(super) description: String,
    /// What holds when it is left out.
    pub(super) default: Option<String>,
    /// The environment variable that stands in for it.
    pub(super) env: Option<String>,
}

/// A positional argument.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogArgument {
    /// Its name.
    pub(super) name: String,
    /// Whether the command needs it.
    pub(super) required: bool,
    /// What it is.
    pub(super) description: String,
}

/// An exit status.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ExitCode {
    /// The number.
    pub(super) code: u8,
    /// What it says.
    pub(super) meaning: &'static str,
}

/// A command line that shows the use of a command.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Example {
    /// What it does.
    pub(super) description: &'static str,
    /// As it is typed.
    pub(super) command: &'static str,
}

/// What a command can fail with.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CatalogError {
    /// What scripts key on.
    pub(super) code: &'static str,
    /// What went wrong.
    pub(super) message: &'static str,
    /// What to do about it.
    pub(super) remediation: &'static str,
}

/// The JSON Schema of the format.
pub(crate) fn format_schema() -> Value {
    // What is built in is JSON: the tests read it.
    serde_json::from_str(SCHEMA).unwrap_or_default()
}

/// What is wrong with a catalog, each fault with its place; nothing when it is valid.
pub(crate) fn faults_of(catalog: &Value) -> Result<Vec<String>> {
    let defect = |error: jsonschema::ValidationError<'_>| {
        Fault::Defect.because(format!("the built-in schema: {error}"))
    };
    let validator: Validator =
        jsonschema::options().should_validate_formats(true).build(&format_schema()).map_err(defect)?;
    let faults = validator.iter_errors(catalog);
    Ok(faults.map(|fault| format!("{}: {fault}", fault.instance_path())).collect())
}
