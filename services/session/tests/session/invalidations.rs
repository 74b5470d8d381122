//! The invalidation feed: session publishes every revocation and every change of account status on NATS.

use std::time::Duration;

use bus::{Config, Connection, FeedEvent, Invalidation, InvalidationListener};
use contract::Role;
use contract::session::ApiKey;
use hashing::TokenDigest;
use serde_json::{Value, json};
use testkit::PASSWORD;
use testsystem::TestSystem;
use tokio::time::timeout;

/// The feed has a heartbeat every second, so silence of this length is a defect.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Feed(InvalidationListener);

impl Feed {
    async fn subscribe(system: &TestSystem) -> Self {
        let connection = Connection::open(&Config::new(&system.nats.url, "test")).await.unwrap();
        let mut feed = Self(InvalidationListener::start(&connection).await.unwrap());
        // The first message, a heartbeat, shows that the subscription is active.
        feed.next().await;
        feed
    }

    async fn next(&mut self) -> Vec<Invalidation> {
        match timeout(TIMEOUT, self.0.next()).await.unwrap().unwrap() {
            FeedEvent::Message(message) => message.invalidations,
            other @ FeedEvent::Lost => panic!("{other:?}"),
        }
    }

    async fn expect(&mut self, expected: Invalidation) {
        while !self.next().await.contains(&expected) {}
    }
}

fn credential(raw: &str) -> Invalidation {
    Invalidation::Credential(TokenDigest::from_text(raw))
}

#[tokio::test]
async fn revoking_a_session_or_key_publishes_an_invalidation() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let mut feed = Feed::subscribe(&system).await;

    let raw = member.session.session_id.expose();
    let by_token = system.client().header("X-Session-ID", raw);
    by_token.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    feed.expect(credential(raw)).await;

    let listed = system.log_in("acme", "ada@acme.example").await;
    let of_member = admin.client.clone().header("X-User-ID", &member.user.user_id.to_string());
    let sessions: Value = of_member.get("/auth/sessions").await.expect(200);
    let id = sessions["items"][0]["id"].as_str().unwrap();
    admin.client.delete(&format!("/auth/sessions/{id}")).await.expect_empty(204);
    feed.expect(credential(listed.session_id.expose())).await;

    system.log_in("acme", "ada@acme.example").await;
    of_member.delete("/auth/sessions").await.expect_empty(204);
    feed.expect(Invalidation::User(member.user.user_id)).await;

    let key: ApiKey = admin.client.post("/api-keys", &json!({ "name": "firewall" })).await.expect(201);
    admin.client.delete(&format!("/api-keys/{}", key.id)).await.expect_empty(204);
    feed.expect(credential(key.key.unwrap().expose())).await;

    let first = system.log_in("acme", "ada@acme.example").await;
    for _ in 0..50 {
        system.log_in("acme", "ada@acme.example").await;
    }
    feed.expect(credential(first.session_id.expose())).await;
}

#[tokio::test]
async fn changing_account_status_publishes_an_invalidation() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let (user_id, user) = (member.user.user_id, Invalidation::User(member.user.user_id));
    let mut feed = Feed::subscribe(&system).await;

    let change = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let own = member.client.clone().header("X-User-ID", &user_id.to_string());
    own.post("/auth/password/change", &change).await.expect_empty(204);
    feed.expect(user.clone()).await;

    for change in [json!({ "role": "admin" }), json!({ "status": "disabled" }), json!({ "status": "active" })]
    {
        admin.client.patch(&format!("/users/{user_id}"), &change).await.expect::<Value>(200);
        feed.expect(user.clone()).await;
    }
    for status in ["suspended", "active"] {
        let change = json!({ "status": status });
        system.platform_admin().patch("/tenants/acme", &change).await.expect::<Value>(200);
        feed.expect(Invalidation::Tenant("acme".parse().unwrap())).await;
    }
}
