//! Errors about a credential name the one in use.

use contract::ProblemKind;
use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};

/// A service that ends every session right after its login.
fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            let session = json!({
                "session_id": "svc_st_x", "token_type": "Bearer", "user_id": "01890a5d-ac96-774b-bcce-b302099a8057",
                "tenant_id": "acme", "role": "admin", "expires_at": "2030-01-01T00:00:00Z",
                "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        _ => problem(ProblemKind::CredentialInvalid),
    }
}

fn error_texts(client: &Client, command: &[&str]) -> (String, String) {
    let error = client.run(&[command, &["--output", "json"]].concat()).error();
    let text = |field: &str| error[field].as_str().unwrap().to_owned();
    (text("message"), text("remediation"))
}

#[test]
fn an_invalid_session_is_named_with_the_login_that_replaces_it() {
    let (stub, client) = (Stub::new(service), Client::new());
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    let result = client.run_with(&[&login[..], &["--base-url", &stub.url]].concat(), "x\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    let (message, remediation) = error_texts(&client, &["auth", "whoami"]);
    assert!(
        message.ends_with(
            "credential: the session of ada@acme.example in tenant acme, stored by `svc auth login`"
        ),
        "{message}"
    );
    assert!(remediation.contains("`svc auth login --email ada@acme.example --tenant acme`"), "{remediation}");
    // The credentials of a suspended tenant are rejected in the same way.
    assert!(remediation.contains("suspended: `svc tenants get`"), "{remediation}");
}

#[test]
fn an_invalid_credential_of_the_environment_is_named_by_its_variable() {
    let stub = Stub::new(service);
    let whoami: &[&str] = &["auth", "whoami"];
    let tenants: &[&str] = &["tenants", "list"];
    let files = Client::new();
    let file = files.home().join("token");
    std::fs::write(&file, "svc_x").unwrap();
    for (variable, command, advice) in [
        ("SVC_TOKEN", whoami, "unset SVC_TOKEN to use"),
        ("SVC_API_KEY", whoami, "svc api-keys create"),
        ("SVC_PLATFORM_TOKEN", tenants, "current platform token"),
        ("SVC_API_KEY", &["events", "tail"], "svc api-keys create"),
        ("SVC_API_KEY", whoami, "suspended: `svc tenants get`"),
    ] {
        let client = Client::for_url(&stub.url).with_variable(variable, "svc_x");
        let (message, remediation) = error_texts(&client, command);
        assert!(message.ends_with(&format!("credential: {variable}")), "{message}");
        assert!(remediation.contains(advice) && !remediation.contains("svc auth login"), "{remediation}");

        let of_file = format!("{variable}_FILE");
        let client = Client::for_url(&stub.url).with_variable(&of_file, file.to_str().unwrap());
        let (message, remediation) = error_texts(&client, command);
        assert!(message.ends_with(&format!("credential: {of_file} ({})", file.display())), "{message}");
        assert!(remediation.contains(&of_file), "{remediation}");
    }
}

#[test]
fn rejected_events_name_the_credential() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_x");
    let send = ["events", "send", "--file", "-", "--output", "json"];
    let error = client.run_with(&send, "{\"source_id\":\"fw\"}\n").error();
    assert!(error["message"].as_str().unwrap().ends_with("credential: SVC_API_KEY"), "{error}");
    assert!(error["remediation"].as_str().unwrap().contains("svc api-keys create"), "{error}");
}

#[test]
fn missing_permissions_name_the_credential() {
    let stub = Stub::new(|_| problem(ProblemKind::InsufficientScope));
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_x");
    let (message, remediation) = error_texts(&client, &["users", "list"]);
    assert!(message.ends_with("credential: SVC_API_KEY"), "{message}");
    assert!(remediation.contains("svc api-keys create --scope"), "{remediation}");

    let stub = Stub::new(|_| problem(ProblemKind::ReauthenticationRequired));
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_x");
    let (_, remediation) = error_texts(&client, &["api-keys", "create", "--name", "x"]);
    assert!(remediation.starts_with("Unset SVC_TOKEN, run `svc auth login`"), "{remediation}");
}

#[test]
fn an_error_that_is_not_about_the_credential_does_not_name_it() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_x");
    let (message, _) = error_texts(&client, &["invites", "list"]);
    assert!(!message.contains("SVC_API_KEY"), "{message}");
}

#[test]
fn the_credential_in_use_is_listed() {
    let client = Client::new();
    let credential = |client: &Client| client.run(&["config", "get", "credential"]).stdout;
    assert_eq!(credential(&client), "");
    assert_eq!(credential(&client.with_variable("SVC_API_KEY", "svc_x")), "SVC_API_KEY\n");
}

#[test]
fn a_platform_token_alone_is_shown_and_its_option_is_named() {
    let client = Client::new().with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let status = client.run(&["auth", "status", "--output", "json"]).json();
    assert_eq!(
        (&status["items"][0]["source"], &status["items"][0]["current"]),
        (&"SVC_PLATFORM_TOKEN".into(), &true.into())
    );
    let credential = client.run(&["config", "get", "credential"]);
    assert!(credential.stdout.contains("SVC_PLATFORM_TOKEN"), "{credential:?}");
    let result = client.run(&["api", "GET", "/users", "--output", "json"]);
    assert_eq!(result.code, Some(4), "{result:?}");
    assert!(result.error()["remediation"].as_str().unwrap().contains("--platform-admin"), "{result:?}");
}
