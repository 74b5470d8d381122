//! Events sent with an API key.

use contract::events::{AcceptedEvent, BatchResponse};
use data_encoding::BASE64URL_NOPAD;
use serde_json::json;
use testsystem::TestSystem;

use super::stream::{header, messages};

const JSON: &str = "application/json";

#[tokio::test]
async fn api_key_sends_events_and_is_recorded_in_the_message() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (key, holder) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    holder.post_bytes("/events", JSON, r#"{"source_id":"any"}"#).await.expect::<AcceptedEvent>(202);
    let id = BASE64URL_NOPAD.encode(key.id.0.as_bytes());
    assert_eq!(header(&messages(&system).await[0], "Udm-Credential"), format!("key:{id}"));
}

#[tokio::test]
async fn api_key_without_the_scope_is_rejected() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, holder) = system
        .create_api_key(&admin, &json!({ "name": "reader", "scopes": ["users:read", "users:write"] }))
        .await;
    for path in ["/events", "/events/batch"] {
        let answer = holder.post_bytes(path, JSON, r#"{"source_id":"any"}"#).await;
        assert!(answer.expect_problem(403, "insufficient_scope").detail.contains("events:write"));
    }
    assert_eq!(messages(&system).await.len(), 0);
}

#[tokio::test]
async fn api_key_with_a_list_of_sources_sends_only_events_of_these_sources() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, holder) =
        system.create_api_key(&admin, &json!({ "name": "two", "source_ids": ["fw-1", "fw/2"] })).await;
    let send = async |path: &str, body: &str| holder.post_bytes(path, JSON, body.to_owned()).await;
    send("/events", r#"{"source_id":"fw-1"}"#).await.expect::<AcceptedEvent>(202);
    send("/events", r#"{"source_id":"fw-2"}"#).await.expect_problem(403, "source_not_allowed");
    send("/events", r#"{"source_id":"FW-1"}"#).await.expect_problem(403, "source_not_allowed");
    send("/events", r#"{"sourceId":"fw-2"}"#).await.expect_problem(403, "source_not_allowed");

    let mixed =
        r#"[{"sourceId":"fw/2","event_id":"1"},{"source_id":"other","event_id":"2"},{"sourceId":"other"}]"#;
    let batch: BatchResponse = send("/events/batch", mixed).await.expect(207);
    let rejected = &batch.results[1];
    assert_eq!((batch.successful_events, batch.failed_events), (1, 2));
    assert_eq!((rejected.event_id.as_deref(), rejected.retryable), (Some("2"), Some(false)));
    assert_eq!(rejected.code.as_deref(), Some("source_not_allowed"));
    assert_eq!(rejected.pointer.as_deref(), Some("/source_id"));
    assert_eq!(batch.results[2].pointer.as_deref(), Some("/sourceId"));
    assert_eq!(messages(&system).await.len(), 2);
}
