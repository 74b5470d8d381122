//! Inviting, accepting, the operator's commands, and the raw call.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::Client;
use crate::stub::{Asked, Stub, problem};

fn service(asked: &Asked) -> (u16, String) {
    match asked.line.as_str() {
        "POST /api/v1/users/invite" => {
            let request: Value = serde_json::from_slice(&asked.body).unwrap();
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
        "GET /api/v1/tenants?limit=200" => {
            (200, json!({"items": [tenant("acme")], "next_cursor": "a b&c"}).to_string())
        }
        "GET /api/v1/tenants?limit=200&cursor=a+b%26c" => {
            (200, json!({"items": [tenant("umbrella")]}).to_string())
        }
        "POST /api/v1/tenants" => (201, tenant("acme").to_string()),
        "GET /api/v1/pages/device" => (200, "<p>hello</p>".into()),
        _ => problem(ProblemKind::NotFound),
    }
}

fn tenant(id: &str) -> Value {
    json!({
        "tenant_id": id, "display_name": id, "status": "active", "created_at": "2026-01-01T00:00:00Z",
        "quota": {"events_per_second": null, "bytes_per_second": null},
    })
}

fn body(asked: &Asked) -> Value {
    serde_json::from_slice(&asked.body).unwrap()
}

#[test]
fn the_operator_invites_into_the_tenant_that_is_named() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let ran = client.run(&["users", "invite", "--email", "bob@acme.example", "--tenant", "acme"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("pending") && !ran.stdout.contains("token"), "{ran:?}");
    assert!(ran.stderr.contains("by mail"), "{ran:?}");
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer svc_pt_x"));
    assert_eq!(asked.header("x-tenant-id"), Some("acme"));
    assert_eq!(body(asked), json!({"email": "bob@acme.example", "role": "member", "delivery": "email"}));
    // Without a tenant, nobody knows where to.
    assert_eq!(client.run(&["users", "invite", "--email", "bob@acme.example"]).code, Some(12));
}

#[test]
fn a_session_of_the_environment_wins_over_the_operator() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x").with("SVC_TOKEN", "svc_st_x");
    let invite =
        ["users", "invite", "--email", "bob@acme.example", "--role", "admin", "--delivery", "response"];
    let invited = client.run(&[&invite[..], &["--output", "json"]].concat()).json();
    assert_eq!((&invited["token"], &invited["role"]), (&json!("svc_iv_raw"), &json!("admin")));
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer svc_st_x"));
    assert_eq!(asked.header("x-tenant-id"), None);
}

#[test]
fn token_and_password_of_an_invite_may_both_come_from_standard_input() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let ran = client.run_with(
        &["users", "accept-invite", "-", "--password-stdin"],
        "svc_iv_raw\ncorrect horse battery \n",
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(body(&stub.asked()[0]), json!({"token": "svc_iv_raw", "password": "correct horse battery "}));
    assert!(ran.stderr.contains("svc auth login --email bob@acme.example --tenant acme"), "{ran:?}");
    let silent =
        client.run_with(&["users", "accept-invite", "svc_iv_raw", "--password-stdin", "--quiet"], "pw\n");
    assert_eq!(silent.stderr, "");
}

#[test]
fn the_operators_token_may_lie_in_a_file() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url);
    let file = client.home().join("operator");
    std::fs::write(&file, "svc_pt_file\n").unwrap();
    let client = client.with("SVC_PLATFORM_TOKEN_FILE", file.to_str().unwrap());
    let create =
        ["tenants", "create", "acme", "--admin-email", "ada@acme.example", "--events-per-second", "10"];
    assert_eq!(client.run(&create).code, Some(0));
    let asked = &stub.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer svc_pt_file"));
    let quota = json!({"events_per_second": 10, "bytes_per_second": null});
    let expected = json!({
        "tenant_id": "acme", "display_name": "acme", "admin_email": "ada@acme.example", "delivery": "email", "quota": quota,
    });
    assert_eq!(body(asked), expected);
    let unreadable = client.with("SVC_PLATFORM_TOKEN_FILE", "/nonexistent").run(&["tenants", "list"]);
    assert_eq!(unreadable.code, Some(11));
}

#[test]
fn a_list_is_read_to_its_last_page() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let listed = client.run(&["tenants", "list", "--output", "json"]).json();
    let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|tenant| &tenant["tenant_id"]).collect();
    assert_eq!(ids, ["acme", "umbrella"]);
    assert_eq!(client.run(&["tenants", "get", "umbrella"]).code, Some(3));
    assert_eq!(Client::of(&stub.url).run(&["tenants", "list"]).code, Some(4));
}

#[test]
fn the_raw_call_sends_what_it_is_given_and_prints_what_it_gets() {
    let stub = Stub::answering(service);
    let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_x");
    let invite = r#"{"email": "bob@acme.example", "role": "member"}"#;
    let called =
        client.run_with(&["api", "post", "/users/invite", "--data", "-", "--output", "json"], invite).json();
    assert_eq!(called["email"], "bob@acme.example");
    let asked = &stub.asked()[0];
    assert_eq!((asked.line.as_str(), &asked.body[..]), ("POST /api/v1/users/invite", invite.as_bytes()));
    assert_eq!(client.run(&["api", "GET", "/api/v1/pages/device", "--anonymous"]).stdout, "<p>hello</p>\n");
    assert_eq!(stub.asked()[1].header("authorization"), None);
    assert_eq!(client.run(&["api", "GET", "/nowhere"]).code, Some(3));
    assert_eq!(client.run(&["api", "GET", "nowhere"]).code, Some(2));
}
