//! Contexts: `svc config`, `--context`, `svc auth switch`, and which value of a setting wins.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A service with one session per tenant: `svc_st_<tenant>`.
fn service(request: &StubRequest) -> (u16, String) {
    let tenant = request.header("x-tenant-id").unwrap_or_default();
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            let session = json!({
                "session_id": format!("svc_st_{tenant}"), "token_type": "Bearer", "user_id": USER, "tenant_id": tenant,
                "role": "admin", "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        "POST /api/v1/auth/sessions/logout" => (204, String::new()),
        "GET /api/v1/auth/session"
            if request.header("authorization") == Some(&format!("Bearer svc_st_{tenant}")) =>
        {
            let whoami = json!({
                "subject_type": "user", "user_id": USER, "tenant_id": tenant, "role": "admin", "scopes": [],
                "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        _ => problem(ProblemKind::CredentialInvalid),
    }
}

fn log_in(client: &Client, stub: &Stub, tenant: &str, more: &[&str]) -> Value {
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", tenant, "--password-stdin"];
    let arguments = [&login[..], &["--base-url", &stub.url, "--output", "json"], more].concat();
    let printed = client.run_with(&arguments, "correct horse battery\n").json();
    assert_valid_output("auth login", &printed);
    printed
}

/// Runs a command with JSON output, which must succeed and match its schema.
fn json(client: &Client, arguments: &[&str]) -> Value {
    let printed = client.run(&[arguments, &["--output", "json"]].concat()).json();
    assert_valid_output(&arguments[..2].join(" "), &printed);
    printed
}

/// Value and origin of a setting.
fn setting(client: &Client, key: &str, options: &[&str]) -> (String, String) {
    let printed = json(client, &[&["config", "get", key], options].concat());
    let text = |field: &str| printed[field].as_str().unwrap_or("none").to_owned();
    (text("value"), text("origin"))
}

fn tenant_of(client: &Client, options: &[&str]) -> String {
    let whoami = client.run(&[&["auth", "whoami", "--output", "json"], options].concat()).json();
    whoami["tenant_id"].as_str().unwrap().to_owned()
}

fn assert_failed(result: &CommandResult, code: i32, name: &str) -> Value {
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(code), Some(name)), "{result:?}");
    error
}

#[test]
fn the_first_of_option_variable_context_and_default_wins() {
    let client = Client::new();
    assert_eq!(setting(&client, "base-url", &[]), ("http://localhost:8080".into(), "default".into()));
    assert_eq!(setting(&client, "tenant", &[]), ("none".into(), "none".into()));
    client.run(&["config", "set", "base-url", "https://svc.example/api/v1/"]).code.unwrap();
    client.run(&["config", "set", "tenant", "acme"]);
    let of_context = |value: &str| (value.to_owned(), "context default".to_owned());
    assert_eq!(setting(&client, "base-url", &[]), of_context("https://svc.example"));
    assert_eq!(setting(&client, "tenant", &[]), of_context("acme"));
    assert_eq!(setting(&client, "context", &[]), ("default".into(), "current".into()));
    let client = client
        .with_variable("SVC_BASE_URL", "https://variable.example")
        .with_variable("SVC_TENANT", "umbrella")
        .with_variable("SVC_OUTPUT", "ndjson")
        .with_variable("SVC_CA_FILE", "variable.pem");
    assert_eq!(setting(&client, "base-url", &[]), ("https://variable.example".into(), "SVC_BASE_URL".into()));
    assert_eq!(setting(&client, "tenant", &[]), ("umbrella".into(), "SVC_TENANT".into()));
    assert_eq!(setting(&client, "ca-file", &[]), ("variable.pem".into(), "SVC_CA_FILE".into()));
    let printed = client.run(&["config", "get", "output"]).stdout;
    assert!(printed.contains(r#""origin":"SVC_OUTPUT""#), "{printed}");
    let options = ["--base-url", "https://option.example", "--tenant", "initech", "--ca-file", "option.pem"];
    for (key, value) in [("base-url", options[1]), ("tenant", options[3]), ("ca-file", options[5])] {
        assert_eq!(setting(&client, key, &options), (value.into(), format!("--{key}")));
    }
    assert_eq!(setting(&client, "output", &[]), ("json".into(), "--output".into()));
}

#[test]
fn a_context_does_not_apply_to_another_service() {
    let client = Client::new();
    client.run(&["config", "set", "base-url", "https://svc.example"]);
    client.run(&["config", "set", "tenant", "acme"]);
    let elsewhere = ["--base-url", "https://other.example"];
    assert_eq!(setting(&client, "tenant", &elsewhere), ("none".into(), "none".into()));
    let same = ["--base-url", "https://SVC.example:443/"];
    assert_eq!(setting(&client, "tenant", &same), ("acme".into(), "context default".into()));
}

#[test]
fn a_login_creates_a_context_and_makes_it_current() {
    let (stub, client) = (Stub::new(service), Client::new());
    assert_eq!(log_in(&client, &stub, "acme", &[])["context"], "acme");
    assert_eq!(log_in(&client, &stub, "umbrella", &[])["context"], "umbrella");
    assert_eq!(tenant_of(&client, &[]), "umbrella");
    let listed = json(&client, &["config", "list"]);
    let contexts = listed["contexts"].as_array().unwrap();
    let of = |index: usize, field: &str| contexts[index][field].clone();
    assert_eq!(
        (of(0, "name"), of(0, "current"), of(0, "tenant_id")),
        (json!("acme"), json!(false), json!("acme"))
    );
    assert_eq!(
        (of(1, "name"), of(1, "current"), of(1, "base_url")),
        (json!("umbrella"), json!(true), json!(stub.url))
    );
    assert_eq!(of(1, "email"), "ada@acme.example");
    let table = client.run(&["config", "list"]).stdout;
    assert!(
        table.contains("SETTING") && table.contains("context umbrella") && table.contains("CONTEXT"),
        "{table}"
    );
}

#[test]
fn the_context_option_and_its_variable_choose_the_context_of_one_command() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &["--context", "production"]);
    log_in(&client, &stub, "umbrella", &[]);
    assert_eq!(tenant_of(&client, &["--context", "production"]), "acme");
    let client = client.with_variable("SVC_CONTEXT", "production");
    assert_eq!(tenant_of(&client, &[]), "acme");
    assert_eq!(tenant_of(&client, &["--context", "umbrella"]), "umbrella");
    assert_eq!(setting(&client, "context", &[]), ("production".into(), "SVC_CONTEXT".into()));
    let unknown = client.run(&["auth", "whoami", "--context", "staging", "--output", "json"]);
    let error = assert_failed(&unknown, 11, "configuration_invalid");
    assert!(error["message"].as_str().unwrap().contains("staging"), "{error}");
    assert!(error["remediation"].as_str().unwrap().contains("svc config list"), "{error}");
}

#[test]
fn a_named_context_is_the_tenant_of_an_api_key_too() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    let client = client.with_variable("SVC_API_KEY", "svc_ak_x");
    client.run(&["auth", "whoami"]);
    client.run(&["auth", "whoami", "--context", "acme"]);
    let requests = stub.requests();
    let tenants: Vec<_> = requests[1..].iter().map(|request| request.header("x-tenant-id")).collect();
    assert_eq!(tenants, [None, Some("acme")]);
}

#[test]
fn use_context_changes_the_current_context_and_names_the_previous_one() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    log_in(&client, &stub, "umbrella", &[]);
    let used = json(&client, &["config", "use-context", "acme"]);
    assert_eq!((&used["context"], &used["previous"]), (&json!("acme"), &json!("umbrella")));
    assert_eq!(tenant_of(&client, &[]), "acme");
    let client = client.with_variable("SVC_TENANT", "acme");
    let warned = client.run(&["config", "use-context", "umbrella"]);
    assert!(warned.stderr.contains("SVC_TENANT is set and takes precedence"), "{warned:?}");
    assert_failed(
        &client.run(&["config", "use-context", "staging", "--output", "json"]),
        11,
        "configuration_invalid",
    );
}

#[test]
fn a_login_warns_about_variables_with_other_values() {
    let stub = Stub::new(service);
    let client = Client::new().with_variable("SVC_TENANT", "umbrella");
    let login = ["auth", "login", "--email", "ada@acme.example", "--password-stdin", "--base-url", &stub.url];
    for (options, warns) in [(&["--tenant", "acme"][..], true), (&[], false)] {
        let result = client.run_with(&[&login[..], options].concat(), "correct horse battery\n");
        assert_eq!(result.code, Some(0), "{result:?}");
        assert_eq!(result.stderr.contains("SVC_TENANT is set and takes precedence"), warns, "{result:?}");
    }
    let same = client.run(&["config", "use-context", "umbrella"]);
    assert!(same.code == Some(0) && !same.stderr.contains("takes precedence"), "{same:?}");
}

#[test]
fn an_address_with_a_space_is_the_same_account() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    let login = ["auth", "login", "--email", " ada@acme.example ", "--tenant", "acme", "--password-stdin"];
    let options = ["--base-url", &stub.url, "--output", "json"];
    let again = client.run_with(&[&login[..], &options].concat(), "correct horse battery\n").json();
    assert_eq!((&again["context"], &again["email"]), (&json!("acme"), &json!("ada@acme.example")));
    assert_eq!(json(&client, &["config", "list"])["contexts"].as_array().unwrap().len(), 1);
    let revoked = "POST /api/v1/auth/sessions/logout".to_owned();
    assert!(stub.request_lines().contains(&revoked), "the first session is revoked");
}

#[test]
fn an_error_without_a_login_names_the_contexts_of_the_others() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    for (setting, value) in [("base-url", stub.url.as_str()), ("tenant", "acme")] {
        json(&client, &["config", "set", setting, value, "--context", "second"]);
    }
    json(&client, &["config", "use-context", "second"]);
    let error = assert_failed(&client.run(&["auth", "whoami", "-o", "json"]), 4, "not_logged_in");
    assert!(error["message"].as_str().unwrap().ends_with("in context second"), "{error}");
    let remediation = error["remediation"].as_str().unwrap();
    assert!(remediation.contains("in context acme (ada@acme.example)"), "{error}");
}

#[test]
fn set_and_unset_change_one_context_and_print_the_previous_value() {
    let client = Client::new();
    let set = |value: &str| json(&client, &["config", "set", "tenant", value, "--context", "staging"]);
    assert_eq!(set("acme")["previous"], Value::Null);
    let changed = set("umbrella");
    assert_eq!((&changed["context"], &changed["previous"]), (&json!("staging"), &json!("acme")));
    assert_eq!(setting(&client, "tenant", &[]).0, "umbrella", "the first context is the current one");
    assert_eq!(json(&client, &["config", "unset", "tenant"])["previous"], "umbrella");
    assert_eq!(setting(&client, "tenant", &[]).0, "none");
}

#[test]
fn invalid_values_change_nothing() {
    let client = Client::new();
    client.run(&["config", "set", "tenant", "acme"]);
    let before = std::fs::read_to_string(client.home().join(".config/svc/config.json")).unwrap();
    std::fs::write(client.home().join("empty.pem"), "").unwrap();
    for (key, value, code) in [
        ("base-url", "svc.example", 11),
        ("tenant", "Acme!", 7),
        ("ca-file", "missing.pem", 11),
        ("ca-file", "empty.pem", 11),
        ("colour", "x", 2),
    ] {
        let result = client.run(&["config", "set", key, value, "--output", "json"]);
        assert_eq!(result.code, Some(code), "{result:?}");
    }
    assert_failed(
        &client.run(&["config", "unset", "tenant", "--context", "x", "--output", "json"]),
        11,
        "configuration_invalid",
    );
    assert_eq!(std::fs::read_to_string(client.home().join(".config/svc/config.json")).unwrap(), before);
}

#[test]
fn a_deleted_context_keeps_its_session_and_switch_restores_it() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    let deleted = json(&client, &["config", "delete-context", "acme"]);
    assert_eq!((&deleted["context"], &deleted["tenant_id"]), (&json!("acme"), &json!("acme")));
    assert_failed(
        &client.run(&["auth", "whoami", "--base-url", &stub.url, "--output", "json"]),
        4,
        "not_logged_in",
    );
    assert_eq!(json(&client, &["auth", "switch"])["context"], "acme");
    assert_eq!(tenant_of(&client, &[]), "acme");
}

#[test]
fn logout_keeps_the_context() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    assert_eq!(client.run(&["auth", "logout"]).code, Some(0));
    assert_eq!(setting(&client, "base-url", &[]), (stub.url.clone(), "context acme".into()));
    assert_eq!(setting(&client, "tenant", &[]).0, "acme");
}

#[test]
fn switch_chooses_the_other_login_or_the_one_of_the_options() {
    let (here, there, client) = (Stub::new(service), Stub::new(service), Client::new());
    assert_failed(&client.run(&["auth", "switch", "--output", "json"]), 4, "not_logged_in");
    log_in(&client, &here, "acme", &[]);
    log_in(&client, &here, "umbrella", &[]);
    for tenant in ["acme", "umbrella", "acme"] {
        assert_eq!(json(&client, &["auth", "switch"])["tenant_id"], tenant);
        assert_eq!(tenant_of(&client, &[]), tenant);
    }
    log_in(&client, &there, "acme", &[]);
    let error = assert_failed(&client.run(&["auth", "switch", "--output", "json"]), 12, "input_needed");
    assert!(error["remediation"].as_str().unwrap().contains("--tenant"), "{error}");
    assert_eq!(json(&client, &["auth", "switch", "--tenant", "umbrella"])["context"], "umbrella");
    let other = client.run(&["auth", "switch", "nobody@acme.example", "--output", "json"]);
    assert_failed(&other, 4, "not_logged_in");
    let switched = json(&client, &["auth", "switch", "--tenant", "acme", "--base-url", &here.url]);
    assert_eq!((&switched["context"], &switched["base_url"]), (&json!("acme"), &json!(here.url)));
    assert_eq!(json(&client, &["auth", "switch", "--base-url", &there.url])["base_url"], there.url.as_str());
    assert_failed(
        &client.run(&["auth", "switch", "--tenant", "initech", "--output", "json"]),
        4,
        "not_logged_in",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn switch_asks_on_a_terminal_if_there_are_more_than_two_logins() {
    let (stub, client) = (Stub::new(service), Client::new());
    for tenant in ["acme", "initech", "umbrella"] {
        log_in(&client, &stub, tenant, &[]);
    }
    let result = crate::terminal::run_at_terminal(&client, &["auth", "switch"], "2\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.stderr.contains("3  ada@acme.example in umbrella at"), "{result:?}");
    assert_eq!(tenant_of(&client, &[]), "initech");
    let result = crate::terminal::run_at_terminal(&client, &["auth", "switch"], "4\n");
    assert_eq!(result.code, Some(7), "{result:?}");
}

#[test]
fn a_malformed_configuration_file_is_named() {
    let client = Client::new();
    client.run(&["config", "set", "tenant", "acme"]);
    let path = client.home().join(".config/svc/config.json");
    for text in ["{", r#"{"contexts":{"a":{"tenant":7}}}"#, r#"{"contexts":{"a":{"tenant":"Acme!"}}}"#] {
        std::fs::write(&path, text).unwrap();
        let error =
            assert_failed(&client.run(&["auth", "whoami", "--output", "json"]), 11, "configuration_invalid");
        assert!(error["remediation"].as_str().unwrap().contains(path.to_str().unwrap()), "{error}");
        assert_eq!(client.run(&["version"]).code, Some(0));
        assert_eq!(client.run(&["config", "path"]).code, Some(0));
    }
}

#[test]
fn fields_of_a_later_version_are_kept() {
    let client = Client::new();
    client.run(&["config", "set", "tenant", "acme"]);
    let path = client.home().join(".config/svc/config.json");
    let text = r#"{"current_context":"a","contexts":{"a":{"tenant":"acme","color":"red"}},"later":[1]}"#;
    std::fs::write(&path, text).unwrap();
    assert_eq!(setting(&client, "tenant", &[]).0, "acme");
    assert_eq!(client.run(&["config", "set", "tenant", "umbrella"]).code, Some(0));
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&kept["contexts"]["a"]["color"], &kept["later"]), (&json!("red"), &json!([1])));
}

#[test]
fn the_contexts_are_listed_in_spite_of_a_wrong_one() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "acme", &[]);
    let client = client.with_variable("SVC_CONTEXT", "typo");
    let listed = client.run(&["config", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(
        listed.stdout.contains("acme") && listed.stderr.contains("no context is named typo"),
        "{listed:?}"
    );
    let error = assert_failed(&client.run(&["auth", "whoami", "-o", "json"]), 11, "configuration_invalid");
    assert!(error["remediation"].as_str().unwrap().contains("unset --context (SVC_CONTEXT)"), "{error}");
}

#[test]
fn concurrent_logins_are_all_stored() {
    let (stub, client) = (Stub::new(service), Client::new());
    let tenants = ["a", "b", "c", "d", "e", "f"];
    std::thread::scope(|scope| {
        for tenant in tenants {
            scope.spawn(|| log_in(&client, &stub, tenant, &[]));
        }
    });
    for tenant in tenants {
        assert_eq!(tenant_of(&client, &["--context", tenant]), tenant);
    }
}
