//! `svc catalog`: the whole document, one command, the summary and validation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};

#[test]
fn printed_catalog_is_the_checked_in_one_and_valid() {
    let client = Client::new();
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalog/svc.catalog.json");
    let printed = client.run(&["catalog", "show", "--output", "json"]).stdout;
    assert!(printed == std::fs::read_to_string(checked_in).unwrap(), "the checked-in catalog is stale");
    assert_eq!(client.run(&["catalog", "validate", checked_in, "--output", "json"]).json()["valid"], true);
    let from_input = client.run_with(&["catalog", "validate", "-", "--output", "json"], &printed);
    assert_eq!(from_input.json()["valid"], true);

    let broken = client.home().join("broken.json");
    std::fs::write(&broken, printed.replace("\"agent_notes\"", "\"notes\"")).unwrap();
    let result = client.run(&["catalog", "validate", broken.to_str().unwrap(), "--output", "json"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some("input_invalid")));
}

#[test]
fn catalog_does_not_depend_on_the_machine() {
    let printed = Client::new().run(&["catalog", "show"]).stdout;
    let elsewhere = Client::for_url("https://elsewhere.example")
        .with_variable("SVC_TENANT", "umbrella")
        .with_variable("COLUMNS", "40");
    assert_eq!(elsewhere.run(&["catalog", "show"]).stdout, printed);
    for path in [env!("CARGO_MANIFEST_DIR"), "/home/", "/root", "/tmp"] {
        assert!(!printed.contains(path), "{path}");
    }
}

/// A command in the catalog.
fn command(name: &str) -> Value {
    let catalog = Client::new().run(&["catalog", "show", "--output", "json"]).json();
    let commands = catalog["commands"].as_array().unwrap();
    commands.iter().find(|command| command["name"] == name).unwrap().clone()
}

fn names<'a>(command: &'a Value, list: &str, key: &str) -> BTreeSet<&'a str> {
    command[list].as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

#[test]
fn shows_one_command_as_in_the_catalog_and_extended() {
    let client = Client::new();
    for words in [&["users", "disable"][..], &["svc", "users", "disable"], &["users disable"]] {
        let shown = client.run(&[&["catalog", "show"], words].concat()).json();
        assert_eq!(shown, command("users disable"));
        assert_valid_output("catalog show", &shown);
        let extended = client.run(&[&["catalog", "show", "--extended"], words].concat()).json();
        assert_eq!(extended["effect"], "destroys");
        assert_eq!(extended["environment"][0]["file"], "SVC_TOKEN_FILE");
        let declined =
            extended["errors"].as_array().unwrap().iter().find(|error| error["code"] == "declined").unwrap();
        assert_eq!((&declined["exit_code"], &declined["retryable"]), (&json!(1), &json!(false)));
    }
    let whole = client.run(&["catalog", "show", "--extended"]);
    let invalid = client.run_with(&["catalog", "validate", "-", "--output", "json"], &whole.stdout);
    assert_eq!(invalid.code, Some(7), "the format has no such fields");
}

#[test]
fn arguments_list_their_possible_values() {
    for (name, values) in [
        ("users set-role", "New role: member|admin"),
        ("config set", "Setting: base-url|tenant|ca-file|credential-store"),
    ] {
        let own = command(name);
        assert!(names(&own, "arguments", "description").contains(values), "{own}");
    }
}

#[test]
fn unknown_command_and_group_are_usage_errors_that_lead_on() {
    let client = Client::new();
    for (words, advice) in
        [(&["nonsense"][..], "svc catalog show --summary"), (&["auth", "sessions"], "`auth sessions list`")]
    {
        let result = client.run(&[&["catalog", "show"], words, &["--output", "json"]].concat());
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(2), Some("usage")));
        assert!(result.error()["remediation"].as_str().unwrap().contains(advice), "{result:?}");
    }
}

#[test]
fn summary_lists_every_command() {
    let client = Client::new();
    let own = command("auth login");
    let summary = client.run(&["catalog", "show", "--summary", "--output", "json"]).json();
    assert_valid_output("catalog show", &summary);
    let line = json!({
        "name": "auth login", "group": own["group"], "synopsis": own["synopsis"],
        "description": "Log in with a password, or with approval on another device",
    });
    assert_eq!(summary["commands"][0], line);
    let catalog = client.run(&["catalog", "show", "--output", "json"]).json();
    assert_eq!(names(&summary, "commands", "name"), names(&catalog, "commands", "name"));
    let table = client.run(&["catalog", "show", "--summary"]).stdout;
    assert!(table.contains("svc auth sessions revoke [OPTIONS] [SESSION_ID]"), "{table}");
}

#[test]
fn variables_of_a_command_are_the_ones_that_it_uses() {
    let catalog = Client::new().run(&["catalog", "show", "--extended", "--output", "json"]).json();
    // Without a route that takes it, a credential is not used: the command reports that it has none.
    for command in catalog["commands"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        let listed = command.get("environment").map(|_| names(command, "environment", "name"));
        let required = match name {
            "users set-role" => &["SVC_TOKEN"][..],
            "users get" | "users list" => &["SVC_TOKEN", "SVC_API_KEY", "SVC_PLATFORM_TOKEN"],
            "tenants list" => &["SVC_PLATFORM_TOKEN"],
            "catalog show" => &[],
            _ => continue,
        };
        assert_eq!(listed.unwrap_or_default(), required.iter().copied().collect(), "{name}");
        let arguments: Vec<&str> = match name {
            "users set-role" => vec!["users", "set-role", "01890a5d-ac96-774b-bcce-b302099a8057", "admin"],
            "users get" => vec!["users", "get", "01890a5d-ac96-774b-bcce-b302099a8057"],
            name => name.split(' ').collect(),
        };
        for variable in ["SVC_TOKEN", "SVC_API_KEY", "SVC_PLATFORM_TOKEN"] {
            let client = Client::for_url("http://127.0.0.1:1")
                .with_variable(variable, "x")
                .with_variable("SVC_TENANT", "acme");
            // The service is unreachable for a command that has its credential.
            let code = if name == "catalog show" {
                0
            } else if required.contains(&variable) {
                9
            } else {
                4
            };
            assert_eq!(client.run(&arguments).code, Some(code), "{name} with {variable}");
        }
    }
}
