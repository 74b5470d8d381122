//! Environment variables.

use std::collections::BTreeSet;

use contract::ProblemKind;
use serde_json::Value;

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, problem};

/// All variables of the catalog.
pub(crate) fn variables() -> BTreeSet<String> {
    let catalog = Client::new().run(&["catalog", "show", "--extended", "--output", "json"]).json();
    let list = |command: &Value, name: &str| command[name].as_array().cloned().unwrap_or_default();
    let commands = catalog["commands"].as_array().unwrap().iter().chain([&catalog]);
    let entries =
        commands.flat_map(|command| [list(command, "options"), list(command, "environment")].concat());
    let names = entries
        .flat_map(|entry| ["env", "name", "file"].map(|field| entry[field].as_str().map(str::to_owned)));
    let all: BTreeSet<_> = names.flatten().collect();
    for expected in
        ["SVC_TENANT", "SVC_CONTEXT", "SVC_API_KEY", "SVC_PLATFORM_TOKEN_FILE", "HTTPS_PROXY", "CI"]
    {
        assert!(all.contains(expected), "{expected}: {all:?}");
    }
    all
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let stub = Stub::new(|_| problem(ProblemKind::CredentialInvalid));
    let commands = [
        &["auth", "whoami", "--base-url", &stub.url][..],
        &["tenants", "list", "--base-url", &stub.url],
        &["users", "invite", "--email", "a@acme.example"],
        &["events", "send", "--file", "-", "--output", "json"],
        &["config", "list"],
        &["auth", "login"],
        &["version", "--nonsense"],
    ];
    let client = |variable: Option<&str>| match variable {
        Some(name) => Client::new().with_variable(name, ""),
        None => Client::new(),
    };
    let printed = |client: &Client, command: &[&str]| {
        let CommandResult { code, stdout, stderr, .. } = client.run(command);
        (code, stdout, stderr)
    };
    let unset = client(None);
    let expected = commands.map(|command| printed(&unset, command));
    for variable in variables() {
        let empty = client(Some(&variable));
        assert_eq!(commands.map(|command| printed(&empty, command)), expected, "{variable}");
    }
}

#[test]
fn a_credential_that_is_not_utf8_does_not_count_as_unset() {
    use std::os::unix::ffi::OsStrExt as _;

    for variable in ["SVC_TOKEN", "SVC_TOKEN_FILE"] {
        let client = Client::for_url("http://127.0.0.1:1").with_variable("SVC_TENANT", "acme");
        let mut command = client.command(&["auth", "whoami", "--output", "json"]);
        let output = command.env(variable, std::ffi::OsStr::from_bytes(b"svc_st_\xff")).output().unwrap();
        let result = CommandResult::of(output);
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(11), Some("configuration_invalid")));
    }
}

#[test]
fn an_invalid_value_of_a_variable_is_an_error_of_the_variable() {
    use std::os::unix::ffi::OsStrExt as _;

    let client = Client::new();
    for (variable, value) in [
        ("SVC_OUTPUT", &b"yaml"[..]),
        ("SVC_TENANT", b"Acme!"),
        ("SVC_TENANT", b"\xff"),
        ("SVC_CONTEXT", b"\xff"),
        ("SVC_BASE_URL", b"\xff"),
        ("SVC_TOKEN", b"svc_st_a\nb"),
    ] {
        let mut command = client.command(&["users", "list"]);
        let output = command.env(variable, std::ffi::OsStr::from_bytes(value)).output().unwrap();
        let CommandResult { code, stderr, .. } = CommandResult::of(output);
        assert_eq!(code, Some(11), "{stderr}");
        assert!(stderr.contains(variable) && !stderr.contains("--"), "{stderr}");
    }
    let option = client.run(&["users", "list", "--output", "yaml"]);
    assert_eq!(option.code, Some(2), "{option:?}");
    assert!(option.stderr.contains("'--output <FORMAT>'"), "{option:?}");
}

#[test]
fn a_token_file_can_have_a_byte_order_mark_and_the_line_of_the_previous_token() {
    let stub = Stub::new(|_| problem(ProblemKind::CredentialInvalid));
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN_FILE", "token");
    std::fs::write(client.home().join("token"), "\u{feff}svc_st_new\r\nsvc_st_old\r\n").unwrap();
    client.run(&["auth", "whoami"]);
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_st_new"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_without_escape_sequences_gets_none() {
    for (name, value, is_colored) in [
        ("TERM", "xterm", true),
        ("TERM", "dumb", false),
        ("TERM", "", false),
        ("CLICOLOR", "0", false),
        ("NO_COLOR", "1", false),
    ] {
        let client = Client::new().with_variable(name, value);
        let result = crate::terminal::run_at_terminal(&client, &["auth", "token"], "");
        assert_eq!(result.stderr.contains('\u{1b}'), is_colored, "{name}={value}: {result:?}");
    }
    let forced = Client::new().with_variable("CLICOLOR_FORCE", "1").run(&["auth", "token"]);
    assert!(forced.stderr.contains('\u{1b}'), "{forced:?}");
}
