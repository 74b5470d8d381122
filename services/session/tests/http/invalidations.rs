//! Whatever ends a credential, or changes what it may do, is hinted at on NATS as soon as it holds in session.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

use std::time::Duration;

use bus::{Config, FeedEvent, Invalidation, InvalidationListener};
use contract::Role;
use contract::api_key::ApiKey;
use hashing::TokenDigest;
use serde_json::{Value, json};
use testkit::PASSWORD;
use testsystem::TestSystem;
use tokio::time::timeout;

/// Something is said every second; only a defect lasts this long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Hints(InvalidationListener);

impl Hints {
    async fn of(system: &TestSystem) -> Self {
        let mut listener = InvalidationListener::start(&Config::new(&system.nats.url, "test")).await.unwrap();
        while !matches!(listener.next().await, FeedEvent::Connected) {}
        let mut invalidations = Self(listener);
        // A heartbeat: the subscription is in force.
        invalidations.next().await;
        invalidations
    }

    async fn next(&mut self) -> Vec<Invalidation> {
        loop {
            match timeout(PATIENCE, self.0.next()).await.unwrap() {
                FeedEvent::InvalidationMessage(hint) => return hint.revoked,
                FeedEvent::Connected => {}
                FeedEvent::Missed => panic!("nothing may be missed here"),
            }
        }
    }

    async fn expect(&mut self, expected: Invalidation) {
        while !self.next().await.contains(&expected) {}
    }
}

fn credential(raw: &str) -> Invalidation {
    Invalidation::Credential(TokenDigest::of_text(raw).to_hex())
}

#[tokio::test]
async fn the_end_of_a_session_or_a_key_is_hinted_at() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let mut invalidations = Hints::of(&system).await;

    let raw = member.session.session_id.expose();
    let by_token = system.client().header("X-Session-ID", raw);
    by_token.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    invalidations.expect(credential(raw)).await;

    let listed = system.log_in("acme", "ada@acme.example").await;
    let of_member = admin.client.clone().header("X-User-ID", &member.user.user_id.to_string());
    let sessions: Value = of_member.get("/auth/sessions").await.expect(200);
    let id = sessions["items"][0]["id"].as_str().unwrap();
    admin.client.delete(&format!("/auth/sessions/{id}")).await.expect_empty(204);
    invalidations.expect(credential(listed.session_id.expose())).await;

    of_member.delete("/auth/sessions").await.expect_empty(204);
    invalidations.expect(Invalidation::User(member.user.user_id)).await;

    let key: ApiKey = admin.client.post("/api-keys", &json!({ "name": "firewall" })).await.expect(201);
    admin.client.delete(&format!("/api-keys/{}", key.id)).await.expect_empty(204);
    invalidations.expect(credential(key.key.unwrap().expose())).await;

    let first = system.log_in("acme", "ada@acme.example").await;
    for _ in 0..50 {
        system.log_in("acme", "ada@acme.example").await;
    }
    invalidations.expect(credential(first.session_id.expose())).await;
}

#[tokio::test]
async fn a_change_of_standing_is_hinted_at() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let (user_id, user) = (member.user.user_id, Invalidation::User(member.user.user_id));
    let mut invalidations = Hints::of(&system).await;

    let change = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let own = member.client.clone().header("X-User-ID", &user_id.to_string());
    own.post("/auth/password/change", &change).await.expect_empty(204);
    invalidations.expect(user.clone()).await;

    for change in [json!({ "role": "admin" }), json!({ "status": "disabled" }), json!({ "status": "active" })]
    {
        admin.client.patch(&format!("/users/{user_id}"), &change).await.expect::<Value>(200);
        invalidations.expect(user.clone()).await;
    }
    for status in ["suspended", "active"] {
        let change = json!({ "status": status });
        system.platform_admin().patch("/tenants/acme", &change).await.expect::<Value>(200);
        invalidations.expect(Invalidation::Tenant("acme".parse().unwrap())).await;
    }
}
