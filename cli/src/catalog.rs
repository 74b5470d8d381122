//! The command catalog: the clap definition of each command and its constants, in the fixed format of version 1, as types and
//! as JSON Schema.

mod entry;
#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use self::entry::PossibleError;
use crate::error::{ErrorKind, Exit, Result};

pub(crate) use entry::{
    CatalogEntry, Errors, Examples, HelpGroup, Names, Requirement, Routes, SchemaOf, schema_of,
};

/// Version of the catalog of this client. Removing or renaming a command, option or argument requires a new major version;
/// adding one requires a new minor version.
pub(crate) const VERSION: &str = "1.7.0";

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

/// Catalog of the commands.
pub(crate) fn document(tree: CommandTree) -> Document {
    let mut root = (tree.command)();
    root.build();
    let commands = leaves(&root).into_iter().zip((tree.entries)());
    Document {
        schema: SCHEMA_ID,
        version: VERSION,
        cli: "svc",
        description: plain(root.get_about()),
        commands: commands.map(|((name, command), entry)| describe(name, command, &entry)).collect(),
    }
}

/// Commands without subcommands and their full names, in the order of the catalog.
pub(crate) fn leaves(root: &Command) -> Vec<(String, &Command)> {
    fn collect<'a>(command: &'a Command, path: &str, leaves: &mut Vec<(String, &'a Command)>) {
        for child in command.get_subcommands() {
            let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
            if child.has_subcommands() {
                collect(child, &name, leaves);
            } else {
                leaves.push((name, child));
            }
        }
    }
    let mut leaves = Vec::new();
    collect(root, "", &mut leaves);
    leaves
}

fn describe(name: String, command: &Command, entry: &CatalogEntry) -> CommandDescriptor {
    let errors = entry.possible_errors();
    let examples =
        entry.examples.iter().map(|&(description, command)| Example { description, command }).collect();
    CommandDescriptor {
        group: HelpGroup::of(&name).name(),
        synopsis: synopsis(command),
        description: plain(command.get_long_about().or(command.get_about())),
        options: options(command),
        arguments: command.get_positionals().map(argument).collect(),
        exit_codes: exit_codes(&errors),
        examples,
        agent_notes: entry.agent_notes,
        see_also: entry.see_also.to_vec(),
        errors: errors.into_iter().map(catalog_error).collect(),
        input_schema: entry.input_schema.map(|schema| schema()),
        output_schema: Some((entry.output_schema)()),
        name,
    }
}

/// Exit statuses of the errors, and of success.
fn exit_codes(errors: &[PossibleError]) -> Vec<ExitCode> {
    let mut exits: Vec<Exit> = errors.iter().map(|error| error.exit()).collect();
    exits.push(Exit::Success);
    exits.sort_unstable();
    exits.dedup();
    exits.into_iter().map(|exit| ExitCode { code: exit.code(), meaning: exit.meaning() }).collect()
}

fn catalog_error(error: PossibleError) -> CatalogError {
    CatalogError { code: error.code(), message: error.message(), remediation: error.remediation() }
}

/// Options of the command, then the global options.
fn options(command: &Command) -> Vec<CatalogOption> {
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    let (global, own): (Vec<_>, Vec<_>) = options.partition(|arg| arg.is_global_set());
    own.into_iter().chain(global).filter_map(option).collect()
}

fn option(arg: &Arg) -> Option<CatalogOption> {
    let flag = arg.get_long().filter(|long| !matches!(*long, "help" | "version"))?;
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    Some(CatalogOption {
        flag: format!("--{flag}"),
        value_type: if switch { "boolean".to_owned() } else { value_type(arg) },
        required: arg.is_required_set(),
        description: plain(arg.get_help()),
        default: if switch {
            Some("false".to_owned())
        } else {
            Some(defaults.join(",")).filter(|it| !it.is_empty())
        },
        env: arg.get_env().map(|name| name.to_string_lossy().into_owned()),
    })
}

fn value_type(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() {
        return values.join("|");
    }
    let parsed = arg.get_value_parser().type_id();
    let is = |type_id| parsed == type_id;
    let name = if is(TypeId::of::<u32>()) || is(TypeId::of::<usize>()) {
        "integer"
    } else if is(TypeId::of::<Duration>()) {
        "duration"
    } else if is(TypeId::of::<PathBuf>()) {
        "path"
    } else if is(TypeId::of::<Uuid>()) || is(TypeId::of::<tenancy::UserId>()) {
        "uuid"
    } else {
        "string"
    };
    name.to_owned()
}

fn argument(arg: &Arg) -> CatalogArgument {
    CatalogArgument {
        name: arg
            .get_value_names()
            .and_then(|names| names.first())
            .map_or_else(|| arg.get_id().to_string(), ToString::to_string),
        required: arg.is_required_set(),
        description: plain(arg.get_help()),
    }
}

/// Usage of the command without global options.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
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
