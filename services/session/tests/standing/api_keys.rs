//! API keys over time, beside sessions.

use chrono::{DateTime, TimeDelta, Utc};
use contract::api_key::ApiKey;
use contract::internal::{Credential, SubjectRecord};
use contract::{Page, Role};
use hashing::{RawToken, TokenKind};
use http::{Method, StatusCode};
use serde_json::json;

use crate::context::{Context, subject, tenant};

const PATH: &str = "/api/v1/api-keys";

struct Tenant {
    context: Context,
    admin: SubjectRecord,
}

impl Tenant {
    async fn start() -> Self {
        Self { context: Context::start().await, admin: SubjectRecord { role: Role::Admin, ..subject() } }
    }

    async fn admin(&self) -> RawToken {
        self.context.issue(&self.admin, &tenant()).await.unwrap()
    }

    async fn key(&self, days: i64) -> (ApiKey, RawToken) {
        use service::Clock as _;
        let expires_at = self.context.clock.now() + TimeDelta::days(days);
        let body = json!({"name": "firewall", "expires_at": expires_at}).to_string();
        let (status, body) = self.context.ask(Method::POST, PATH, &self.admin().await, body).await;
        assert_eq!(status, StatusCode::CREATED);
        let key: ApiKey = serde_json::from_slice(&body).unwrap();
        let token = RawToken::parse(TokenKind::ApiKey, key.key.as_ref().unwrap().expose()).unwrap();
        (key, token)
    }

    async fn listed(&self) -> Vec<ApiKey> {
        let (status, body) = self.context.ask(Method::GET, PATH, &self.admin().await, "").await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice::<Page<ApiKey>>(&body).unwrap().items
    }

    async fn last_used_at(&self) -> Option<DateTime<Utc>> {
        self.listed().await[0].last_used_at
    }
}

#[tokio::test]
async fn a_key_lives_until_its_time_is_over_however_seldom_it_is_used() {
    let tenant = Tenant::start().await;
    let (_, token) = tenant.key(30).await;
    tenant.context.clock.advance(TimeDelta::days(30) - TimeDelta::microseconds(1));
    assert!(tenant.context.lives(&token).await);
    assert_eq!(tenant.listed().await.len(), 1);
    tenant.context.clock.advance(TimeDelta::microseconds(1));
    assert!(!tenant.context.lives(&token).await);
    assert_eq!(tenant.listed().await.len(), 0);
}

#[tokio::test]
async fn the_use_of_a_key_is_noted_once_a_minute() {
    use service::Clock as _;
    let tenant = Tenant::start().await;
    let (_, token) = tenant.key(30).await;
    assert_eq!(tenant.last_used_at().await, None);
    let first = tenant.context.clock.now();
    assert!(tenant.context.lives(&token).await);
    tenant.context.clock.advance(TimeDelta::seconds(59));
    assert!(tenant.context.lives(&token).await);
    assert_eq!(tenant.last_used_at().await, Some(first));
    tenant.context.clock.advance(TimeDelta::seconds(1));
    assert!(tenant.context.lives(&token).await);
    assert_eq!(tenant.last_used_at().await, Some(first + TimeDelta::minutes(1)));
}

#[tokio::test]
async fn sessions_and_keys_are_answered_together_in_the_order_they_were_asked() {
    let tenant = Tenant::start().await;
    let (session, (key, token)) = (tenant.admin().await, tenant.key(30).await);
    let told = tenant.context.introspect(&[&token, &session, &token]).await;
    let keys = told.iter().map(|subject| match subject.as_ref().unwrap().credential {
        Credential::ApiKey { key_id, .. } => Some(key_id),
        Credential::Session { .. } => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [Some(key.id), None, Some(key.id)]);
}

#[tokio::test]
async fn a_tenant_has_a_thousand_keys_at_most_however_many_are_made_at_once() {
    let tenant = Tenant::start().await;
    let (key, _) = tenant.key(30).await;
    tenant.key(1).await;
    let mut connection = tenant.context.database.superuser().await.unwrap();
    let copies = sqlx::query(
        "insert into session.api_keys (key_id, tenant_id, name, digest, scopes, source_ids, created_at, expires_at)
        select gen_random_uuid(), tenant_id, name, sha256(number::text::bytea), scopes, source_ids, created_at, expires_at
        from session.api_keys, generate_series(1, 994) as number
        where key_id = $1",
    );
    copies.bind(key.id.0).execute(&mut connection).await.unwrap();
    let create = async |admin: &RawToken| {
        let (status, body) =
            tenant.context.ask(Method::POST, PATH, admin, json!({"name": "one more"}).to_string()).await;
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (status.as_u16(), answer["code"].as_str().map(str::to_owned))
    };
    let refused = (409, Some("too_many_api_keys".to_owned()));
    let admin = tenant.admin().await;
    let mut answers = testkit::join_all((0..12).map(|_| create(&admin))).await;
    answers.sort();
    assert_eq!(answers, [vec![(201, None); 4], vec![refused.clone(); 8]].concat());

    let path = format!("{PATH}/{}", key.id);
    assert_eq!(tenant.context.ask(Method::DELETE, &path, &admin, "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(create(&admin).await, (201, None), "a key that is revoked does not count");
    assert_eq!(create(&admin).await, refused);
    tenant.context.clock.advance(TimeDelta::days(1));
    assert_eq!(create(&tenant.admin().await).await, (201, None), "nor one that has run out");
}

#[tokio::test]
async fn a_key_that_is_over_for_a_day_is_purged_and_one_that_lives_is_not() {
    let tenant = Tenant::start().await;
    let (_, short) = tenant.key(1).await;
    let (_, long) = tenant.key(30).await;
    tenant.context.clock.advance(TimeDelta::days(2) + TimeDelta::microseconds(1));
    assert_eq!(tenant.context.rows("api_keys").await, 2);
    // A purge begins when the process starts.
    let _restarted = tenant.context.restarted();
    testkit::wait_until("one API key is left", async || {
        (tenant.context.rows("api_keys").await == 1).then_some(())
    })
    .await;
    assert!(tenant.context.lives(&long).await && !tenant.context.lives(&short).await);
}
