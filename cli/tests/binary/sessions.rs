//! Login, stored sessions, and `svc auth sessions`.

use contract::ProblemKind;
use serde_json::json;

use crate::client::{Client, CommandResult, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::run_at_terminal;

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const LISTED: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

/// A service with one active session, `svc_st_good`.
fn service(request: &StubRequest) -> (u16, String) {
    let bearer = request.header("authorization");
    match request.line.split('?').next().unwrap() {
        "POST /api/v1/auth/password/login" => {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            if body["password"] != "correct horse battery" {
                return problem(ProblemKind::LoginFailed);
            }
            let session = json!({
                "session_id": "svc_st_good", "token_type": "Bearer", "user_id": USER, "tenant_id": "acme",
                "role": "admin", "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        _ if request.line.ends_with("/auth/sessions/logout") => match request.header("x-session-id") {
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
        "DELETE /api/v1/auth/sessions/01890a5d-ac96-774b-bcce-b302099a8058"
        | "DELETE /api/v1/auth/sessions" => (204, String::new()),
        _ => problem(ProblemKind::NotFound),
    }
}

fn logged_in(stub: &Stub) -> Client {
    // The base URL is stored by the login.
    let client = Client::new();
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    let result =
        client.run_with(&[&login[..], &["--base-url", &stub.url]].concat(), "correct horse battery\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(!result.stdout.contains("svc_st_good"), "{result:?}");
    client
}

#[test]
fn login_is_stored_privately_and_used_by_later_commands() {
    let stub = Stub::new(service);
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

    let request = stub.requests();
    assert_eq!(request[0].header("x-tenant-id"), Some("acme"));
    assert_eq!(request[0].header("authorization"), None);
    assert_eq!(request[1].header("authorization"), Some("Bearer svc_st_good"));
    assert_eq!(request[1].header("x-user-id"), Some(USER));
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");
    let status = client.run(&["auth", "status", "--output", "json"]).json();
    assert_eq!(
        (&status["items"][0]["current"], &status["items"][0]["tenant_id"]),
        (&json!(true), &json!("acme"))
    );
}

#[test]
fn failed_login_stores_nothing() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
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
    let result = client.run_with(&login, "wrong\n");
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(4), Some("login_failed")));
    assert_eq!(error["request_id"], "of-the-stub");
    assert_eq!(
        error["remediation"],
        "Check the password, --email and --tenant. After several failures, wait a few minutes or run `svc auth password reset`. \
         If no login of the tenant works, ask the platform administrator whether it is suspended: `svc tenants get`."
    );
    assert!(!client.credentials().exists());
}

#[test]
fn lists_sessions_of_another_user() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let other = "01890a5d-ac96-774b-bcce-b302099a8099";
    assert_eq!(client.run(&["auth", "sessions", "list", "--user-id", other]).code, Some(0));
    assert_eq!(stub.requests()[1].header("x-user-id"), Some(other));
}

#[test]
fn table_escapes_control_characters() {
    let stub = Stub::new(service);
    let result = logged_in(&stub).run(&["auth", "sessions", "list"]);
    assert!(result.stdout.contains("evil\\u{1b}[2J") && !result.stdout.contains('\u{1b}'), "{result:?}");
    assert!(result.stdout.starts_with("   ID "), "{result:?}");
    // The first line of the table after the headings.
    let line = result.stdout.lines().nth(1).unwrap();
    assert!(line.starts_with(&format!("*  {LISTED}  ")) && line.ends_with("  password"), "{line}");
    assert!(line.contains("  2026-01-01T00:00:00Z  "), "{line}");
}

#[test]
fn ndjson_list_has_one_item_per_line() {
    let stub = Stub::new(service);
    let result = logged_in(&stub).run(&["auth", "sessions", "list", "--output", "ndjson"]);
    let lines: Vec<serde_json::Value> =
        result.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0]["id"].as_str()), (1, Some(LISTED)));
}

#[test]
fn revokes_a_raw_token_and_removes_it_from_the_store() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let result = client.run_with(&["auth", "sessions", "revoke", "-", "--output", "json"], "svc_st_good\n");
    assert_eq!(result.json(), json!({"revoked": true, "forgotten": true}));
    let request = &stub.requests()[1];
    assert_eq!(request.line, "POST /api/v1/auth/sessions/logout");
    assert_eq!(request.header("x-session-id"), Some("svc_st_good"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(client.run(&["auth", "whoami"]).code, Some(4));
}

#[test]
fn raw_token_needs_no_login_and_unknown_one_is_not_found() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let result = client.run(&["auth", "sessions", "revoke", "svc_st_other", "--output", "json"]);
    assert_eq!(result.json()["forgotten"], false);
    let result = client.run(&["auth", "sessions", "revoke", "svc_st_unknown", "--output", "json"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(3), Some("session_not_found")));
}

#[test]
fn revoking_another_session_keeps_the_stored_one() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let result = client.run(&["auth", "sessions", "revoke", LISTED, "--output", "json"]);
    assert_eq!(result.json(), json!({"revoked": true, "forgotten": false}));
    let expected = [format!("DELETE /api/v1/auth/sessions/{LISTED}"), "GET /api/v1/auth/session".into()];
    assert_eq!(stub.request_lines()[1..], expected);
    assert_eq!(client.run(&["auth", "whoami"]).code, Some(0));
}

#[test]
fn revoking_the_own_session_removes_it_from_the_store() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "GET /api/v1/auth/session" => problem(ProblemKind::CredentialInvalid),
        _ => service(request),
    });
    let client = logged_in(&stub);
    let result = client.run(&["auth", "sessions", "revoke", LISTED, "--output", "json"]);
    assert_eq!(result.json(), json!({"revoked": true, "forgotten": true}));
    assert_eq!(client.run(&["auth", "token"]).code, Some(4));
}

#[test]
fn rejects_other_credentials_before_any_request() {
    let stub = Stub::new(service);
    let result =
        Client::for_url(&stub.url).run(&["auth", "sessions", "revoke", "svc_ak_secret", "--output", "json"]);
    assert_eq!(result.code, Some(7));
    assert!(!result.stderr.contains("svc_ak_secret"), "{result:?}");
    assert!(stub.requests().is_empty());
}

#[test]
fn logout_revokes_and_removes_the_session() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    assert_eq!(client.run(&["auth", "logout", "--output", "json"]).json()["forgotten"], true);
    assert_eq!(stub.requests()[1].header("x-session-id"), Some("svc_st_good"));
    assert_eq!(client.run(&["auth", "logout"]).code, Some(4));
}

#[test]
fn logout_forgets_a_session_only_if_the_service_does_not_know_it_any_more() {
    let (stub, other) = (Stub::new(service), Stub::new(|_| problem(ProblemKind::NotFound)));
    let client = logged_in(&stub);
    let logout = |token: &str, url: &str| {
        let mut command = client.command(&["auth", "logout", "--base-url", url, "--output", "json"]);
        CommandResult::of(command.env("SVC_TOKEN", token).output().unwrap())
    };
    for (token, url, code, name) in [
        ("svc_st_good", format!("{}/x", other.url), 1, "unexpected_response"),
        ("svc_st_good", other.url.clone(), 3, "not_found"),
        ("svc_st_unknown", stub.url.clone(), 11, "configuration_invalid"),
    ] {
        let result = logout(token, &url);
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(code), Some(name)), "{token} {url}");
    }
    assert_eq!(client.run(&["auth", "whoami"]).code, Some(0), "the session is still stored");
    let stored = std::fs::read_to_string(client.credentials()).unwrap();
    std::fs::write(client.credentials(), stored.replace("svc_st_good", "svc_st_unknown")).unwrap();
    assert_eq!(client.run(&["auth", "logout", "--output", "json"]).json()["forgotten"], true);
}

#[test]
fn token_in_the_environment_overrides_the_stored_session() {
    let stub = Stub::new(service);
    let client = logged_in(&stub).with_variable("SVC_TOKEN", "svc_st_good");
    assert_eq!(client.run(&["auth", "sessions", "list"]).code, Some(0));
    assert_eq!(
        stub.request_lines()[1..],
        ["GET /api/v1/auth/session", "GET /api/v1/auth/sessions?limit=200"]
    );
    let rejected =
        client.with_variable("SVC_TOKEN", "svc_st_bad").run(&["auth", "whoami", "--output", "json"]);
    assert_eq!((rejected.code, rejected.error()["code"].as_str()), (Some(4), Some("credential_invalid")));
}

#[test]
fn verbose_logs_requests_without_credentials() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let result = client.run(&["auth", "whoami", "--verbose"]);
    assert!(
        result.stderr.contains("GET ")
            && result.stderr.contains("200 OK")
            && result.stderr.contains("of-the-stub"),
        "{result:?}"
    );
    let result = client.run(&["auth", "sessions", "revoke", "svc_st_good", "--verbose"]);
    assert!(!result.stderr.contains("svc_st_good"), "{result:?}");
}

#[test]
fn all_requests_of_a_command_share_one_trace() {
    let stub = Stub::new(service);
    let place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (given, begins) in [("", "00-"), (place, place), ("nonsense", "00-")] {
        let before = stub.requests().len();
        let result = Client::for_url(&stub.url)
            .with_variable("SVC_TOKEN", "svc_st_good")
            .with_variable("TRACEPARENT", given)
            .run(&["auth", "sessions", "list", "--verbose"]);
        assert_eq!(result.code, Some(0), "{result:?}");
        let request = &stub.requests()[before..];
        let sent = request[0].header("traceparent").unwrap();
        assert!(request.len() == 2 && request[1].header("traceparent") == Some(sent), "{request:?}");
        assert!(sent.starts_with(begins) && sent.len() == place.len(), "{sent}");
        assert_eq!(result.stderr.matches(&format!("trace {}\n", &sent[3..35])).count(), 1, "{result:?}");
    }
    let traces: std::collections::HashSet<_> =
        stub.requests().iter().map(|request| request.header("traceparent").unwrap().to_owned()).collect();
    assert_eq!(traces.len(), 3, "each command without TRACEPARENT starts a trace");
}

#[test]
fn retries_only_idempotent_requests() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "POST /api/v1/auth/password/login" => problem(ProblemKind::DependencyUnavailable),
        _ => problem(ProblemKind::Overloaded),
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_good");
    let login = ["auth", "login", "--email", "a@b.example", "--tenant", "acme", "--password-stdin"];
    assert_eq!(client.run_with(&login, "password\n").code, Some(9));
    assert_eq!(stub.requests().len(), 1);
    let result = run_at_terminal(&client, &["auth", "whoami", "--timeout", "1500ms"], "");
    assert_eq!((result.code, stub.requests().len()), (Some(9), 3));
    assert!(result.stderr.starts_with("waiting 1 s: service unavailable\r\n"), "{result:?}");
}

#[test]
fn reads_the_password_from_a_file() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
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

#[test]
fn login_revokes_the_session_that_it_replaces() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    let again = client.run_with(&login, "correct horse battery\n");
    assert_eq!(again.code, Some(0), "{again:?}");
    let lines = stub.request_lines();
    assert_eq!(lines[1..], ["POST /api/v1/auth/password/login", "POST /api/v1/auth/sessions/logout"]);
    assert_eq!(stub.requests()[2].header("x-session-id"), Some("svc_st_good"));
    // A failed login keeps the stored session.
    assert_eq!(client.run_with(&login, "wrong\n").code, Some(4));
    assert_eq!((stub.request_lines().len(), client.run(&["auth", "token"]).code), (4, Some(0)));
}

#[test]
fn revokes_all_sessions_of_a_user_after_confirmation() {
    let stub = Stub::new(service);
    let client = logged_in(&stub);
    let revoke = ["auth", "sessions", "revoke", "--all"];
    let sent = || {
        let requests = stub.requests();
        let sent = requests.iter().filter(|request| request.line.starts_with("DELETE"));
        sent.map(|request| (request.line.clone(), request.header("x-user-id").unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(client.run(&revoke).code, Some(12));
    assert_eq!(sent(), []);
    let result = client.run(&[&revoke[..], &["--yes", "--output", "json"]].concat()).json();
    assert_valid_output("auth sessions revoke", &result);
    // The session of the stub remains valid.
    assert_eq!(result, json!({"revoked": true, "forgotten": false}));
    let others = [&revoke[..], &["--yes", "--keep-current", "--user-id", LISTED]].concat();
    assert_eq!(client.run(&others).code, Some(0));
    let path = "DELETE /api/v1/auth/sessions".to_owned();
    let expected = [(path.clone(), USER.to_owned()), (path + "?keep_current=true", LISTED.to_owned())];
    assert_eq!(sent(), expected);
    for wrong in [&["--all", "svc_st_x"][..], &["--keep-current"], &["--user-id", LISTED], &[]] {
        assert_eq!(client.run(&[&["auth", "sessions", "revoke"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}
