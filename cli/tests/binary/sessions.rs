//! Logging in, acting with what was stored, and ending sessions.

use contract::ProblemKind;
use serde_json::json;

use crate::client::Client;
use crate::stub::{Asked, Stub, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const LISTED: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

/// Answers like a service in which one session, `svc_st_good`, is live.
fn service(asked: &Asked) -> (u16, String) {
    let bearer = asked.header("authorization");
    match asked.line.split('?').next().unwrap() {
        "POST /api/v1/auth/password/login" => {
            let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
            if body["password"] != "correct horse battery" {
                return problem(ProblemKind::LoginFailed);
            }
            let session = json!({
                "session_id": "svc_st_good", "token_type": "Bearer", "user_id": USER, "tenant_id": "acme",
                "role": "admin", "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        _ if asked.line.ends_with("/auth/sessions/logout") => match asked.header("x-session-id") {
            Some("svc_st_unknown") => problem(ProblemKind::SessionNotFound),
            _ => (204, String::new()),
        },
        _ if bearer != Some("Bearer svc_st_good") => problem(ProblemKind::CredentialInvalid),
        "GET /api/v1/auth/sessions" => {
            let session = json!({
                "id": LISTED, "created_at": "2026-01-01T00:00:00Z", "last_seen_at": "2026-01-01T00:00:00Z",
                "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z", "method": "password",
                "ip": "evil\u{1b}[2J", "user_agent": "a client", "current": true,
            });
            (200, json!({"items": [session]}).to_string())
        }
        "GET /api/v1/auth/session" => {
            let whoami = json!({
                "subject_type": "user", "user_id": USER, "tenant_id": "acme", "role": "admin",
                "scopes": ["events:write"], "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        "DELETE /api/v1/auth/sessions/01890a5d-ac96-774b-bcce-b302099a8058" => (204, String::new()),
        _ => problem(ProblemKind::NotFound),
    }
}

fn logged_in(stub: &Stub) -> Client {
    // No variable names the service: what the login stored does.
    let client = Client::new();
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    let ran = client.run_with(&[&login[..], &["--base-url", &stub.url]].concat(), "correct horse battery\n");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stdout.contains("svc_st_good"), "{ran:?}");
    client
}

#[test]
fn a_login_is_stored_for_its_owner_alone_and_later_commands_act_with_it() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&client.credentials()), 0o600);
        assert_eq!(mode(client.credentials().parent().unwrap()), 0o700);
    }
    let listed = client.run(&["auth", "sessions", "list", "--output", "json"]).json();
    assert_eq!(listed["items"][0]["id"], LISTED);

    let asked = stub.asked();
    assert_eq!(asked[0].header("x-tenant-id"), Some("acme"));
    assert_eq!(asked[0].header("authorization"), None);
    assert_eq!(asked[1].header("authorization"), Some("Bearer svc_st_good"));
    assert_eq!(asked[1].header("x-user-id"), Some(USER));
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");
    let status = client.run(&["auth", "status", "--output", "json"]).json();
    assert_eq!(
        (&status["items"][0]["current"], &status["items"][0]["tenant_id"]),
        (&json!(true), &json!("acme"))
    );
}

#[test]
fn a_refused_login_stores_nothing() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let login = [
        "auth",
        "login",
        "--email",
        "a@b.example",
        "--tenant",
        "acme",
        "--password-stdin",
        "--output",
        "json",
    ];
    let ran = client.run_with(&login, "wrong\n");
    let error = ran.error();
    assert_eq!((ran.code, error["code"].as_str()), (Some(4), Some("login_failed")));
    assert_eq!(error["request_id"], "of-the-stub");
    assert_eq!(error["remediation"], ProblemKind::LoginFailed.remedy());
    assert!(!client.credentials().exists());
}

#[test]
fn the_sessions_of_another_user_are_asked_for_by_id() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    let other = "01890a5d-ac96-774b-bcce-b302099a8099";
    assert_eq!(client.run(&["auth", "sessions", "list", "--user-id", other]).code, Some(0));
    assert_eq!(stub.asked()[1].header("x-user-id"), Some(other));
}

#[test]
fn what_the_service_sends_cannot_steer_the_terminal() {
    let stub = Stub::answering(service);
    let ran = logged_in(&stub).run(&["auth", "sessions", "list"]);
    assert!(ran.stdout.contains("evil\\u{1b}[2J") && !ran.stdout.contains('\u{1b}'), "{ran:?}");
    assert!(ran.stdout.starts_with("ID "), "{ran:?}");
    // A line of the table, with an address as long as IPv4 makes them.
    let line = ran.stdout.lines().nth(1).unwrap();
    assert!(line.contains("2026-01-01T00:00Z") && line.len() < 120, "{line}");
}

#[test]
fn a_list_as_ndjson_is_an_item_a_line() {
    let stub = Stub::answering(service);
    let ran = logged_in(&stub).run(&["auth", "sessions", "list", "--output", "ndjson"]);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0]["id"].as_str()), (1, Some(LISTED)));
}

#[test]
fn a_raw_token_is_revoked_by_its_header_and_forgotten_when_it_was_stored() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    let ran = client.run_with(&["auth", "sessions", "revoke", "-", "--output", "json"], "svc_st_good\n");
    assert_eq!(ran.json(), json!({"revoked": true, "forgotten": true}));
    let asked = &stub.asked()[1];
    assert_eq!(asked.line, "POST /api/v1/auth/sessions/logout");
    assert_eq!(asked.header("x-session-id"), Some("svc_st_good"));
    assert_eq!(asked.header("authorization"), None);
    assert_eq!(client.run(&["auth", "whoami"]).code, Some(4));
}

#[test]
fn a_raw_token_needs_no_login_and_one_that_never_was_is_not_found() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let ran = client.run(&["auth", "sessions", "revoke", "svc_st_other", "--output", "json"]);
    assert_eq!(ran.json()["forgotten"], false);
    let ran = client.run(&["auth", "sessions", "revoke", "svc_st_unknown", "--output", "json"]);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(3), Some("session_not_found")));
}

#[test]
fn a_listed_id_is_deleted_and_a_session_that_lives_on_stays_stored() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    let ran = client.run(&["auth", "sessions", "revoke", LISTED, "--output", "json"]);
    assert_eq!(ran.json(), json!({"revoked": true, "forgotten": false}));
    let expected = [format!("DELETE /api/v1/auth/sessions/{LISTED}"), "GET /api/v1/auth/session".into()];
    assert_eq!(stub.lines()[1..], expected);
    assert_eq!(client.run(&["auth", "whoami"]).code, Some(0));
}

#[test]
fn a_listed_id_that_was_the_own_session_is_forgotten() {
    let stub = Stub::answering(|asked| match asked.line.as_str() {
        "GET /api/v1/auth/session" => problem(ProblemKind::CredentialInvalid),
        _ => service(asked),
    });
    let client = logged_in(&stub);
    let ran = client.run(&["auth", "sessions", "revoke", LISTED, "--output", "json"]);
    assert_eq!(ran.json(), json!({"revoked": true, "forgotten": true}));
    assert_eq!(client.run(&["auth", "token"]).code, Some(4));
}

#[test]
fn what_is_neither_a_token_nor_an_id_is_refused_before_anything_is_asked() {
    let stub = Stub::answering(service);
    let ran = Client::of(&stub.url).run(&["auth", "sessions", "revoke", "svc_ak_secret", "--output", "json"]);
    assert_eq!(ran.code, Some(7));
    assert!(!ran.stderr.contains("svc_ak_secret"), "{ran:?}");
    assert!(stub.asked().is_empty());
}

#[test]
fn logging_out_forgets_the_session_here_and_there() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    assert_eq!(client.run(&["auth", "logout", "--output", "json"]).json()["forgotten"], true);
    assert_eq!(stub.asked()[1].header("x-session-id"), Some("svc_st_good"));
    assert_eq!(client.run(&["auth", "logout"]).code, Some(4));
}

#[test]
fn a_token_of_the_environment_wins_over_a_login_and_its_user_is_asked_for() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub).with("SVC_TOKEN", "svc_st_good");
    assert_eq!(client.run(&["auth", "sessions", "list"]).code, Some(0));
    assert_eq!(stub.lines()[1..], ["GET /api/v1/auth/session", "GET /api/v1/auth/sessions?limit=200"]);
    let refused = client.with("SVC_TOKEN", "svc_st_bad").run(&["auth", "whoami", "--output", "json"]);
    assert_eq!((refused.code, refused.error()["code"].as_str()), (Some(4), Some("credential_invalid")));
}

#[test]
fn verbose_tells_requests_and_never_a_credential() {
    let stub = Stub::answering(service);
    let client = logged_in(&stub);
    let ran = client.run(&["auth", "whoami", "--verbose"]);
    assert!(
        ran.stderr.contains("GET ") && ran.stderr.contains("200 OK") && ran.stderr.contains("of-the-stub"),
        "{ran:?}"
    );
    let ran = client.run(&["auth", "sessions", "revoke", "svc_st_good", "--verbose"]);
    assert!(!ran.stderr.contains("svc_st_good"), "{ran:?}");
}

#[test]
fn all_requests_of_a_command_belong_to_one_trace_which_verbose_tells() {
    let stub = Stub::answering(service);
    let place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (given, begins) in [("", "00-"), (place, place), ("nonsense", "00-")] {
        let before = stub.asked().len();
        let ran = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_good").with("TRACEPARENT", given).run(&[
            "auth",
            "sessions",
            "list",
            "--verbose",
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let asked = &stub.asked()[before..];
        let sent = asked[0].header("traceparent").unwrap();
        assert!(asked.len() == 2 && asked[1].header("traceparent") == Some(sent), "{asked:?}");
        assert!(sent.starts_with(begins) && sent.len() == place.len(), "{sent}");
        assert_eq!(ran.stderr.matches(&format!("trace {}\n", &sent[3..35])).count(), 1, "{ran:?}");
    }
    let traces: std::collections::HashSet<_> =
        stub.asked().iter().map(|asked| asked.header("traceparent").unwrap().to_owned()).collect();
    assert_eq!(traces.len(), 3, "a command that was given none begins its own");
}

#[test]
fn a_busy_service_is_asked_again_only_where_that_is_harmless() {
    let stub = Stub::answering(|asked| match asked.line.as_str() {
        "POST /api/v1/auth/password/login" => problem(ProblemKind::DependencyUnavailable),
        _ => problem(ProblemKind::Overloaded),
    });
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_good");
    let login = ["auth", "login", "--email", "a@b.example", "--tenant", "acme", "--password-stdin"];
    assert_eq!(client.run_with(&login, "password\n").code, Some(9));
    assert_eq!(stub.asked().len(), 1);
    assert_eq!(client.run(&["auth", "whoami", "--timeout", "1500ms"]).code, Some(9));
    assert_eq!(stub.asked().len(), 3);
}

#[test]
fn a_password_is_read_from_a_file_where_nothing_else_can_hold_it() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let file = tempfile::NamedTempFile::new().unwrap();
    let login = |file: &str| {
        client.run(&[
            "auth",
            "login",
            "--email",
            "a@b.c",
            "--tenant",
            "acme",
            "--password-file",
            file,
            "--output",
            "json",
        ])
    };
    let path = file.path().to_str().unwrap();
    let empty = login(path);
    assert_eq!((empty.code, empty.error()["code"].as_str()), (Some(7), Some("input_invalid")));
    std::fs::write(file.path(), "correct horse battery\n").unwrap();
    assert_eq!(login(path).code, Some(0));
    let missing = login("/nowhere/password");
    assert_eq!((missing.code, missing.error()["code"].as_str()), (Some(7), Some("input_unreadable")));
}
