//! What holds of the catalog, whatever commands are added.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use serde_json::Value;

use super::{Document, VERSION, document, faults_of, leaves};
use crate::arguments::CommandLine;
use crate::commands::{Commands, Node};
use crate::error::{Exit, Fault};
use crate::help;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../catalog")
}

fn pretty(document: &Document) -> String {
    serde_json::to_string_pretty(document).unwrap() + "\n"
}

/// Every command, option and argument, a line each: what must not go away within a major version.
fn surface(document: &Document) -> BTreeSet<String> {
    let mut surface = BTreeSet::new();
    for command in &document.commands {
        surface.insert(command.name.clone());
        surface.extend(command.options.iter().map(|option| format!("{} {}", command.name, option.flag)));
        surface
            .extend(command.arguments.iter().map(|argument| format!("{} <{}>", command.name, argument.name)));
    }
    surface
}

/// Splits a command line as a shell would: at blanks, but not inside double quotes.
fn words(line: &str) -> Vec<String> {
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
fn the_checked_in_catalog_is_what_is_generated() {
    let checked_in = std::fs::read_to_string(directory().join("svc.catalog.json")).unwrap();
    assert!(
        checked_in == pretty(&document()),
        "generate it anew: svc catalog show --output json > catalog/svc.catalog.json"
    );
}

#[test]
fn the_catalog_has_the_fixed_format() {
    let catalog = serde_json::to_value(document()).unwrap();
    assert_eq!(faults_of(&catalog).unwrap(), [] as [&str; 0]);
}

#[test]
fn what_lacks_a_field_or_has_none_of_its_type_is_no_catalog() {
    let whole = serde_json::to_value(document()).unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut catalog = whole.clone();
        change(&mut catalog);
        faults_of(&catalog).unwrap()
    };
    assert_eq!(broken(|catalog| catalog["commands"][0]["examples"] = Value::Array(Vec::new())).len(), 1);
    assert_eq!(broken(|catalog| catalog["$schema"] = "no uri".into()).len(), 1);
    assert_eq!(broken(|catalog| catalog["commands"][1]["exit_codes"][0]["code"] = "0".into()).len(), 1);
    let without_name = broken(|catalog| drop(catalog["commands"][0].as_object_mut().unwrap().remove("name")));
    assert!(without_name[0].starts_with("/commands/0: "), "{without_name:?}");
}

#[test]
fn every_command_has_its_own_name_and_its_overlay() {
    let document = document();
    let names: BTreeSet<_> = document.commands.iter().map(|command| &command.name).collect();
    assert_eq!(names.len(), document.commands.len());
    assert_eq!(leaves(&help::bare_command()).len(), Commands::overlays().len());
}

#[test]
fn every_example_is_understood_and_shows_its_own_command() {
    for command in document().commands {
        for example in command.examples {
            let matches = help::command().try_get_matches_from(words(example.command));
            let parsed = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
            assert!(parsed.is_ok(), "{}: {}", example.command, parsed.err().unwrap());
            assert!(example.command.starts_with(&format!("svc {}", command.name)), "{}", example.command);
        }
    }
}

#[test]
fn every_exit_status_and_every_fault_is_used() {
    let document = document();
    let exits: BTreeSet<_> =
        document.commands.iter().flat_map(|command| &command.exit_codes).map(|exit| exit.code).collect();
    assert_eq!(exits, Exit::ALL.iter().map(|exit| exit.code()).collect());
    let codes: BTreeSet<_> =
        document.commands.iter().flat_map(|command| &command.errors).map(|error| error.code).collect();
    for fault in Fault::ALL {
        assert!(codes.contains(fault.code()), "{}", fault.code());
    }
}

#[test]
fn no_command_lists_an_error_twice() {
    for command in document().commands {
        let codes: BTreeSet<_> = command.errors.iter().map(|error| error.code).collect();
        assert_eq!(codes.len(), command.errors.len(), "{}", command.name);
    }
}

#[test]
fn see_also_leads_to_other_commands_that_exist() {
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
fn every_option_and_argument_is_described() {
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
fn the_commands_of_the_specification_have_its_options() {
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
fn nothing_goes_away_within_a_major_version() {
    let major = VERSION.split('.').next().unwrap();
    let frozen = directory().join(format!("surface.v{major}.txt"));
    let frozen: BTreeSet<String> =
        std::fs::read_to_string(frozen).unwrap().lines().map(str::to_owned).collect();
    let surface = surface(&document());
    let gone: Vec<_> = frozen.difference(&surface).collect();
    assert!(gone.is_empty(), "needs a new major of VERSION, and a surface file of its own: {gone:#?}");
    let new: Vec<_> = surface.difference(&frozen).collect();
    assert!(
        new.is_empty(),
        "needs a new minor of VERSION, and these lines in catalog/surface.v{major}.txt: {new:#?}"
    );
}

#[test]
fn the_catalog_is_named_by_the_schema_that_it_follows() {
    let schema = super::format_schema();
    assert_eq!(schema["$id"], document().schema);
    assert!(document().schema.ends_with("/v1"));
}
