//! Environment variables.

use std::collections::BTreeSet;

use contract::ProblemKind;
use serde_json::Value;

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, problem};

/// All variables of the catalog.
fn variables() -> BTreeSet<String> {
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
