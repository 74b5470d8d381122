//! Objects are found by e-mail address or complete id.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, StubRequest, problem};

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
            let email = url.split_once("email=").map(|(_, rest)| rest.split('&').next().unwrap());
            let email = email.map(|email| email.replace("%40", "@"));
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

/// Commands with the place of the object, and the request about the object.
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
fn a_complete_id_names_the_object_and_a_part_of_it_is_rejected() {
    for (command, request) in COMMANDS {
        let stub = Stub::new(service);
        let role: &[&str] = if command.contains(&"set-role") { &["admin"] } else { &[] };
        for part in ["01890a5d-ac97", "ee42", "51a0c0ffee42"] {
            let result = run(&stub, &[command, &[part], role].concat());
            assert!(matches!(result.code, Some(2 | 7)), "{command:?} {part}: {result:?}");
            let message = result.error()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("complete id") || message.contains("UUID"), "{result:?}");
        }
        assert!(stub.requests().is_empty(), "{command:?}");
        let result = run(&stub, &[command, &[BOB], role].concat());
        assert_eq!(result.code, Some(0), "{command:?}: {result:?}");
        let of_bob = |sent: &StubRequest| {
            sent.line.starts_with(request)
                && (sent.line.contains(BOB) || sent.header("x-user-id") == Some(BOB))
        };
        assert!(stub.requests().iter().any(of_bob), "{command:?}: {:?}", stub.request_lines());
    }
}

#[test]
fn the_output_repeats_the_e_mail_address() {
    for command in [&["users", "delete"][..], &["users", "reset-factors"], &["invites", "revoke"]] {
        let stub = Stub::new(service);
        let result = run(&stub, &[command, &["bob@acme.example"]].concat());
        assert_eq!(result.json()["email"], "bob@acme.example", "{command:?}");
        let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
        let printed = client.run(&[command, &["bob@acme.example", "--yes"]].concat()).stdout;
        assert!(printed.starts_with("bob@acme.example: "), "{command:?}: {printed}");
    }
}

#[test]
fn users_are_found_by_e_mail_address() {
    for command in [&["users", "get"][..], &["users", "disable"], &["auth", "sessions", "list", "--user-id"]]
    {
        let stub = Stub::new(service);
        let result = run(&stub, &[command, &["bob@acme.example"]].concat());
        assert_eq!(result.code, Some(0), "{result:?}");
        assert_eq!(stub.request_lines()[0], "GET /api/v1/users?email=bob%40acme.example&limit=1");
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
