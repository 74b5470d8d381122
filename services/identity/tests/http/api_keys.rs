//! Rights of API keys on users and invites.

use contract::identity::{Invite, User};
use contract::{Page, Role};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::Client;
use testsystem::TestSystem;

async fn patch(client: &Client, path: &str, body: Value) -> testkit::TestResponse {
    client.send(client.request(Method::PATCH, path).json(&body)).await
}

#[tokio::test]
async fn a_key_with_users_read_can_list_but_not_change_users() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let (_, reader) = system.create_api_key(&admin, &json!({ "name": "r", "scopes": ["users:read"] })).await;
    let own = format!("/users/{}", admin.user.user_id);
    assert_eq!(reader.get("/users").await.expect::<Page<User>>(200).items.len(), 1);
    reader.get(&own).await.expect::<User>(200);
    reader.get(&format!("/users/{}", other.user.user_id)).await.expect_problem(404, "not_found");
    let invites: Page<Invite> = reader.get("/users/invites").await.expect(200);
    let invite = format!("/users/invites/{}", invites.items[0].invite_id);
    let ada = json!({ "email": "ada@acme.example" });
    reader.post("/users/invite", &ada).await.expect_problem(403, "insufficient_scope");
    reader.delete(&invite).await.expect_problem(403, "insufficient_scope");
    reader.post(&format!("{invite}/resend"), &json!({})).await.expect_problem(403, "insufficient_scope");
    patch(&reader, &own, json!({ "role": "member" })).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_key_with_users_write_manages_member_invites_but_no_administrator_invites() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, writer) = system.create_api_key(&admin, &json!({ "name": "w", "scopes": ["users:write"] })).await;
    let body = |email: &str, role: &str| json!({ "email": email, "role": role });
    let invite: Invite = writer.post("/users/invite", &body("ada@acme.example", "member")).await.expect(201);
    let path = format!("/users/invites/{}", invite.invite_id);
    writer.post(&format!("{path}/resend"), &json!({})).await.expect::<Invite>(200);
    writer.delete(&path).await.expect_empty(204);

    let administrator = body("bob@acme.example", "admin");
    writer.post("/users/invite", &administrator).await.expect_problem(403, "forbidden");
    let invite: Invite = admin.client.post("/users/invite", &administrator).await.expect(201);
    let resend = format!("/users/invites/{}/resend", invite.invite_id);
    writer.post(&resend, &json!({})).await.expect_problem(403, "forbidden");
    let path = format!("/users/invites/{}", invite.invite_id);
    writer.delete(&path).await.expect_problem(403, "forbidden");
    admin.client.post(&resend, &json!({})).await.expect::<Invite>(200);

    for path in ["/users", "/users/invites", &format!("/users/{}", admin.user.user_id)] {
        writer.get(path).await.expect_problem(403, "insufficient_scope");
    }
    let own = format!("/users/{}", admin.user.user_id);
    patch(&writer, &own, json!({ "status": "disabled" })).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_key_never_receives_an_invite_token() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, writer) = system.create_api_key(&admin, &json!({ "name": "w", "scopes": ["users:write"] })).await;
    let by_mail = json!({ "email": "ada@acme.example" });
    let by_response = json!({ "email": "bob@acme.example", "delivery": "response" });
    let rejected = writer.post("/users/invite", &by_response).await;
    assert!(rejected.body.contains("Send it by e-mail"), "{rejected}");
    rejected.expect_problem(403, "forbidden");
    let invite: Invite = writer.post("/users/invite", &by_mail).await.expect(201);
    assert!(invite.token.is_none());
    let resend = format!("/users/invites/{}/resend", invite.invite_id);
    writer.post(&resend, &json!({ "delivery": "response" })).await.expect_problem(403, "forbidden");
    let again: Invite = writer.post(&resend, &json!({})).await.expect(200);
    assert!(again.token.is_none());
}

#[tokio::test]
async fn a_key_cannot_act_for_a_user() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let all = json!(["events:write", "users:read", "users:write"]);
    let (_, key) = system.create_api_key(&admin, &json!({ "name": "all", "scopes": all })).await;
    let about = key.clone().header("X-User-ID", &ada.user.user_id.to_string()).header("X-Tenant-ID", "acme");
    let of_ada = format!("/users/{}/export", ada.user.user_id);
    for path in ["/auth/sessions", "/auth/sessions?limit=x", &of_ada, "/users/no-id/export", "/auth/factors"]
    {
        about.get(path).await.expect_problem(403, "forbidden");
    }
    for path in ["/auth/sessions", &format!("/auth/sessions/{}", ada.user.user_id), "/auth/sessions/no-id"] {
        about.delete(path).await.expect_problem(403, "forbidden");
    }
    let change = json!({ "current_password": testkit::PASSWORD, "new_password": "another-good-one-7" });
    for change in [change, json!({})] {
        about.post("/auth/password/change", &change).await.expect_problem(403, "forbidden");
    }
    for path in ["/auth/device/inspect", "/auth/device/decide"] {
        key.post(path, &json!({})).await.expect_problem(403, "forbidden");
    }
    let problem = key.get("/tenants/acme").await.expect_problem(403, "forbidden");
    assert!(problem.detail.contains("any user of the tenant"), "{}", problem.detail);
    key.get("/tenants/missing").await.expect_problem(403, "forbidden");
}
