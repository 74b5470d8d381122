//! Builds the catalog from the command tree.

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use uuid::Uuid;

use super::entry::PossibleError;
use super::{
    CatalogArgument, CatalogError, CatalogOption, CommandDescriptor, Document, Example, ExitCode, SCHEMA_ID,
};
use super::{CatalogEntry, CommandTree, HelpGroup, VERSION};
use crate::error::Exit;

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
