//! Makes the catalog: walks the tree of commands, and lays each one's overlay beside it.

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use uuid::Uuid;

use super::format::{
    CatalogArgument, CatalogError, CatalogOption, CommandDescriptor, Document, Example, ExitCode, SCHEMA_ID,
};
use super::{Failure, Overlay, VERSION};
use crate::commands::{Commands, Node};
use crate::error::Exit;
use crate::help;

/// The catalog of this client.
pub(crate) fn document() -> Document {
    let mut root = help::bare_command();
    root.build();
    let commands = leaves(&root).into_iter().zip(Commands::overlays());
    Document {
        schema: SCHEMA_ID,
        version: VERSION,
        cli: "svc",
        description: plain(root.get_about()),
        commands: commands.map(|((name, command), overlay)| describe(name, command, &overlay)).collect(),
    }
}

/// Every command that does something, with the words that name it, in the order of [`Node::overlays`].
pub(crate) fn leaves(root: &Command) -> Vec<(String, &Command)> {
    fn collect<'a>(command: &'a Command, path: &str, found: &mut Vec<(String, &'a Command)>) {
        for child in command.get_subcommands() {
            let name = format!("{path} {}", child.get_name()).trim_start().to_owned();
            if child.has_subcommands() {
                collect(child, &name, found);
            } else {
                found.push((name, child));
            }
        }
    }
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found
}

fn describe(name: String, command: &Command, overlay: &Overlay) -> CommandDescriptor {
    let failures = failures(overlay);
    CommandDescriptor {
        group: overlay.group.name(),
        synopsis: synopsis(command),
        description: plain(command.get_long_about().or(command.get_about())),
        options: options(command),
        arguments: command.get_positionals().map(argument).collect(),
        exit_codes: exit_codes(&failures),
        examples: overlay
            .examples
            .iter()
            .map(|&(description, command)| Example { description, command })
            .collect(),
        agent_notes: overlay.agent_notes,
        see_also: overlay.see_also.to_vec(),
        errors: failures.into_iter().map(error).collect(),
        input_schema: overlay.input_schema.map(|schema| schema()),
        output_schema: overlay.output_schema.map(|schema| schema()),
        name,
    }
}

/// What the command can fail with: its own failures first, each once.
fn failures(overlay: &Overlay) -> Vec<Failure> {
    let mut failures = overlay.errors.to_vec();
    for shared in overlay.access.failures() {
        if !failures.contains(&shared) {
            failures.push(shared);
        }
    }
    failures
}

/// The statuses that the failures lead to. They need no list of their own, which could disagree.
fn exit_codes(failures: &[Failure]) -> Vec<ExitCode> {
    let mut exits: Vec<Exit> = failures.iter().map(|failure| failure.exit()).collect();
    exits.push(Exit::Done);
    exits.sort_unstable();
    exits.dedup();
    exits.into_iter().map(|exit| ExitCode { code: exit.code(), meaning: exit.meaning() }).collect()
}

fn error(failure: Failure) -> CatalogError {
    CatalogError { code: failure.code(), message: failure.message(), remediation: failure.remediation() }
}

/// The command's own options, then those that every command takes.
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
        kind: if switch { "boolean".to_owned() } else { kind(arg) },
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

/// What kind of value the option takes.
fn kind(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() {
        return values.join("|");
    }
    let parsed = arg.get_value_parser().type_id();
    let is = |type_id| parsed == type_id;
    let kind = if is(TypeId::of::<u32>()) || is(TypeId::of::<usize>()) {
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
    kind.to_owned()
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

/// How the command is typed: its own arguments and what it requires, without the global options.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}
