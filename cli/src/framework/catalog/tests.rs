//! Properties of the catalog of all commands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use serde_json::Value;

use super::{
    CommandDescriptor, Document, Effect, Routes, VERSION, descriptor, leaves, summary, to_text,
    validation_errors,
};
use crate::commands::{CommandLine, TREE};
use crate::framework::error::{ErrorKind, Exit};
use crate::framework::help;

fn document() -> Document {
    super::document(TREE, false)
}

/// All commands with the further fields.
fn extended() -> Vec<CommandDescriptor> {
    super::document(TREE, true).commands
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../catalog")
}

/// All commands, options (with their aliases) and arguments. None may be removed within a major version.
fn surface() -> BTreeSet<String> {
    let mut surface = BTreeSet::new();
    let root = (TREE.command)();
    for (name, command) in leaves(&root) {
        let aliases = command.get_arguments().flat_map(|option| option.get_all_aliases().unwrap_or_default());
        surface.extend(aliases.map(|alias| format!("{name} --{alias}")));
    }
    for command in document().commands {
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
        checked_in == to_text(&document()).unwrap(),
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
    // The format has no further fields at any level.
    let commands = valid["commands"].as_array().unwrap();
    let with_argument =
        commands.iter().position(|command| command.pointer("/arguments/0").is_some()).unwrap();
    for place in ["", "/options/0", "/arguments/0", "/exit_codes/0", "/examples/0", "/errors/0"] {
        let mut catalog = valid.clone();
        catalog["commands"][with_argument].pointer_mut(place).unwrap()["retryable"] = true.into();
        assert_eq!(validation_errors(&catalog).unwrap().len(), 1, "{place}");
    }
    assert_eq!(errors_after(|catalog| catalog["environment"] = Value::Array(Vec::new())).len(), 1);
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
    assert_eq!(document.commands.len(), (TREE.entries)().len());
}

#[test]
fn examples_parse_and_start_with_their_command() {
    for command in document().commands {
        for example in command.examples {
            // The shell redirects standard input.
            let line = example.command.split(" < ").next().unwrap();
            let matches = help::command(TREE).try_get_matches_from(split_words(line));
            let parsed = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
            assert!(parsed.is_ok(), "{}: {}", example.command, parsed.err().unwrap());
            assert!(example.command.starts_with(&format!("svc {}", command.name)), "{}", example.command);
        }
    }
}

#[test]
fn only_a_position_can_begin_with_a_hyphen_so_that_no_option_becomes_a_value() {
    let root = super::built(TREE);
    for (name, command) in leaves(&root) {
        // One command is enough for the global options.
        let options = command
            .get_arguments()
            .filter(|arg| !arg.is_positional() && arg.get_action().takes_values())
            .filter(|arg| !arg.is_global_set() || name == "version");
        for option in options.map(|arg| format!("--{}", arg.get_long().unwrap())) {
            let line = ["svc"].into_iter().chain(name.split(' ')).chain([&*option, "-x1"]);
            let error = (TREE.command)().try_get_matches_from(line).err();
            let kind = error.map(|error| error.kind());
            let is_value = kind != Some(clap::error::ErrorKind::UnknownArgument);
            assert_eq!(is_value, option == "--after", "{name} {option}");
        }
    }
}

#[test]
fn every_list_of_the_service_has_a_limit_and_is_complete_without_it() {
    let root = (TREE.command)();
    let mut lists = 0;
    for ((name, command), entry) in leaves(&root).into_iter().zip((TREE.entries)()) {
        // Second factors have no pages, and no query.
        let is_paged = matches!(entry.routes, Routes::Only([route, ..]) if route.has_query);
        if is_paged && name.ends_with(" list") {
            lists += 1;
            let options: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
            assert!(options.contains(&"limit") && !options.contains(&"all"), "{name}: {options:?}");
        }
    }
    assert_eq!(lists, 9);
}

#[test]
fn every_exit_status_and_error_kind_is_used() {
    let document = document();
    let exits: BTreeSet<_> =
        document.commands.iter().flat_map(|command| &command.exit_codes).map(|exit| exit.code).collect();
    assert_eq!(exits, Exit::ALL.iter().map(|exit| exit.code()).collect());
    let codes: BTreeSet<_> = document
        .commands
        .iter()
        .flat_map(|command| &command.errors)
        .map(|error| error.code.as_str())
        .collect();
    for kind in ErrorKind::ALL {
        assert!(codes.contains(kind.code()), "{}", kind.code());
    }
}

#[test]
fn each_command_is_complete_in_itself() {
    for command in document().commands {
        let name = &command.name;
        let flags: Vec<_> = command.options.iter().map(|option| option.flag.as_str()).collect();
        for flag in
            ["--tenant", "--base-url", "--context", "--output", "--yes", "--no-input", "--timeout", "--color"]
        {
            assert_eq!(flags.iter().filter(|other| **other == flag).count(), 1, "{name} {flag}");
        }
        let codes = codes(&command);
        for code in ["usage", "interrupted", "terminated", "output_failed", "defect"] {
            assert!(codes.contains(code), "{name} {code}");
        }
        let documented = descriptor(TREE, name, false).unwrap();
        assert_eq!(serde_json::to_value(documented).unwrap(), serde_json::to_value(&command).unwrap());
    }
}

#[test]
fn texts_contain_what_the_format_has_no_field_for_by_fixed_phrases() {
    let phrase = |exit_code: u8, retryable: bool| {
        format!(" (exit code {exit_code}{})", if retryable { ", retryable" } else { "" })
    };
    for (command, extended) in document().commands.into_iter().zip(extended()) {
        let name = &command.name;
        for (error, extended) in command.errors.iter().zip(&extended.errors) {
            let end = phrase(extended.exit_code.unwrap(), extended.retryable.unwrap());
            assert!(error.remediation.ends_with(&end), "{name}: {}", error.remediation);
            assert_eq!((error.exit_code, error.retryable), (None, None));
        }
        let exits: BTreeSet<_> =
            extended.errors.iter().filter_map(|error| error.exit_code).chain([0]).collect();
        assert_eq!(command.exit_codes.iter().map(|exit| exit.code).collect::<BTreeSet<_>>(), exits, "{name}");
        // `svc api` asks for no confirmation.
        let phrase = if name == "api" { "Destroys" } else { extended.effect.unwrap().phrase() };
        assert!(command.agent_notes.starts_with(phrase), "{name}");
        for variable in extended.environment.unwrap() {
            assert!(command.agent_notes.contains(&variable.names()), "{name}");
        }
        assert_eq!(command.agent_notes, extended.agent_notes);
    }
    for variable in super::Variable::COMMON {
        assert!(document().description.contains(&variable.to_string()), "{variable}");
    }
}

#[test]
fn exactly_the_commands_with_a_request_that_is_not_idempotent_have_a_text_about_a_lost_response() {
    let root = (TREE.command)();
    for ((name, _), entry) in leaves(&root).into_iter().zip((TREE.entries)()) {
        let is_idempotent = match entry.routes {
            Routes::Only(routes) => routes.iter().all(|route| route.is_idempotent()),
            Routes::Any => false,
        };
        // The service detects repeated events by their ids.
        let is_repeatable = is_idempotent || name == "events send";
        assert_eq!(entry.after_lost_response.is_none(), is_repeatable, "{name}");
        let complete = descriptor(TREE, &name, true).unwrap();
        let uncertain = complete.errors.iter().filter(|error| error.code == "response_lost");
        for error in uncertain.clone() {
            assert_eq!((error.exit_code, error.retryable), (Some(13), Some(false)), "{name}");
        }
        // The output of these can be lost too.
        let prints_once = ["consumers create", "events send"].contains(&name.as_str());
        assert_eq!(uncertain.count(), usize::from(!is_repeatable || prints_once), "{name}");
    }
}

#[test]
fn notes_name_the_roles_and_scopes_that_may_run_the_command() {
    const MEMBER: &str = "any user of the tenant, with a session";
    let cases: [(&str, &[&str]); 4] = [
        ("events send", &[MEMBER, "an API key with the scope `events:write`"]),
        (
            "events tail",
            &["an administrator of the tenant, with a session", "an API key with the scope `events:read`"],
        ),
        ("tenants get", &["the platform administrator", MEMBER]),
        ("version", &[]),
    ];
    for (name, allowed) in cases {
        let notes = descriptor(TREE, name, false).unwrap().agent_notes;
        let sentence =
            notes.split_once("Allowed callers: ").map(|(_, rest)| rest.split(". ").next().unwrap());
        let callers: Vec<_> = sentence.map(|text| text.split("; ").collect()).unwrap_or_default();
        assert_eq!(callers, allowed, "{notes}");
    }
}

fn codes(command: &CommandDescriptor) -> BTreeSet<&str> {
    command.errors.iter().map(|error| error.code.as_str()).collect()
}

#[test]
fn a_command_and_the_summary_are_small_enough_for_an_agent() {
    let summary = to_text(&summary(TREE)).unwrap();
    assert!(summary.len() < 12_000, "the summary has {} bytes", summary.len());
    for command in document().commands {
        let length = to_text(&command).unwrap().len();
        // `svc api` lists all problems of the API, and the input of the others is the whole schema of an event.
        let is_large = ["api", "events send", "events validate"].contains(&command.name.as_str());
        let limit = if is_large { 40_000 } else { 25_000 };
        assert!(length < limit, "{} has {length} bytes", command.name);
    }
}

#[test]
fn schemas_are_valid_and_complete() {
    for command in extended() {
        let of_options = command.options.iter().filter_map(|option| option.schema.as_ref());
        for schema in command.input_schema.iter().chain(&command.output_schema).chain(of_options) {
            assert!(jsonschema::validator_for(schema).is_ok(), "{}: {schema}", command.name);
        }
        assert!(command.output_schema.is_some(), "{}", command.name);
    }
}

#[test]
fn commands_that_read_standard_input_have_an_input_schema() {
    for command in document().commands {
        let reads = |text: &str| text.contains("standard input");
        let described = command.options.iter().any(|option| reads(&option.description))
            || command.arguments.iter().any(|argument| reads(&argument.description));
        assert_eq!(command.input_schema.is_some(), described, "{}", command.name);
    }
}

#[test]
fn read_only_commands_call_no_route_that_changes_anything() {
    let with = |effect: Effect| -> Vec<_> {
        extended()
            .into_iter()
            .filter(|command| command.effect == Some(effect))
            .map(|command| command.name)
            .collect()
    };
    let (read_only, destroying) = (with(Effect::Reads), with(Effect::Destroys));
    for expected in ["users delete", "tenants suspend", "api-keys revoke", "events dlq delete"] {
        assert!(destroying.iter().any(|name| name == expected), "{expected}");
    }
    for expected in ["users list", "auth whoami", "tenants get", "catalog show", "events validate"] {
        assert!(read_only.iter().any(|name| name == expected), "{expected}");
    }
    for other in ["users disable", "auth logout", "events send", "tenants update", "api", "auth login"] {
        assert!(read_only.iter().all(|name| name != other), "{other}");
    }
}

#[test]
fn errors_of_a_command_are_unique() {
    for command in document().commands {
        assert_eq!(codes(&command).len(), command.errors.len(), "{}", command.name);
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
    let surface = surface();
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
    let surface = surface();
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
