//! The command catalog: the clap definition of each command and its constants, in the fixed format of version 1, as types and
//! as JSON Schema.
//!
//! What most commands share (global options, errors and exit statuses) is in the first descriptor, that of `svc` itself.
//! Each other descriptor lists only its own part. [`complete_descriptor`] joins both.

mod entry;
mod layout;
mod schema;
mod summary;
#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use jsonschema::Validator;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use self::entry::{PossibleError, Variable, common_errors};
use self::layout::layout;
use crate::framework::error::{ErrorKind, Exit, ProblemText, Result};

pub(crate) use entry::{
    CatalogEntry, Errors, Examples, HelpGroup, Names, OptionSchemas, Requirement, Routes, SchemaOf,
};
pub(crate) use schema::{schema_of, text_input};
pub(crate) use summary::{Summary, summary};

/// Version of the catalog of this client. Removing or renaming a command, option or argument requires a new major version;
/// adding one requires a new minor version.
pub(crate) const VERSION: &str = "1.17.0";

/// All commands of the client: their clap definition, and their constants in the same order.
#[derive(Clone, Copy)]
pub(crate) struct CommandTree {
    pub(crate) command: fn() -> clap::Command,
    pub(crate) entries: fn() -> Vec<CatalogEntry>,
}

/// Published JSON Schema of the format.
const SCHEMA: &str = include_str!("../../../catalog/command-catalog.v1.schema.json");
/// `$id` of the schema.
const SCHEMA_ID: &str = "urn:svc:schemas/command-catalog/v1";
/// Name of the client, and of the descriptor of what all commands share.
const ROOT: &str = "svc";

/// A command catalog.
#[derive(Debug, Serialize)]
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
    /// `svc` itself, then all commands in the order of the help. Options, exit codes, errors and environment of `svc` apply to all.
    commands: Vec<CommandDescriptor>,
}

/// A command.
#[derive(Debug, Serialize)]
pub(crate) struct CommandDescriptor {
    /// Full name, such as `auth login`.
    name: String,
    /// Heading in the help.
    group: &'static str,
    /// Usage.
    synopsis: String,
    /// Help text.
    description: String,
    /// Options.
    options: Vec<CatalogOption>,
    /// Positional arguments, in order.
    arguments: Vec<CatalogArgument>,
    /// Variables that contain a credential, or change the behavior without being an option. The first one that is set is used.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    environment: &'static [Variable],
    /// Whether the command changes nothing, neither in the service nor in files of the client.
    read_only: bool,
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
    /// JSON Schema of standard input or of the file that the command reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    /// JSON Schema of the data printed with `--output json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
}

/// An option.
#[derive(Debug, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    /// Environment variable that sets the option.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<String>,
    /// JSON Schema of a line of the file that the option names.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Value>,
}

/// A positional argument.
#[derive(Debug, Serialize)]
struct CatalogArgument {
    /// Name in the usage.
    name: String,
    /// Whether the argument is required.
    required: bool,
    /// Help text.
    description: String,
}

/// An exit status.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ExitCode {
    /// Number.
    code: u8,
    /// Meaning.
    meaning: &'static str,
}

/// An example command line.
#[derive(Debug, Serialize)]
struct Example {
    /// What the example does.
    description: &'static str,
    /// Command line.
    command: &'static str,
}

/// A possible error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CatalogError {
    /// Stable code for scripts.
    code: &'static str,
    /// What happened.
    message: &'static str,
    /// What to do about it.
    remediation: &'static str,
    /// Exit status.
    exit_code: u8,
    /// Whether the same command can succeed later, unchanged, and cannot create a second object.
    retryable: bool,
}

/// Catalog of the commands.
pub(crate) fn document(tree: CommandTree) -> Document {
    let root = built(tree);
    let common_exits = exit_codes(&common_errors());
    let commands = leaves(&root).into_iter().zip((tree.entries)()).map(|((name, command), entry)| {
        let mut errors = entry.possible_errors();
        errors.retain(|error| !error.is_common());
        let mut exit_codes = exit_codes(&errors);
        exit_codes.retain(|exit| exit.code == 0 || !common_exits.contains(exit));
        let errors = errors.into_iter().map(catalog_error).collect();
        CommandDescriptor { exit_codes, errors, ..describe(name, command, &entry) }
    });
    Document {
        schema: SCHEMA_ID,
        version: VERSION,
        cli: ROOT,
        description: plain(root.get_about()),
        commands: std::iter::once(root_descriptor(&root)).chain(commands).collect(),
    }
}

/// Descriptor of one command with everything that it shares with the others. `None` if there is no such command.
pub(crate) fn complete_descriptor(tree: CommandTree, name: &str) -> Option<CommandDescriptor> {
    let root = built(tree);
    if name == ROOT {
        return Some(root_descriptor(&root));
    }
    let mut commands = leaves(&root).into_iter().zip((tree.entries)());
    let ((name, command), entry) = commands.find(|((found, _), _)| found == name)?;
    let mut descriptor = describe(name, command, &entry);
    descriptor.options.extend(options(command, true, &[]));
    Some(descriptor)
}

/// The document or descriptor as text: JSON with short lines.
pub(crate) fn to_text(catalog: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(catalog).map(|json| layout(&json))
}

fn built(tree: CommandTree) -> Command {
    let mut root = (tree.command)();
    root.build();
    root
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

/// What all commands share.
fn root_descriptor(root: &Command) -> CommandDescriptor {
    CommandDescriptor {
        name: ROOT.to_owned(),
        group: "All commands",
        synopsis: "svc <COMMAND> [OPTIONS]".to_owned(),
        description: "Options, environment, exit codes and errors that many commands share, in addition to those of each command."
            .to_owned(),
        options: options(root, true, &[]),
        arguments: Vec::new(),
        environment: Variable::COMMON,
        read_only: true,
        exit_codes: exit_codes(&common_errors()),
        examples: vec![Example {
            description: "List all commands, each on one line",
            command: "svc catalog show --summary",
        }],
        agent_notes: "Pass --output json: data are then one JSON document on stdout, and an error is one line \
            {\"error\": {code, message, remediation, exit_code, retryable, request_id}} on stderr. Follow the remediation; \
            repeat the unchanged command only if retryable is true: it then cannot create anything twice. After \
            response_lost (exit status 13), the command may have had its effect: follow the remediation to check. A command \
            that a signal ends prints no error; its exit status is the number of the signal plus 128 in a shell, and minus the \
            number in Python. Without a terminal, no command prompts: pass \
            --yes only if the user asked for the change. `svc catalog show <command>` prints one \
            command with all options and exactly the errors that it can give.",
        see_also: vec!["catalog show", "doctor"],
        errors: common_errors().into_iter().map(catalog_error).collect(),
        input_schema: None,
        output_schema: None,
    }
}

/// A command with its own options and all of its errors.
fn describe(name: String, command: &Command, entry: &CatalogEntry) -> CommandDescriptor {
    let errors = entry.possible_errors();
    let examples =
        entry.examples.iter().map(|&(description, command)| Example { description, command }).collect();
    CommandDescriptor {
        group: HelpGroup::from_command(&name).name(),
        synopsis: synopsis(command),
        description: plain(command.get_long_about().or(command.get_about())),
        options: options(command, false, entry.option_schemas),
        arguments: command.get_positionals().map(argument).collect(),
        environment: entry.variables(),
        read_only: entry.is_read_only(),
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
    let ProblemText { title, remediation } = error.text();
    CatalogError {
        code: error.code(),
        message: title,
        remediation,
        exit_code: error.exit().code(),
        retryable: error.is_retryable(),
    }
}

/// The global options, or those of the command itself.
fn options(command: &Command, global: bool, schemas: OptionSchemas) -> Vec<CatalogOption> {
    let options = command.get_arguments().filter(|arg| !arg.is_positional() && arg.is_global_set() == global);
    options.filter_map(|arg| option(arg, schemas)).collect()
}

fn option(arg: &Arg, schemas: OptionSchemas) -> Option<CatalogOption> {
    let flag = arg.get_long().filter(|long| !matches!(*long, "help" | "version"))?;
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let schema = schemas.iter().find(|(name, _)| *name == flag);
    Some(CatalogOption {
        flag: format!("--{flag}"),
        value_type: if switch { "boolean".to_owned() } else { value_type(arg) },
        required: arg.is_required_set(),
        description: plain(arg.get_help()),
        default: Some(defaults.join(",")).filter(|text| !text.is_empty() && !switch),
        env: arg.get_env().map(|name| name.to_string_lossy().into_owned()),
        schema: schema.map(|(_, schema)| schema()),
    })
}

fn value_type(arg: &Arg) -> String {
    if let Some(values) = values_of(arg) {
        return values;
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

/// Possible values of an option or argument, separated by `|`; `None` if it takes any.
fn values_of(arg: &Arg) -> Option<String> {
    let values: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    (!values.is_empty()).then(|| values.join("|"))
}

fn argument(arg: &Arg) -> CatalogArgument {
    CatalogArgument {
        name: arg
            .get_value_names()
            .and_then(|names| names.first())
            .map_or_else(|| arg.get_id().to_string(), ToString::to_string),
        required: arg.is_required_set(),
        description: match values_of(arg) {
            Some(values) => format!("{}: {values}", plain(arg.get_help())),
            None => plain(arg.get_help()),
        },
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
