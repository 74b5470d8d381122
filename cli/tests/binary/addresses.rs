//! Objects are found by e-mail address, by id, and by the start or the end of an id.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, StubRequest, problem};

/// Created within a second: only the ends differ early.
const ADA: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const BOB: &str = "01890a5d-ac97-7c01-9d11-51a0c0ffee42";

fn objects() -> [Value; 2] {
    [(ADA, "ada@acme.example"), (BOB, "bob@acme.example")].map(|(id, email)| {
        json!({
            "user_id": id, "invite_id": id, "id": id, "email": email, "name": email, "role": "member",
            "status": "active", "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            "locked": false, "last_seen_at": "2026-01-01T00:00:00Z", "expires_at": "2030-01-01T00:00:00Z",
            "idle_expires_at": "2030-01-01T00:00:00Z", "method": "password", "ip": "192.0.2.1", "user_agent": email,
            "current": false, "scopes": [], "source_ids": [], "created_by": ADA,
        })
    })
}

/// Two users, invites, keys and sessions with the same ids.
fn service(request: &StubRequest) -> (u16, String) {
    let (method, url) = request.line.split_once(' ').unwrap();
    let path = url.split('?').next().unwrap();
    let mut found: Vec<Value> = objects().into();
    match (method, path) {
        ("GET", "/api/v1/auth/session") => {
            let whoami = json!({
                "subject_type": "user", "user_id": ADA, "tenant_id": "acme", "role": "admin", "scopes": [],
                "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        ("GET", "/api/v1/users/invites") => {
            for invite in &mut found {
                invite["status"] = "pending".into();
            }
            (200, json!({"items": found}).to_string())
        }
        ("GET", "/api/v1/users" | "/api/v1/api-keys" | "/api/v1/auth/sessions") => {
            let email = url.split_once("email=").map(|(_, email)| email.replace("%40", "@"));
            found.retain(|object| email.as_deref().is_none_or(|email| object["email"] == email));
            (200, json!({"items": found}).to_string())
        }
        ("DELETE", _) => (204, String::new()),
        _ => match found.into_iter().find(|object| path.contains(object["id"].as_str().unwrap())) {
            Some(mut object) => {
                if path.contains("/invites/") {
                    object["status"] = "pending".into();
                }
                (200, object.to_string())
            }
            None => problem(ProblemKind::NotFound),
        },
    }
}

fn run(stub: &Stub, arguments: &[&str]) -> CommandResult {
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    client.run(&[arguments, &["--yes", "--output", "json"]].concat())
}

/// Commands with the place of the object, and the last request if the object is Bob's.
const COMMANDS: [(&[&str], &str); 9] = [
    (&["users", "get"], "GET /api/v1/users/"),
    (&["users", "disable"], "PATCH /api/v1/users/"),
    (&["users", "enable"], "PATCH /api/v1/users/"),
    (&["invites", "resend"], "POST /api/v1/users/invites/"),
    (&["invites", "revoke"], "DELETE /api/v1/users/invites/"),
    (&["api-keys", "revoke"], "DELETE /api/v1/api-keys/"),
    (&["auth", "sessions", "revoke"], "DELETE /api/v1/auth/sessions/"),
    (&["users", "set-role"], "PATCH /api/v1/users/"),
    (&["auth", "sessions", "list", "--user-id"], "GET /api/v1/auth/sessions"),
];

#[test]
fn start_and_end_of_an_id_find_the_object() {
    for (command, request) in COMMANDS {
        for part in ["01890a5d-ac97", "ee42", "51A0C0FFEE42", BOB] {
            let stub = Stub::new(service);
            let role: &[&str] = if command.contains(&"set-role") { &["admin"] } else { &[] };
            let result = run(&stub, &[command, &[part], role].concat());
            assert_eq!(result.code, Some(0), "{command:?} {part}: {result:?}");
            // The last request that names the object; revoking a session may be followed by others.
            let of_bob = |sent: &StubRequest| {
                sent.line.starts_with(request)
                    && (sent.line.contains(BOB) || sent.header("x-user-id") == Some(BOB))
            };
            assert!(stub.requests().iter().any(of_bob), "{command:?} {part}: {:?}", stub.request_lines());
            assert!(!stub.request_lines().iter().any(|line| line.contains(&format!("/{ADA}"))));
        }
    }
}

#[test]
fn ambiguous_part_lists_the_candidates() {
    let stub = Stub::new(service);
    for (command, label) in [
        (&["users", "get"][..], "bob@acme.example"),
        (&["invites", "revoke"], "bob@acme.example (pending)"),
        (&["api-keys", "revoke"], "\"bob@acme.example\""),
        (&["auth", "sessions", "revoke"], "bob@acme.example from 192.0.2.1"),
    ] {
        let result = run(&stub, &[command, &["01890a5d"]].concat());
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(7), Some("ambiguous_id")));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(ADA) && message.contains(&format!("{BOB}  {label}")), "{message}");
    }
    assert!(stub.request_lines().iter().all(|line| line.starts_with("GET")), "nothing is changed");
}

#[test]
fn part_without_an_object_is_not_found() {
    let stub = Stub::new(service);
    let result = run(&stub, &["invites", "revoke", "abcd"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(3), Some("not_found")));
    assert!(result.error()["remediation"].as_str().unwrap().contains("svc invites list"), "{result:?}");
    for wrong in ["bob", "018", "acme"] {
        let result = run(&stub, &["users", "disable", wrong]);
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(result.error()["message"].as_str().unwrap().contains("e-mail address"), "{result:?}");
    }
}

#[test]
fn users_are_found_by_e_mail_address() {
    for command in [&["users", "get"][..], &["users", "disable"], &["auth", "sessions", "list", "--user-id"]]
    {
        let stub = Stub::new(service);
        let result = run(&stub, &[command, &["bob@acme.example"]].concat());
        assert_eq!(result.code, Some(0), "{result:?}");
        assert_eq!(stub.request_lines()[0], "GET /api/v1/users?email=bob%40acme.example");
        let last = stub.requests().pop().unwrap();
        assert!(last.line.ends_with(BOB) || last.header("x-user-id") == Some(BOB), "{last:?}");
    }
    let stub = Stub::new(service);
    let result = run(&stub, &["users", "disable", "eve@acme.example"]);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(3), Some("not_found")));
    assert_eq!(error["message"], "no user has the e-mail address eve@acme.example");
    assert!(error["remediation"].as_str().unwrap().contains("svc users list"), "{error}");
}

#[test]
fn pending_invites_are_found_by_e_mail_address() {
    for (command, request) in [("revoke", "DELETE"), ("resend", "POST")] {
        let stub = Stub::new(service);
        let result = run(&stub, &["invites", command, "Bob@acme.example"]);
        assert_eq!(result.code, Some(0), "{result:?}");
        let lines = stub.request_lines();
        assert!(lines[0].starts_with("GET /api/v1/users/invites?status=pending"), "{lines:?}");
        let of_bob = format!("{request} /api/v1/users/invites/{BOB}");
        assert!(lines[1].starts_with(&of_bob) && lines.len() == 2, "{lines:?}");
    }
    let result = run(&Stub::new(service), &["invites", "revoke", "eve@acme.example"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(3), Some("not_found")));
    assert_eq!(result.error()["message"], "no pending invite has the e-mail address eve@acme.example");
}

#[test]
fn error_for_a_member_names_the_user_id_as_the_alternative() {
    let stub = Stub::new(|_| problem(ProblemKind::Forbidden));
    let result = run(&stub, &["users", "get", "bob@acme.example"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(5), Some("forbidden")));
    assert!(result.error()["remediation"].as_str().unwrap().contains("Pass the user id"), "{result:?}");
}
