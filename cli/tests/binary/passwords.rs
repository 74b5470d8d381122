//! Changing and resetting a password.

use contract::ProblemKind;
use serde_json::json;

use crate::client::{Client, assert_valid_output};
use crate::stub::{Asked, Stub, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn service(asked: &Asked) -> (u16, String) {
    match asked.line.as_str() {
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
        "POST /api/v1/auth/password/change" => match asked.json()["current_password"].as_str() {
            Some("old password here") => (204, String::new()),
            _ => problem(ProblemKind::LoginFailed),
        },
        "POST /api/v1/auth/password/reset" => (204, String::new()),
        "POST /api/v1/auth/password/reset/confirm" => match asked.json()["token"].as_str() {
            Some("svc_pr_good") => (204, String::new()),
            _ => problem(ProblemKind::TokenInvalid),
        },
        _ => problem(ProblemKind::NotFound),
    }
}

const CHANGE: [&str; 4] = ["auth", "password", "change", "--password-stdin"];

#[test]
fn a_password_is_changed_by_the_stored_session_which_lives_on() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    assert_eq!(client.run_with(&login, "old password here\n").code, Some(0));
    let ran = client
        .run_with(&[&CHANGE[..], &["--output", "json"]].concat(), "old password here\n a new password \n");
    assert_eq!(ran.json(), json!({"changed": true, "session_kept": true}));
    assert_valid_output("auth password change", &ran.json());
    let asked = &stub.asked()[1];
    assert_eq!(asked.header("x-tenant-id"), Some("acme"));
    assert_eq!(asked.header("x-user-id"), Some(USER));
    assert_eq!(asked.header("authorization"), Some("Bearer svc_st_good"));
    assert_eq!(
        asked.json(),
        json!({"current_password": "old password here", "new_password": " a new password "})
    );
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");
}

#[test]
fn whose_password_a_token_of_the_environment_changes_is_asked_for() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let ran = client.run_with(&CHANGE, "old password here\na new password\n");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(stub.lines(), ["GET /api/v1/auth/session", "POST /api/v1/auth/password/change"]);
    let asked = &stub.asked()[1];
    assert_eq!((asked.header("x-tenant-id"), asked.header("x-user-id")), (Some("acme"), Some(USER)));
    assert_eq!(asked.header("authorization"), Some("Bearer svc_st_x"));
}

#[test]
fn a_wrong_current_password_is_exit_status_4_and_tells_no_password() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let ran = client.run_with(
        &[&CHANGE[..], &["--output", "json", "--verbose"]].concat(),
        "a wrong one\na new password\n",
    );
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(4), Some("login_failed")));
    assert!(!ran.stderr.contains("a wrong one") && !ran.stderr.contains("a new password"), "{ran:?}");
}

#[test]
fn one_password_where_two_are_needed_is_refused_before_anything_is_asked() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let ran = client.run_with(&[&CHANGE[..], &["--output", "json"]].concat(), "old password here\n");
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(7), Some("input_invalid")));
    assert!(ran.error()["message"].as_str().unwrap().contains("new password"), "{ran:?}");
    assert!(stub.asked().is_empty());
    assert_eq!(client.run(&["auth", "password", "change"]).code, Some(12));
}

#[test]
fn a_reset_is_asked_for_and_says_the_same_whoever_it_is_for() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let reset = |email| client.run(&["auth", "password", "reset", "--email", email, "--tenant", "acme"]);
    let (known, unknown) = (reset("ada@acme.example"), reset("nobody@acme.example"));
    assert_eq!(known.code, Some(0), "{known:?}");
    assert!(known.stdout.contains("If there is such an account"), "{known:?}");
    assert_eq!((&known.stdout, &known.stderr), (&unknown.stdout, &unknown.stderr));
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("x-tenant-id"), Some("acme"));
    assert_eq!(asked.header("authorization"), None);
    assert_eq!(asked.json(), json!({"email": "ada@acme.example"}));
    let said = client.run(&[
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
    assert_valid_output("auth password reset", &said.json());
    let unsaid = client.run(&["auth", "password", "reset", "--tenant", "acme", "--output", "json"]);
    assert_eq!(unsaid.code, Some(12));
    assert!(unsaid.error()["remediation"].as_str().unwrap().contains("--email"));
}

#[test]
fn token_and_password_of_a_reset_may_both_come_from_standard_input() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let confirm = ["auth", "password", "confirm-reset"];
    let both = [&confirm[..], &["-", "--password-stdin", "--output", "json"]].concat();
    let ran = client.run_with(&both, "svc_pr_good \na new password\n");
    assert_eq!(ran.json(), json!({"changed": true, "session_kept": false}));
    assert_valid_output("auth password confirm-reset", &ran.json());
    assert_eq!(stub.asked()[0].json(), json!({"token": "svc_pr_good", "new_password": "a new password"}));

    let used = [&confirm[..], &["svc_pr_used", "--password-stdin", "--output", "json"]].concat();
    let ran = client.run_with(&used, "a new password\n");
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(7), Some("token_invalid")));
    assert!(!ran.stderr.contains("svc_pr_used"), "{ran:?}");
    assert_eq!(client.run(&confirm).code, Some(12));
    assert_eq!(client.run(&["auth", "password", "confirm-reset", "svc_pr_good"]).code, Some(12));
}
