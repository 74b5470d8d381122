//! `svc auth password`.

use contract::ProblemKind;
use serde_json::json;

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            let session = json!({
                "session_id": "svc_st_good", "token_type": "Bearer", "user_id": USER, "tenant_id": "acme",
                "role": "admin", "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        "GET /api/v1/auth/session" => {
            let whoami = json!({
                "subject_type": "user", "user_id": USER, "tenant_id": "acme", "role": "admin", "scopes": [],
                "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        "POST /api/v1/auth/password/change" => match request.json()["current_password"].as_str() {
            Some("old password here") => (204, String::new()),
            _ => problem(ProblemKind::LoginFailed),
        },
        "POST /api/v1/auth/password/reset" => (204, String::new()),
        "POST /api/v1/auth/password/reset/confirm" => match request.json()["token"].as_str() {
            Some("svc_pr_good") => (204, String::new()),
            _ => problem(ProblemKind::TokenInvalid),
        },
        _ => problem(ProblemKind::NotFound),
    }
}

const CHANGE: [&str; 4] = ["auth", "password", "change", "--password-stdin"];

#[test]
fn changes_the_password_and_keeps_the_session() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    assert_eq!(client.run_with(&login, "old password here\n").code, Some(0));
    let result = client
        .run_with(&[&CHANGE[..], &["--output", "json"]].concat(), "old password here\n a new password \n");
    assert_eq!(result.json(), json!({"changed": true, "session_kept": true}));
    assert_valid_output("auth password change", &result.json());
    let request = &stub.requests()[1];
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    assert_eq!(request.header("x-user-id"), Some(USER));
    assert_eq!(request.header("authorization"), Some("Bearer svc_st_good"));
    assert_eq!(
        request.json(),
        json!({"current_password": "old password here", "new_password": " a new password "})
    );
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");
}

#[test]
fn asks_the_service_for_the_user_of_a_token_in_the_environment() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let result = client.run_with(&CHANGE, "old password here\na new password\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(stub.request_lines(), ["GET /api/v1/auth/session", "POST /api/v1/auth/password/change"]);
    let request = &stub.requests()[1];
    assert_eq!((request.header("x-tenant-id"), request.header("x-user-id")), (Some("acme"), Some(USER)));
    assert_eq!(request.header("authorization"), Some("Bearer svc_st_x"));
}

#[test]
fn reads_passwords_from_the_lines_of_a_file() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let write = |text: &str| std::fs::write(client.home().join("passwords"), text).unwrap();
    let change = ["auth", "password", "change", "--password-file", "passwords"];
    write("old password here\n");
    let incomplete = client.run(&change);
    assert!(incomplete.stderr.contains("the file contains no new password"), "{incomplete:?}");
    assert!(stub.requests().is_empty());
    write("old password here\na new password\n");
    let result = client.run(&change);
    assert_eq!(result.code, Some(0), "{result:?}");
    let expected = json!({"current_password": "old password here", "new_password": "a new password"});
    assert_eq!(stub.requests()[1].json(), expected);
    let confirm = ["auth", "password", "confirm-reset", "-", "--password-file", "passwords"];
    let result = client.run_with(&confirm, "svc_pr_good\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(stub.requests()[2].json()["new_password"], "old password here");
    let both = [&confirm[..], &["--password-stdin"]].concat();
    assert_eq!(client.run_with(&both, "svc_pr_good\nx\n").code, Some(2));
}

#[test]
fn wrong_current_password_is_exit_status_4_and_not_logged() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let result = client.run_with(
        &[&CHANGE[..], &["--output", "json", "--verbose"]].concat(),
        "a wrong one\na new password\n",
    );
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(4), Some("login_failed")));
    assert!(
        !result.stderr.contains("a wrong one") && !result.stderr.contains("a new password"),
        "{result:?}"
    );
}

#[test]
fn missing_new_password_is_rejected_before_any_request() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let result = client.run_with(&[&CHANGE[..], &["--output", "json"]].concat(), "old password here\n");
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some("input_invalid")));
    assert!(result.error()["message"].as_str().unwrap().contains("new password"), "{result:?}");
    assert!(stub.requests().is_empty());
    assert_eq!(client.run(&["auth", "password", "change"]).code, Some(12));
}

#[test]
fn reset_output_does_not_depend_on_the_account() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let reset = |email| client.run(&["auth", "password", "reset", "--email", email, "--tenant", "acme"]);
    let (known, unknown) = (reset("ada@acme.example"), reset("unknown@acme.example"));
    assert_eq!(known.code, Some(0), "{known:?}");
    assert!(known.stdout.contains("If the account exists"), "{known:?}");
    assert_eq!((&known.stdout, &known.stderr), (&unknown.stdout, &unknown.stderr));
    let request = &stub.requests()[0];
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.json(), json!({"email": "ada@acme.example"}));
    let output = client.run(&[
        "auth",
        "password",
        "reset",
        "--email",
        "a@b.example",
        "--tenant",
        "acme",
        "--output",
        "json",
    ]);
    assert_valid_output("auth password reset", &output.json());
    let incomplete = client.run(&["auth", "password", "reset", "--tenant", "acme", "--output", "json"]);
    assert_eq!(incomplete.code, Some(12));
    assert!(incomplete.error()["remediation"].as_str().unwrap().contains("--email"));
}

#[test]
fn quiet_omits_the_sentence_about_the_result_but_not_the_json() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let reset = ["auth", "password", "reset", "--email", "ada@acme.example", "--tenant", "acme"];
    let result = client.run(&[&reset[..], &["--quiet"]].concat());
    assert_eq!((result.code, result.stdout + &result.stderr), (Some(0), String::new()));
    let result = client.run(&[&reset[..], &["--quiet", "--output", "json"]].concat());
    assert_eq!(result.json(), json!({"requested": true}));
}

#[test]
fn reads_reset_token_and_password_from_stdin() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let confirm = ["auth", "password", "confirm-reset"];
    let both = [&confirm[..], &["-", "--password-stdin", "--output", "json"]].concat();
    let result = client.run_with(&both, "svc_pr_good \na new password\n");
    assert_eq!(result.json(), json!({"changed": true, "session_kept": false}));
    assert_valid_output("auth password confirm-reset", &result.json());
    let sent = json!({"token": "svc_pr_good", "new_password": "a new password", "revoke_api_keys": false});
    assert_eq!(stub.requests()[0].json(), sent);
    let revoking = [&both[..], &["--revoke-api-keys"]].concat();
    assert_eq!(client.run_with(&revoking, "svc_pr_good\na new password\n").code, Some(0));
    assert_eq!(stub.requests()[1].json()["revoke_api_keys"], true);

    let result = client.run_with(&both, "svc_pr_used\na new password\n");
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some("token_invalid")));
    assert!(!result.stderr.contains("svc_pr_used"), "{result:?}");
    assert_eq!(client.run(&confirm).code, Some(12));
}
