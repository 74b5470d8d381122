//! Properties of the catalog of all commands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use serde_json::Value;

use super::{Document, VERSION, leaves, validation_errors};
use crate::commands::{CommandLine, TREE};
use crate::error::{ErrorKind, Exit};
use crate::help;

fn document() -> Document {
    super::document(TREE)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../catalog")
}

fn pretty(document: &Document) -> String {
    serde_json::to_string_pretty(document).unwrap() + "\n"
}

/// All commands, options (with their aliases) and arguments. None may be removed within a major version.
fn surface(document: &Document) -> BTreeSet<String> {
    let mut surface = BTreeSet::new();
    let root = (TREE.command)();
    for (name, command) in leaves(&root) {
        let aliases = command.get_arguments().flat_map(|option| option.get_all_aliases().unwrap_or_default());
        surface.extend(aliases.map(|alias| format!("{name} --{alias}")));
    }
    for command in &document.commands {
        surface.insert(command.name.clone());
        surface.extend(command.options.iter().map(|option| format!("{} {}", command.name, option.flag)));
        surface
            .extend(command.arguments.iter().map(|argument| format!("{} <{}>", command.name, argument.name)));
    }
    surface
}

/// Splits a command line at spaces outside double quotes.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

#[test]
fn checked_in_catalog_is_current() {
    let checked_in = std::fs::read_to_string(directory().join("svc.catalog.json")).unwrap();
    assert!(
        checked_in == pretty(&document()),
        "regenerate it: svc catalog show --output json > catalog/svc.catalog.json"
    );
}

#[test]
fn catalog_conforms_to_the_format() {
    let catalog = serde_json::to_value(document()).unwrap();
    assert_eq!(validation_errors(&catalog).unwrap(), [] as [&str; 0]);
}

#[test]
fn rejects_catalogs_with_missing_or_invalid_fields() {
    let valid = serde_json::to_value(document()).unwrap();
    let errors_after = |change: fn(&mut Value)| {
        let mut catalog = valid.clone();
        change(&mut catalog);
        validation_errors(&catalog).unwrap()
    };
    assert_eq!(
        errors_after(|catalog| catalog["commands"][0]["examples"] = Value::Array(Vec::new())).len(),
        1
    );
    assert_eq!(errors_after(|catalog| catalog["$schema"] = "no uri".into()).len(), 1);
    assert_eq!(errors_after(|catalog| catalog["commands"][1]["exit_codes"][0]["code"] = "0".into()).len(), 1);
    let without_name =
        errors_after(|catalog| drop(catalog["commands"][0].as_object_mut().unwrap().remove("name")));
    assert!(without_name[0].starts_with("/commands/0: "), "{without_name:?}");
}

#[test]
fn command_names_are_unique_and_each_has_an_entry() {
    let document = document();
    let names: BTreeSet<_> = document.commands.iter().map(|command| &command.name).collect();
    assert_eq!(names.len(), document.commands.len());
    assert_eq!(leaves(&(TREE.command)()).len(), (TREE.entries)().len());
}

#[test]
fn examples_parse_and_start_with_their_command() {
    for command in document().commands {
        for example in command.examples {
            let matches = help::command(TREE).try_get_matches_from(split_words(example.command));
            let parsed = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
            assert!(parsed.is_ok(), "{}: {}", example.command, parsed.err().unwrap());
            assert!(example.command.starts_with(&format!("svc {}", command.name)), "{}", example.command);
        }
    }
}

#[test]
fn every_exit_status_and_error_kind_is_used() {
    let document = document();
    let exits: BTreeSet<_> =
        document.commands.iter().flat_map(|command| &command.exit_codes).map(|exit| exit.code).collect();
    assert_eq!(exits, Exit::ALL.iter().map(|exit| exit.code()).collect());
    let codes: BTreeSet<_> =
        document.commands.iter().flat_map(|command| &command.errors).map(|error| error.code).collect();
    for kind in ErrorKind::ALL {
        assert!(codes.contains(kind.code()), "{}", kind.code());
    }
}

#[test]
fn errors_of_a_command_are_unique() {
    for command in document().commands {
        let codes: BTreeSet<_> = command.errors.iter().map(|error| error.code).collect();
        assert_eq!(codes.len(), command.errors.len(), "{}", command.name);
    }
}

#[test]
fn see_also_names_other_existing_commands() {
    let document = document();
    for command in &document.commands {
        for target in &command.see_also {
            assert!(
                document.commands.iter().any(|other| other.name == *target),
                "{} -> {target}",
                command.name
            );
            assert_ne!(command.name, *target);
        }
    }
}

#[test]
fn every_option_and_argument_has_a_description() {
    for command in document().commands {
        assert!(!command.description.is_empty() && !command.agent_notes.is_empty(), "{}", command.name);
        assert!(command.options.iter().all(|option| !option.description.is_empty()), "{}", command.name);
        assert!(
            command.arguments.iter().all(|argument| !argument.description.is_empty()),
            "{}",
            command.name
        );
    }
}

#[test]
fn specified_commands_have_their_specified_options() {
    let surface = surface(&document());
    for expected in [
        "users invite --email",
        "users invite --tenant",
        "auth login --email",
        "auth login --tenant",
        "auth sessions list --user-id",
        "auth sessions revoke <SESSION_ID>",
    ] {
        assert!(surface.contains(expected), "{expected}");
    }
}

#[test]
fn surface_is_stable_within_a_major_version() {
    let major = VERSION.split('.').next().unwrap();
    let frozen = directory().join(format!("surface.v{major}.txt"));
    let frozen: BTreeSet<String> =
        std::fs::read_to_string(frozen).unwrap().lines().map(str::to_owned).collect();
    let surface = surface(&document());
    let removed: Vec<_> = frozen.difference(&surface).collect();
    assert!(removed.is_empty(), "requires a new major VERSION and a new surface file: {removed:#?}");
    let added: Vec<_> = surface.difference(&frozen).collect();
    assert!(
        added.is_empty(),
        "requires a new minor VERSION and these lines in catalog/surface.v{major}.txt: {added:#?}"
    );
}

#[test]
fn catalog_names_its_schema() {
    let schema = super::format_schema();
    assert_eq!(schema["$id"], document().schema);
    assert!(document().schema.ends_with("/v1"));
}
