//! `/api-keys`.

use contract::api_key::ApiKey;
use contract::identity::Tenant;
use contract::session::{SubjectType, Whoami};
use contract::{Page, Role, Scope};
use reqwest::Method;
use serde_json::json;
use testkit::{Client, TestResponse};
use testsystem::TestSystem;

async fn names(client: &Client, path: &str) -> Vec<String> {
    let page: Page<ApiKey> = client.get(path).await.expect(200);
    assert!(page.items.iter().all(|key| key.key.is_none()), "a key is shown once");
    page.items.into_iter().map(|key| key.name).collect()
}

async fn set_status(system: &TestSystem, status: &str) {
    let request =
        system.platform_admin().request(Method::PATCH, "/tenants/acme").json(&json!({ "status": status }));
    system.platform_admin().send(request).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn a_key_sends_events_unless_told_and_knows_who_it_is() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let answer = admin.client.post("/api-keys", &json!({ "name": "firewall" })).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let key: ApiKey = answer.expect(201);
    assert_eq!((key.scopes.as_slice(), key.source_ids.len()), (&[Scope::EventsWrite][..], 0));
    assert_eq!((key.expires_at - key.created_at).num_days(), 90);
    let raw = key.key.as_ref().unwrap().expose();
    let whoami: Whoami = system.client().bearer(raw).get("/auth/session").await.expect(200);
    assert_eq!((whoami.subject_type, whoami.key_id), (SubjectType::ApiKey, Some(key.id)));
    assert_eq!((whoami.tenant_id.as_str(), whoami.expires_at), ("acme", key.expires_at));
    assert!(!system.dump_database().await.contains(raw), "only its digest is stored");
}

#[tokio::test]
async fn a_key_that_cannot_be_is_refused_where_it_is_wrong() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for (body, pointer) in [
        (json!({ "name": " " }), "/name"),
        (json!({ "name": "k", "scopes": [] }), "/scopes"),
        (json!({ "name": "k", "scopes": ["everything"] }), "/scopes/0"),
        (json!({ "name": "k", "source_ids": [""] }), "/source_ids"),
        (json!({ "name": "k", "expires_at": "2020-01-01T00:00:00Z" }), "/expires_at"),
        (json!({ "name": "k", "expires_at": "2999-01-01T00:00:00Z" }), "/expires_at"),
    ] {
        let answer = admin.client.post("/api-keys", &body).await;
        assert_eq!(answer.expect_problem(422, "validation_failed").errors[0].pointer, pointer, "{body}");
    }
}

#[tokio::test]
async fn keys_are_the_administrators_business_and_their_own_tenants() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let scopes = json!(["events:write", "events:read", "users:read", "users:write"]);
    let (key, holder) = system.create_api_key(&admin, &json!({ "name": "first", "scopes": scopes })).await;
    system.create_api_key(&admin, &json!({ "name": "second" })).await;
    for client in [&member.client, &holder] {
        client.get("/api-keys").await.expect_problem(403, "forbidden");
        client.post("/api-keys", &json!({ "name": "mine" })).await.expect_problem(403, "forbidden");
        client.delete(&format!("/api-keys/{}", key.id)).await.expect_problem(403, "forbidden");
    }
    assert_eq!(names(&admin.client, "/api-keys").await, ["first", "second"]);
    assert_eq!(names(&admin.client, &format!("/api-keys?cursor={}", key.id)).await, ["second"]);
    assert_eq!(names(&other.client, "/api-keys").await, [] as [&str; 0]);
    other.client.delete(&format!("/api-keys/{}", key.id)).await.expect_problem(404, "not_found");
    holder.get("/auth/session").await.expect::<Whoami>(200);
}

#[tokio::test]
async fn a_revoked_key_is_over_at_once_and_revoking_it_again_is_harmless() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (key, holder) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let path = format!("/api-keys/{}", key.id);
    admin.client.delete(&path).await.expect_empty(204);
    holder.get("/auth/session").await.expect_problem(401, "credential_invalid");
    assert_eq!(names(&admin.client, "/api-keys").await, [] as [&str; 0]);
    admin.client.delete(&path).await.expect_empty(204);
    admin.client.delete("/api-keys/no-id").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_key_of_a_suspended_tenant_is_refused_until_it_is_resumed() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, holder) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let ask = async || -> TestResponse { holder.get("/auth/session").await };
    set_status(&system, "suspended").await;
    ask().await.expect_problem(401, "credential_invalid");
    set_status(&system, "active").await;
    ask().await.expect::<Whoami>(200);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
}
