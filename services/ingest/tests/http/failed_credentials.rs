//! The limit of requests without a valid credential.

use contract::events::AcceptedEvent;
use serde_json::{Value, json};
use testkit::Client;
use testsystem::TestSystem;

/// Well-formed tokens that do not exist.
fn unknown_token(number: usize) -> String {
    use hashing::{RawToken, SystemEntropy, TokenKind};
    assert!(number < 1000);
    RawToken::generate(TokenKind::ApiKey, &SystemEntropy).expose().to_owned()
}

async fn status(client: &Client) -> u16 {
    client.post("/events", &json!({ "source_id": "s" })).await.status
}

/// Sends requests with unknown tokens until one is limited. Returns the number of those before.
async fn guess(system: &TestSystem) -> usize {
    for number in 0..999 {
        let client = system.client().bearer(&unknown_token(number));
        let answer = client.post("/events/batch", &json!([{ "source_id": "s" }])).await;
        if answer.status == 429 {
            let problem = answer.expect_problem(429, "rate_limited");
            assert!(problem.retry_after_ms.unwrap() > 0);
            return number;
        }
        answer.expect_problem(401, "credential_invalid");
    }
    panic!("no request was limited");
}

#[tokio::test]
async fn guessed_credentials_are_limited_and_known_ones_are_not() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_CREDENTIAL", "5/h")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, key) = system.create_api_key(&admin, &json!({ "name": "k" })).await;
    for client in [&admin.client, &key] {
        client.post("/events", &json!({ "source_id": "s" })).await.expect::<AcceptedEvent>(202);
    }
    assert_eq!(guess(&system).await, 5);
    system.client().post("/events", &json!({})).await.expect_problem(429, "rate_limited");
    system.client().bearer("malformed").post("/events", &json!({})).await.expect_problem(429, "rate_limited");
    for _ in 0..20 {
        assert_eq!((status(&admin.client).await, status(&key).await), (202, 202));
    }
    // Routes without a credential are not limited.
    system.client().get("/health").await.expect::<Value>(200);
    system.client().get("/events/schema").await.expect::<Value>(200);
}

#[tokio::test]
async fn valid_credentials_and_rejected_events_count_nothing() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_CREDENTIAL", "1/h")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    for number in 0..5 {
        let (_, key) = system.create_api_key(&admin, &json!({ "name": format!("k{number}") })).await;
        assert_eq!(status(&key).await, 202);
        key.post("/events", &json!({})).await.expect_problem(422, "validation_failed");
        let other = key.clone().header("X-Tenant-ID", "other");
        other.post("/events", &json!({})).await.expect_problem(403, "tenant_mismatch");
    }
    let create = json!({ "name": "r", "scopes": ["users:read", "users:write"] });
    let (_, reader) = system.create_api_key(&admin, &create).await;
    for _ in 0..5 {
        assert_eq!(status(&reader).await, 403);
    }
}

#[tokio::test]
async fn revoked_credential_is_limited_like_an_unknown_one() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_CREDENTIAL", "2/h")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (created, key) = system.create_api_key(&admin, &json!({ "name": "k" })).await;
    assert_eq!(status(&key).await, 202);
    admin.client.delete(&format!("/api-keys/{}", created.id)).await.expect_empty(204);
    let rejected = testkit::wait_until("the key is rejected", async || {
        Some(status(&key).await).filter(|status| *status != 202)
    });
    assert_eq!(rejected.await, 401);
    assert_eq!([status(&key).await, status(&key).await], [401, 429]);
}
