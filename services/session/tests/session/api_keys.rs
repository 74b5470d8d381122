//! `/api-keys`: creating, listing and revoking API keys, and their state over time.

use chrono::TimeDelta;
use contract::identity::Tenant;
use contract::internal::{Credential, SubjectRecord, TenantRecord};
use contract::session::ApiKey;
use contract::session::{SubjectType, Whoami};
use contract::{Page, Role, Scope, TenantStatus};
use hashing::{RawToken, TokenKind};
use http::StatusCode;
use reqwest::Method;
use serde_json::{Value, json};
use service::Clock as _;
use testkit::{Client, TestResponse, wait_until};
use testsystem::TestSystem;

use crate::context::{Context, subject, tenant};

const PATH: &str = "/api/v1/api-keys";

async fn names(client: &Client, path: &str) -> Vec<String> {
    let page: Page<ApiKey> = client.get(path).await.expect(200);
    assert!(
        page.items.iter().all(|key| key.key.is_none()),
        "only the response of the creation contains the key"
    );
    page.items.into_iter().map(|key| key.name).collect()
}

async fn set_status(system: &TestSystem, status: &str) {
    let request =
        system.platform_admin().request(Method::PATCH, "/tenants/acme").json(&json!({ "status": status }));
    system.platform_admin().send(request).await.expect::<Tenant>(200);
}

#[tokio::test]
async fn new_key_has_default_scope_and_lifetime_and_whoami_returns_it() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let response = admin.client.post("/api-keys", &json!({ "name": "firewall" })).await;
    assert_eq!(response.headers["cache-control"], "no-store");
    let key: ApiKey = response.expect(201);
    assert_eq!((key.scopes.as_slice(), key.source_ids.len()), (&[Scope::EventsWrite][..], 0));
    assert_eq!((key.expires_at - key.created_at).num_days(), 90);
    let raw = key.key.as_ref().unwrap().expose();
    let whoami: Whoami = system.client().bearer(raw).get("/auth/session").await.expect(200);
    assert_eq!((whoami.subject_type, whoami.key_id), (SubjectType::ApiKey, Some(key.id)));
    assert_eq!((whoami.tenant_id.as_str(), whoami.expires_at), ("acme", key.expires_at));
    assert!(!system.dump_database().await.contains(raw), "only the digest is stored");
}

#[tokio::test]
async fn rejects_invalid_fields_with_their_pointers() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for (body, pointer) in [
        (json!({ "name": " " }), "/name"),
        (json!({ "name": "k", "scopes": [] }), "/scopes"),
        (json!({ "name": "k", "scopes": ["everything"] }), "/scopes/0"),
        (json!({ "name": "k", "source_ids": [""] }), "/source_ids"),
        (json!({ "name": "k", "source_ids": [] }), "/source_ids"),
        (json!({ "name": "k", "scopes": [null] }), "/scopes/0"),
        (json!({ "name": "k", "expires_at": "2020-01-01T00:00:00Z" }), "/expires_at"),
        (json!({ "name": "k", "expires_at": "2999-01-01T00:00:00Z" }), "/expires_at"),
    ] {
        let response = admin.client.post("/api-keys", &body).await;
        assert_eq!(response.expect_problem(422, "validation_failed").errors[0].pointer, pointer, "{body}");
    }
}

#[tokio::test]
async fn only_administrators_of_the_tenant_manage_keys() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let scopes = json!(["events:write", "users:read", "users:write"]);
    let (key, holder) = system.create_api_key(&admin, &json!({ "name": "first", "scopes": scopes })).await;
    system.create_api_key(&admin, &json!({ "name": "second" })).await;
    for client in [&member.client, &holder] {
        client.get("/api-keys").await.expect_problem(403, "forbidden");
        client.post("/api-keys", &json!({ "name": "mine" })).await.expect_problem(403, "forbidden");
        client.delete(&format!("/api-keys/{}", key.id)).await.expect_problem(403, "forbidden");
    }
    assert_eq!(names(&admin.client, "/api-keys").await, ["first", "second"]);
    assert_eq!(names(&admin.client, &format!("/api-keys?cursor=api-keys.{}", key.id)).await, ["second"]);
    let of_another_list = format!("/api-keys?cursor=sessions.{}", key.id);
    admin.client.get(&of_another_list).await.expect_problem(422, "validation_failed");
    assert_eq!(names(&other.client, "/api-keys").await, [] as [&str; 0]);
    other.client.delete(&format!("/api-keys/{}", key.id)).await.expect_problem(404, "not_found");
    holder.get("/auth/session").await.expect::<Whoami>(200);
}

#[tokio::test]
async fn the_platform_administrator_lists_and_revokes_the_keys_of_a_tenant_and_is_audited() {
    let system = TestSystem::start().await.unwrap();
    let (admin, _) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let (key, holder) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let of = |tenant_id: &str| system.platform_admin().header("X-Tenant-ID", tenant_id);
    let path = format!("/api-keys/{}", key.id);
    assert_eq!(names(&of("acme"), "/api-keys").await, ["firewall"]);
    assert_eq!(names(&of("other"), "/api-keys").await, [] as [&str; 0]);
    of("unknown").get("/api-keys").await.expect_problem(404, "not_found");
    of("other").delete(&path).await.expect_problem(404, "not_found");
    system.platform_admin().delete(&path).await.expect_problem(400, "header_missing");
    of("acme").post("/api-keys", &json!({ "name": "mine" })).await.expect_problem(403, "forbidden");
    holder.get("/auth/session").await.expect::<Whoami>(200);
    of("acme").delete(&path).await.expect_empty(204);
    holder.get("/auth/session").await.expect_problem(401, "credential_invalid");
    assert_eq!(names(&of("acme"), "/api-keys").await, [] as [&str; 0]);
    let revoked = wait_until("the revocation is audited", async || {
        let page: Value = admin.client.get("/audit?kind=authn_token_revoked").await.expect(200);
        page["items"].as_array()?.first().cloned()
    })
    .await;
    assert_eq!((&revoked["actor"]["type"], &revoked["key_id"]), (&json!("platform_admin"), &json!(key.id)));
}

#[tokio::test]
async fn revoking_a_key_invalidates_it_at_once_and_is_idempotent() {
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
async fn rejects_keys_of_a_suspended_tenant_until_it_is_resumed() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, holder) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let whoami = async || -> TestResponse { holder.get("/auth/session").await };
    set_status(&system, "suspended").await;
    whoami().await.expect_problem(401, "credential_invalid");
    set_status(&system, "active").await;
    whoami().await.expect::<Whoami>(200);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
}

/// The context with an administrator.
struct Fixture {
    context: Context,
    admin: SubjectRecord,
}

impl Fixture {
    async fn start() -> Self {
        Self { context: Context::start().await, admin: SubjectRecord { role: Role::Admin, ..subject() } }
    }

    async fn admin(&self) -> RawToken {
        self.context.issue(&self.admin, &tenant()).await.unwrap()
    }

    async fn key(&self, days: i64) -> (ApiKey, RawToken) {
        self.key_of(&self.admin, days).await
    }

    async fn key_of(&self, admin: &SubjectRecord, days: i64) -> (ApiKey, RawToken) {
        let expires_at = self.context.clock.now() + TimeDelta::days(days);
        let body = json!({"name": "firewall", "expires_at": expires_at}).to_string();
        let session = self.context.issue(admin, &tenant()).await.unwrap();
        let (status, body) = self.context.request(Method::POST, PATH, &session, body).await;
        assert_eq!(status, StatusCode::CREATED);
        let key: ApiKey = serde_json::from_slice(&body).unwrap();
        let token = RawToken::parse(TokenKind::ApiKey, key.key.as_ref().unwrap().expose()).unwrap();
        (key, token)
    }

    /// Creates a key. Returns the status and the code of the problem.
    async fn create(&self, admin: &RawToken) -> (u16, Option<String>) {
        let body = json!({ "name": "one more" }).to_string();
        let (status, body) = self.context.request(Method::POST, PATH, admin, body).await;
        let response: Value = serde_json::from_slice(&body).unwrap();
        (status.as_u16(), response["code"].as_str().map(str::to_owned))
    }

    async fn listed(&self) -> Vec<ApiKey> {
        let (status, body) = self.context.request(Method::GET, PATH, &self.admin().await, "").await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice::<Page<ApiKey>>(&body).unwrap().items
    }

    /// Waits until the service has saved that the keys are used now.
    async fn wait_until_uses_saved(&self, places: &[usize]) {
        let now = Some(self.context.clock.now());
        wait_until("the uses are saved", async || {
            let keys = self.listed().await;
            places.iter().all(|place| keys[*place].last_used_at == now).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn unused_key_is_active_until_it_expires() {
    let fixture = Fixture::start().await;
    let (_, token) = fixture.key(30).await;
    fixture.context.clock.advance(TimeDelta::days(30) - TimeDelta::microseconds(1));
    assert!(fixture.context.is_active(&token).await);
    assert_eq!(fixture.listed().await.len(), 1);
    fixture.context.clock.advance(TimeDelta::microseconds(1));
    assert!(!fixture.context.is_active(&token).await);
    assert_eq!(fixture.listed().await.len(), 0);
}

#[tokio::test]
async fn a_list_names_the_creator_of_each_key() {
    let fixture = Fixture::start().await;
    let (key, _) = fixture.key(30).await;
    assert_eq!(
        (key.created_by, fixture.listed().await[0].created_by),
        (fixture.admin.user_id, key.created_by)
    );
}

#[tokio::test]
async fn a_reset_revokes_the_keys_that_the_user_created_before_it() {
    let fixture = Fixture::start().await;
    let other = SubjectRecord { role: Role::Admin, ..subject() };
    let (_, own) = fixture.key(30).await;
    let (_, foreign) = fixture.key_of(&other, 30).await;
    let changed = SubjectRecord { credential_version: 2, version: 2, ..fixture.admin.clone() };
    fixture.context.apply_subject(&changed).await;
    assert!(fixture.context.is_active(&own).await, "a password change does not revoke keys");
    let (_, later) = fixture.key_of(&changed, 30).await;
    let reset = SubjectRecord { credential_version: 3, api_key_version: 3, version: 3, ..changed };
    fixture.context.apply_subject(&reset).await;
    assert!(!fixture.context.is_active(&own).await && !fixture.context.is_active(&later).await);
    assert!(fixture.context.is_active(&foreign).await);
    let (_, new) = fixture.key_of(&reset, 30).await;
    let disabled = SubjectRecord { credential_version: 4, version: 4, ..reset };
    fixture.context.apply_subject(&disabled).await;
    assert!(fixture.context.is_active(&new).await, "only the reset revokes keys");
}

#[tokio::test]
async fn use_of_a_key_is_recorded_once_per_minute() {
    let fixture = Fixture::start().await;
    let ((_, token), (_, other)) = (fixture.key(30).await, fixture.key(30).await);
    assert_eq!(fixture.listed().await[0].last_used_at, None);
    let first = fixture.context.clock.now();
    assert!(fixture.context.is_active(&token).await);
    fixture.wait_until_uses_saved(&[0]).await;
    fixture.context.clock.advance(TimeDelta::seconds(59));
    assert!(fixture.context.is_active(&token).await && fixture.context.is_active(&other).await);
    // An earlier use has been saved, too.
    fixture.wait_until_uses_saved(&[1]).await;
    assert_eq!(fixture.listed().await[0].last_used_at, Some(first));
    fixture.context.clock.advance(TimeDelta::seconds(1));
    assert!(fixture.context.is_active(&token).await);
    fixture.wait_until_uses_saved(&[0]).await;
}

#[tokio::test]
async fn introspection_returns_sessions_and_keys_in_the_order_of_the_request() {
    let fixture = Fixture::start().await;
    let (session, (key, token)) = (fixture.admin().await, fixture.key(30).await);
    let subjects = fixture.context.introspect(&[&token, &session, &token]).await;
    let keys = subjects.iter().map(|subject| match subject.as_ref().unwrap().credential {
        Credential::ApiKey { key_id, .. } => Some(key_id),
        _ => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [Some(key.id), None, Some(key.id)]);
}

#[tokio::test]
async fn concurrent_requests_create_at_most_a_thousand_keys_per_tenant() {
    let fixture = Fixture::start().await;
    let (key, _) = fixture.key(30).await;
    fixture.key(1).await;
    let mut connection = fixture.context.database.superuser().await.unwrap();
    let copies = sqlx::query(
        "insert into session.api_keys (
            key_id, tenant_id, name, digest, scopes, source_ids, created_by, credential_version, created_at, expires_at
        )
        select
            gen_random_uuid(), tenant_id, name, sha256(number::text::bytea), scopes, source_ids, created_by,
            credential_version, created_at, expires_at
        from session.api_keys, generate_series(1, 994) as number
        where key_id = $1",
    );
    copies.bind(key.id.0).execute(&mut connection).await.unwrap();
    let rejected = (409, Some("too_many_api_keys".to_owned()));
    let admin = fixture.admin().await;
    let mut responses = testkit::join_all((0..12).map(|_| fixture.create(&admin))).await;
    responses.sort();
    assert_eq!(responses, [vec![(201, None); 4], vec![rejected.clone(); 8]].concat());

    let path = format!("{PATH}/{}", key.id);
    assert_eq!(fixture.context.request(Method::DELETE, &path, &admin, "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(fixture.create(&admin).await, (201, None), "a revoked key does not count");
    assert_eq!(fixture.create(&admin).await, rejected);
    fixture.context.clock.advance(TimeDelta::days(1));
    assert_eq!(fixture.create(&fixture.admin().await).await, (201, None), "an expired key does not count");
}

#[tokio::test]
async fn a_tenant_creates_a_thousand_keys_at_once_and_then_one_per_minute_also_if_it_revokes_them() {
    let fixture = Fixture::start().await;
    let (key, _) = fixture.key(30).await;
    let admin = fixture.admin().await;
    let path = format!("{PATH}/{}", key.id);
    assert_eq!(fixture.context.request(Method::DELETE, &path, &admin, "").await.0, StatusCode::NO_CONTENT);
    // As after 999 keys.
    let counted = sqlx::query(
        "update session.limits set theoretical_arrival_at = theoretical_arrival_at + interval '998 minutes'
        where limit_name = 'api_keys_of_tenant' and subject = 'acme'",
    );
    let counted = counted.execute(&mut fixture.context.database.superuser().await.unwrap()).await.unwrap();
    assert_eq!(counted.rows_affected(), 1);
    let rejected = (429, Some("rate_limited".to_owned()));
    assert_eq!(fixture.create(&admin).await, (201, None));
    assert_eq!(fixture.create(&admin).await, rejected);
    assert_eq!(fixture.context.count_rows("api_keys").await, 2);
    fixture.context.clock.advance(TimeDelta::minutes(1));
    assert_eq!(fixture.create(&admin).await, (201, None));
    assert_eq!(fixture.create(&admin).await, rejected);

    let other = TenantRecord { tenant_id: "other".parse().unwrap(), ..tenant() };
    let user = SubjectRecord { tenant_id: other.tenant_id.clone(), role: Role::Admin, ..subject() };
    let admin = fixture.context.issue(&user, &other).await.unwrap();
    assert_eq!(fixture.create(&admin).await, (201, None), "each tenant has its own limit");
}

#[tokio::test]
async fn purges_keys_that_expired_a_day_ago() {
    let fixture = Fixture::start().await;
    let (_, short) = fixture.key(1).await;
    let (_, long) = fixture.key(30).await;
    fixture.context.clock.advance(TimeDelta::days(2) + TimeDelta::microseconds(1));
    assert_eq!(fixture.context.count_rows("api_keys").await, 2);
    // A process purges when it starts.
    let _replica = fixture.context.start_replica();
    testkit::wait_until("the expired key is purged", async || {
        (fixture.context.count_rows("api_keys").await == 1).then_some(())
    })
    .await;
    assert!(fixture.context.is_active(&long).await && !fixture.context.is_active(&short).await);
}

#[tokio::test]
async fn the_sessions_and_keys_of_a_deleted_tenant_are_rejected_at_once_and_deleted_by_the_purge() {
    let fixture = Fixture::start().await;
    let context = &fixture.context;
    let (_, key) = fixture.key(30).await;
    let session = fixture.admin().await;
    let deleted = TenantRecord {
        status: TenantStatus::Suspended,
        session_version: 2,
        is_deleted: true,
        version: 2,
        ..tenant()
    };
    context.apply_tenant(&deleted).await;
    for token in [&key, &session] {
        assert!(!context.is_active(token).await);
    }
    let other = TenantRecord { tenant_id: "other".parse().unwrap(), ..tenant() };
    let user = SubjectRecord { tenant_id: other.tenant_id.clone(), ..subject() };
    let session = context.issue(&user, &other).await.unwrap();
    assert!(context.is_active(&session).await);
    let _replica = context.start_replica();
    wait_until("the rows are deleted", async || {
        let rows = (context.count_rows("sessions").await, context.count_rows("api_keys").await);
        (rows == (1, 0)).then_some(())
    })
    .await;
    assert!(context.issue(&fixture.admin, &tenant()).await.is_none(), "an earlier record changes nothing");
}
