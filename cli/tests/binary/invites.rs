//! `svc users invite`, `svc users accept-invite` and `svc invites`.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn invite() -> Value {
    json!({
        "invite_id": ID, "email": "bob@acme.example", "role": "member", "status": "pending",
        "expires_at": "2030-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
    })
}

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/users/invite" => {
            let request = request.json();
            let mut invite = json!({
                "invite_id": "01890a5d-ac96-774b-bcce-b302099a8057", "email": request["email"], "role": request["role"],
                "status": "pending", "expires_at": "2030-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
            });
            if request["delivery"] == "response" {
                invite["token"] = "svc_iv_raw".into();
            }
            (201, invite.to_string())
        }
        "POST /api/v1/users/accept-invite" => {
            let accepted = json!({
                "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "tenant_id": "acme", "email": "bob@acme.example",
                "role": "member",
            });
            (201, accepted.to_string())
        }
        "GET /api/v1/users/invites?status=pending&limit=200" => {
            (200, json!({"items": [invite()]}).to_string())
        }
        "GET /api/v1/users/invites?limit=200" => (200, json!({"items": []}).to_string()),
        line if line == format!("POST /api/v1/users/invites/{ID}/resend") => {
            let mut invite = invite();
            if request.json()["delivery"] == "response" {
                invite["token"] = "svc_iv_new".into();
            }
            (200, invite.to_string())
        }
        line if line == format!("DELETE /api/v1/users/invites/{ID}") => (204, String::new()),
        line if line.starts_with("DELETE") => problem(ProblemKind::UserExists),
        _ => problem(ProblemKind::NotFound),
    }
}

#[test]
fn platform_administrator_invites_into_a_tenant() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let result = client.run(&["users", "invite", "--email", "bob@acme.example", "--tenant", "acme"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.stdout.contains("pending") && !result.stdout.contains("token"), "{result:?}");
    assert!(result.stderr.contains("by mail"), "{result:?}");
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    assert_eq!(request.json(), json!({"email": "bob@acme.example", "role": "member", "delivery": "email"}));
    // The platform administrator must name a tenant.
    assert_eq!(client.run(&["users", "invite", "--email", "bob@acme.example"]).code, Some(12));
}

#[test]
fn session_in_the_environment_overrides_the_platform_token() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url)
        .with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
        .with_variable("SVC_TOKEN", "svc_st_x");
    let invite =
        ["users", "invite", "--email", "bob@acme.example", "--role", "admin", "--delivery", "response"];
    let invited = client.run(&[&invite[..], &["--output", "json"]].concat()).json();
    assert_eq!((&invited["token"], &invited["role"]), (&json!("svc_iv_raw"), &json!("admin")));
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_st_x"));
    assert_eq!(request.header("x-tenant-id"), None);
}

#[test]
fn reads_invite_token_and_password_from_stdin() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let result = client.run_with(
        &["users", "accept-invite", "-", "--password-stdin"],
        "svc_iv_raw\ncorrect horse battery \n",
    );
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(
        stub.requests()[0].json(),
        json!({"token": "svc_iv_raw", "password": "correct horse battery "})
    );
    assert!(result.stderr.contains("svc auth login --email bob@acme.example --tenant acme"), "{result:?}");
    std::fs::write(client.home().join("token"), "svc_iv_raw\n").unwrap();
    let from_file = ["users", "accept-invite", "--token-file", "token", "--password-stdin", "--quiet"];
    assert_eq!(client.run_with(&from_file, "pw\n").stderr, "");
    assert_eq!(stub.requests()[1].json(), json!({"token": "svc_iv_raw", "password": "pw"}));
    std::fs::write(client.home().join("password"), "from a file\nnot read\n").unwrap();
    let from_files =
        ["users", "accept-invite", "--token-file", "token", "--password-file", "password", "--quiet"];
    assert_eq!(client.run(&from_files).stderr, "");
    assert_eq!(stub.requests()[2].json(), json!({"token": "svc_iv_raw", "password": "from a file"}));
}

#[test]
fn rejects_a_token_in_an_argument_without_repeating_it() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    for command in [&["users", "accept-invite"][..], &["auth", "password", "confirm-reset"]] {
        let arguments = [command, &["svc_iv_secret", "--password-stdin"]].concat();
        let result = client.run_with(&arguments, "a new password\n");
        assert_eq!(result.code, Some(2), "{result:?}");
        assert!(
            result.stderr.contains("other users") && result.stderr.contains("--token-file"),
            "{result:?}"
        );
        assert!(!result.stderr.contains("svc_iv_secret"), "{result:?}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn lists_invites_by_status() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    let listed = client.run(&["invites", "list", "--status", "pending", "--output", "json"]).json();
    assert_eq!(listed, json!({"items": [invite()]}));
    assert_valid_output("invites list", &listed);
    assert_eq!(client.run(&["invites", "list"]).stdout, "No invites.\n");
    assert_eq!(client.run(&["invites", "list", "--status", "lost"]).code, Some(2));
}

#[test]
fn platform_administrator_lists_invites_of_a_tenant() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    assert_eq!(client.run(&["invites", "list", "--tenant", "acme"]).code, Some(0));
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    assert_eq!(client.run(&["invites", "list"]).code, Some(12));
}

#[test]
fn resends_an_invite_by_mail_or_prints_the_token() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let mailed = client.run(&["invites", "resend", ID]);
    assert_eq!(mailed.code, Some(0), "{mailed:?}");
    assert!(mailed.stderr.contains("by mail") && !mailed.stdout.contains("svc_iv_"), "{mailed:?}");
    assert_eq!(stub.requests()[0].json(), json!({"delivery": "email"}));
    let handed = client.run(&["invites", "resend", ID, "--delivery", "response", "--output", "json"]);
    assert_eq!(handed.json()["token"], "svc_iv_new");
    assert_valid_output("invites resend", &handed.json());
    let over = client.run(&["invites", "resend", "01890a5d-ac96-774b-bcce-b302099a8099"]);
    assert_eq!(over.code, Some(3), "{over:?}");
}

#[test]
fn revokes_an_invite_unless_accepted() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let revoked = client.run(&["invites", "revoke", ID, "--yes", "--output", "json"]);
    assert_eq!(revoked.json(), json!({"invite_id": ID, "revoked": true}));
    assert_valid_output("invites revoke", &revoked.json());
    let accepted = client.run(&["invites", "revoke", "01890a5d-ac96-774b-bcce-b302099a8099", "--yes"]);
    assert_eq!(accepted.code, Some(6), "{accepted:?}");
    assert!(accepted.stderr.contains("svc users disable"), "{accepted:?}");
}

#[test]
fn remediations_of_invites_name_commands_and_options() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "POST /api/v1/users/invite" => problem(ProblemKind::RateLimited),
        _ => problem(ProblemKind::NotFound),
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    for (command, part) in [
        (&["users", "invite", "--email", "bob@acme.example", "--timeout", "1s"][..], "--delivery response"),
        (&["invites", "resend", ID], "invite the person again: `svc users invite`"),
        (&["invites", "revoke", ID, "--yes"], "invite the person again: `svc users invite`"),
    ] {
        let result = client.run(&[command, &["--output", "json"]].concat());
        assert!(result.error()["remediation"].as_str().unwrap().contains(part), "{result:?}");
    }
}
