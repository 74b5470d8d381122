//! Invites: listing, resending and revoking them.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Asked, Stub, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn invite() -> Value {
    json!({
        "invite_id": ID, "email": "bob@acme.example", "role": "member", "status": "pending",
        "expires_at": "2030-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
    })
}

fn service(asked: &Asked) -> (u16, String) {
    match asked.line.as_str() {
        "GET /api/v1/users/invites?status=pending" => (200, json!({"items": [invite()]}).to_string()),
        "GET /api/v1/users/invites?limit=200" => (200, json!({"items": []}).to_string()),
        line if line == format!("POST /api/v1/users/invites/{ID}/resend") => {
            let mut invite = invite();
            if asked.json()["delivery"] == "response" {
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
fn invites_are_listed_by_state() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_API_KEY", "svc_ak_x");
    let listed = client.run(&["invites", "list", "--status", "pending", "--output", "json"]).json();
    assert_eq!(listed, json!({"items": [invite()]}));
    assert_valid_output("invites list", &listed);
    assert_eq!(client.run(&["invites", "list", "--all"]).stdout, "No invite.\n");
    assert_eq!(client.run(&["invites", "list", "--status", "lost"]).code, Some(2));
}

#[test]
fn the_operator_sees_the_invites_of_the_tenant_that_is_named() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x");
    assert_eq!(client.run(&["invites", "list", "--all", "--tenant", "acme"]).code, Some(0));
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(asked.header("x-tenant-id"), Some("acme"));
    assert_eq!(client.run(&["invites", "list"]).code, Some(12));
}

#[test]
fn an_invite_is_sent_again_by_mail_or_with_a_token_to_hand_over() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let mailed = client.run(&["invites", "resend", ID]);
    assert_eq!(mailed.code, Some(0), "{mailed:?}");
    assert!(mailed.stderr.contains("by mail") && !mailed.stdout.contains("svc_iv_"), "{mailed:?}");
    assert_eq!(stub.asked()[0].json(), json!({"delivery": "email"}));
    let handed = client.run(&["invites", "resend", ID, "--delivery", "response", "--output", "json"]);
    assert_eq!(handed.json()["token"], "svc_iv_new");
    assert_valid_output("invites resend", &handed.json());
    let over = client.run(&["invites", "resend", "01890a5d-ac96-774b-bcce-b302099a8099"]);
    assert_eq!(over.code, Some(3), "{over:?}");
}

#[test]
fn an_invite_is_taken_back_unless_it_was_accepted() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let revoked = client.run(&["invites", "revoke", ID, "--yes", "--output", "json"]);
    assert_eq!(revoked.json(), json!({"invite_id": ID, "revoked": true}));
    assert_valid_output("invites revoke", &revoked.json());
    let accepted = client.run(&["invites", "revoke", "01890a5d-ac96-774b-bcce-b302099a8099", "--yes"]);
    assert_eq!(accepted.code, Some(6), "{accepted:?}");
    assert!(accepted.stderr.contains("svc users disable"), "{accepted:?}");
}
