//! `/users/{user_id}`.

use contract::identity::{User, UserExport};
use contract::{Page, Role};
use reqwest::Method;
use serde_json::{Value, json};
use testsystem::TestSystem;

#[tokio::test]
async fn a_user_is_visible_to_itself_and_its_administrators_only() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "Ada@acme.example", Role::Member).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    for client in [&ada.client, &admin.client] {
        assert_eq!(client.get(&path).await.expect::<User>(200).email, "Ada@acme.example");
    }
    for client in [&bob.client, &other.client] {
        client.get(&path).await.expect_problem(404, "not_found");
    }
    system.client().get(&path).await.expect_problem(401, "unauthenticated");
    admin.client.get("/users/no-id").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_header_with_another_tenant_is_rejected() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let client = system.client().bearer(admin.session.session_id.expose()).header("X-Tenant-ID", "other");
    client.get(&format!("/users/{}", admin.user.user_id)).await.expect_problem(403, "tenant_mismatch");
}

#[tokio::test]
async fn the_api_keys_of_a_disabled_or_demoted_administrator_are_revoked_on_request() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, foreign) = system.create_api_key(&admin, &json!({ "name": "foreign" })).await;
    for (email, change) in [
        ("ada@acme.example", json!({ "role": "member" })),
        ("ben@acme.example", json!({ "status": "disabled" })),
    ] {
        let other = system.add_user(&admin, email, Role::Admin).await;
        let (_, own) = system.create_api_key(&other, &json!({ "name": "own" })).await;
        let path = format!("/users/{}", other.user.user_id);
        admin.client.patch(&path, &change).await.expect::<User>(200);
        own.get("/auth/session").await.expect::<Value>(200);
        let revoke = json!({ "revoke_api_keys": true });
        admin.client.patch(&path, &revoke).await.expect::<User>(200);
        own.get("/auth/session").await.expect_problem(401, "credential_invalid");
        other.client.get("/auth/session").await.expect_problem(401, "credential_invalid");

        // Keys that the user creates after that stay active.
        let again = json!({ "role": "admin", "status": "active" });
        admin.client.patch(&path, &again).await.expect::<User>(200);
        let session = system.log_in("acme", email).await;
        let client = system.client().bearer(session.session_id.expose());
        let again = testsystem::TestUser { client, session, ..other };
        let (_, newer) = system.create_api_key(&again, &json!({ "name": "newer" })).await;
        admin.client.patch(&path, &json!({ "role": "member" })).await.expect::<User>(200);
        newer.get("/auth/session").await.expect::<Value>(200);
    }
    foreign.get("/auth/session").await.expect::<Value>(200);
}

#[tokio::test]
async fn a_patch_without_a_change_does_not_update_the_user() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    let update = async |body: Value| {
        admin.client.send(admin.client.request(Method::PATCH, &path).json(&body)).await.expect::<User>(200)
    };
    let before = admin.client.get(&path).await.expect::<User>(200).updated_at;
    for body in [json!({}), json!({ "role": "member" }), json!({ "role": null, "status": "active" })] {
        assert_eq!(update(body).await.updated_at, before);
    }
    assert!(update(json!({ "role": "admin" })).await.updated_at > before);
}

#[tokio::test]
async fn the_platform_administrator_finds_a_user_of_the_named_tenant() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.create_tenant("other").await;
    let list = async |tenant: &str| {
        let platform = system.platform_admin().header("X-Tenant-ID", tenant);
        platform.get("/users?email=admin@acme.example").await.expect::<Page<User>>(200).items
    };
    assert_eq!(list("acme").await[0].user_id, admin.user.user_id);
    assert!(list("other").await.is_empty());
    system.platform_admin().get("/users").await.expect_problem(400, "header_missing");
}

#[tokio::test]
async fn the_export_of_a_user_has_account_invite_sessions_and_keys_without_credentials() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let bob = system.add_user(&admin, "bob@acme.example", Role::Member).await;
    let (key, _) = system.create_api_key(&ada, &json!({ "name": "own" })).await;
    system.create_api_key(&admin, &json!({ "name": "foreign" })).await;
    let revoked = system.log_in("acme", "ada@acme.example").await;
    let log_out = system.client().header("X-Session-ID", revoked.session_id.expose());
    log_out.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    let path = format!("/users/{}/export", ada.user.user_id);
    for client in [&ada.client, &admin.client] {
        let response = client.get(&path).await;
        let export: UserExport = response.expect(200);
        assert_eq!((export.tenant_id.as_str(), &*export.user.email), ("acme", "ada@acme.example"));
        assert_eq!((export.invites.len(), export.invites[0].status.as_str()), (1, "accepted"));
        assert_eq!(export.sessions.len(), 2, "the revoked session is stored for a day");
        assert_eq!(export.sessions[0].ip.as_deref(), Some("127.0.0.1"));
        assert!(!response.body.contains("\"current\""), "an export is not of one session: {response}");
        let keys: Vec<_> = export.api_keys.iter().map(|key| (key.id, &*key.name)).collect();
        assert_eq!(keys, [(key.id, "own")]);
        assert!(!response.body.contains("svc_"), "{response}");
    }
    for client in [&bob.client, &other.client] {
        client.get(&path).await.expect_problem(404, "not_found");
    }
}
