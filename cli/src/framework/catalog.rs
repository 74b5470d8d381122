//! The command catalog: the clap definition of each command and its constants, in the fixed format of version 1, as types and
//! as JSON Schema. Each command is complete in itself.
//!
//! The format has no field for what a command changes, its variables, and the exit status of an error. Texts contain them by fixed
//! phrases, and `--extended` prints them as further fields.

mod entry;
mod layout;
mod schema;
mod summary;
#[cfg(test)]
mod tests;
mod topics;

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use jsonschema::Validator;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use self::entry::{Effect, Variable};
use self::layout::layout;
use crate::framework::error::{CliError, ErrorKind, Exit, Result};

pub(crate) use entry::{
    CatalogEntry, Errors, Examples, HELP_GROUPS, Names, OptionSchemas, Requirement, Routes, SchemaOf,
    help_group,
};
pub(crate) use schema::{schema_of, text_input};
pub(crate) use summary::{Summary, summary};
pub(crate) use topics::Topic;

/// Version of the catalog of this client. Removing or renaming a command, option or argument requires a new major version;
/// adding one requires a new minor version.
pub(crate) const VERSION: &str = "1.19.0";

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
/// Name of the extended format, which has no schema.
const EXTENDED_ID: &str = "urn:svc:schemas/command-catalog-extended/v1";
/// Name of the client.
const ROOT: &str = "svc";

/// What a program must know about all commands.
const FOR_PROGRAMS: &str = "Pass --output json: data are then one JSON document on stdout, and an error is one line {\"error\": {code, \
    message, remediation, exit_code, retryable, request_id}} on stderr. Follow the remediation; repeat the unchanged command only if \
    retryable is true: it then cannot create anything twice. After response_lost (exit code 13), the command may have had its effect: \
    follow the remediation to check. A command that a signal ends prints no error; its exit status is the number of the signal plus \
    128 in a shell, and minus the number in Python. Other lines on stderr are JSON objects \
    too: {\"warning\": {message}}, {\"device\": …} for a person, {\"request\": …} and {\"trace\": …} with --verbose. \
    No command prompts without a terminal or with SVC_NO_INPUT=1: pass --yes only if the user asked for the change. \
    `svc catalog show <command>` prints one command. Each error ends with its exit code, and each note starts with the effect \
    of the command, the variables of its credential, and the roles and scopes that may run it.";

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
    /// Purpose of the client, and what programs must know.
    description: String,
    /// Extended: variables that change the behavior of all commands without being an option.
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'static [Variable]>,
    /// All commands in the order of the help.
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
    /// Extended: variables that contain the credential. The first one that is set is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'static [Variable]>,
    /// Extended: what the command changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Effect>,
    /// Possible exit statuses.
    exit_codes: Vec<ExitCode>,
    /// Example command lines.
    examples: Vec<Example>,
    /// Notes for an agent that runs the command.
    agent_notes: String,
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
    /// Extended: JSON Schema of a line of the file that the option names.
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
    code: String,
    /// What happened.
    message: String,
    /// What to do about it, and the exit status.
    remediation: String,
    /// Extended: exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    /// Extended: whether the same command can succeed later, unchanged, and cannot create a second object.
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
}

impl CommandDescriptor {
    /// Headings and texts of sections of the manual page.
    pub(crate) fn manual_sections(&self) -> [(&'static str, String); 3] {
        let of_options = self.options.iter().filter_map(|option| {
            option.env.as_ref().map(|variable| format!("{variable}: {}", option.description))
        });
        let own = self.environment.unwrap_or_default().iter().chain(Variable::COMMON);
        let variables: Vec<_> = of_options.chain(own.map(ToString::to_string)).collect();
        let exits = self.exit_codes.iter().map(|exit| format!("{:<4} {}", exit.code, exit.meaning));
        let exits: Vec<_> = exits.collect();
        let pages: Vec<_> =
            self.see_also.iter().map(|name| format!("svc-{}(1)", name.replace(' ', "-"))).collect();
        [
            ("ENVIRONMENT", variables.join("\n")),
            ("EXIT STATUS", exits.join("\n")),
            ("SEE ALSO", pages.join(", ")),
        ]
    }
}

/// Catalog of the commands. An extended one has further fields.
pub(crate) fn document(tree: CommandTree, is_extended: bool) -> Document {
    let root = built(tree);
    let commands = leaves(&root).into_iter().zip((tree.entries)());
    let purpose = plain(root.get_about());
    let variables = Variable::COMMON.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ");
    Document {
        schema: if is_extended { EXTENDED_ID } else { SCHEMA_ID },
        version: VERSION,
        cli: ROOT,
        description: format!("{purpose}.\n\n{FOR_PROGRAMS}\n\nVariables of all commands: {variables}."),
        environment: is_extended.then_some(Variable::COMMON),
        commands: commands
            .map(|((name, command), entry)| describe(name, command, &entry, is_extended))
            .collect(),
    }
}

/// Descriptor of one command. `None` if there is no such command.
pub(crate) fn descriptor(tree: CommandTree, name: &str, is_extended: bool) -> Option<CommandDescriptor> {
    let root = built(tree);
    let mut commands = leaves(&root).into_iter().zip((tree.entries)());
    let ((name, command), entry) = commands.find(|((found, _), _)| found == name)?;
    Some(describe(name, command, &entry, is_extended))
}

/// The document or descriptor as text: JSON with short lines.
pub(crate) fn to_text(catalog: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(catalog).map(|json| layout(&json))
}

/// The complete clap definition: each command has its full name and the global options.
pub(crate) fn built(tree: CommandTree) -> Command {
    let mut root = (tree.command)();
    root.build();
    root
}

/// All commands and groups of commands with their full names, each group before its commands.
pub(crate) fn nodes(root: &Command) -> Vec<(String, &Command)> {
    fn collect<'a>(command: &'a Command, path: &str, nodes: &mut Vec<(String, &'a Command)>) {
        for child in command.get_subcommands() {
            let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
            nodes.push((name.clone(), child));
            collect(child, &name, nodes);
        }
    }
    let mut nodes = Vec::new();
    collect(root, "", &mut nodes);
    nodes
}

/// Commands without subcommands and their full names, in the order of the catalog.
pub(crate) fn leaves(root: &Command) -> Vec<(String, &Command)> {
    let mut leaves = nodes(root);
    leaves.retain(|(_, command)| !command.has_subcommands());
    leaves
}

fn describe(name: String, command: &Command, entry: &CatalogEntry, is_extended: bool) -> CommandDescriptor {
    let errors = entry.possible_errors();
    let examples =
        entry.examples.iter().map(|&(description, command)| Example { description, command }).collect();
    CommandDescriptor {
        group: help_group(&name),
        synopsis: synopsis(command),
        description: plain(command.get_long_about().or(command.get_about())),
        options: options(command, if is_extended { entry.option_schemas } else { &[] }),
        arguments: command.get_positionals().map(argument).collect(),
        environment: is_extended.then(|| entry.requires.variables()),
        effect: is_extended.then(|| entry.effect()),
        exit_codes: exit_codes(&errors),
        examples,
        agent_notes: entry.notes(),
        see_also: entry.see_also.to_vec(),
        errors: errors.into_iter().map(|error| catalog_error(error, is_extended)).collect(),
        input_schema: entry.input_schema.map(|schema| schema()),
        output_schema: Some((entry.output_schema)()),
        name,
    }
}

/// Exit statuses of the errors, and of success.
fn exit_codes(errors: &[CliError]) -> Vec<ExitCode> {
    let mut exits: Vec<Exit> = errors.iter().map(|error| error.exit).collect();
    exits.push(Exit::Success);
    exits.sort_unstable();
    exits.dedup();
    exits.into_iter().map(|exit| ExitCode { code: exit.code(), meaning: exit.meaning() }).collect()
}

fn catalog_error(error: CliError, is_extended: bool) -> CatalogError {
    let CliError { code, message, remediation, exit, retryable: is_retryable, .. } = error;
    let (exit, retryable) = (exit.code(), if is_retryable { ", retryable" } else { "" });
    CatalogError {
        code,
        message,
        remediation: format!("{remediation} (exit code {exit}{retryable})"),
        exit_code: is_extended.then_some(exit),
        retryable: is_extended.then_some(is_retryable),
    }
}

/// The options of the command, then the global ones.
fn options(command: &Command, schemas: OptionSchemas) -> Vec<CatalogOption> {
    let (global, own): (Vec<_>, Vec<_>) =
        command.get_arguments().filter(|arg| !arg.is_positional()).partition(|arg| arg.is_global_set());
    own.into_iter().chain(global).filter_map(|arg| option(arg, schemas)).collect()
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
