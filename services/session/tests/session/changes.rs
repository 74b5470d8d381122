//! `POST /internal/v1/changes`: audit events of changes in ingest.

use contract::internal::RECORD_CHANGE;
use http::StatusCode;
use serde_json::json;

use crate::context::{Context, SERVICE_TOKEN};

#[tokio::test]
async fn only_a_known_change_of_a_service_is_recorded() {
    let context = Context::start().await;
    let record = async |token: &str, change: &str| {
        let actor = json!({ "type": "platform_admin" });
        let body = json!({ "tenant_id": "acme", "actor": actor, "change": change, "consumer": "siem" });
        context.post_internal(RECORD_CHANGE, token, &body).await.0
    };
    let other_token = "another token of thirty-two characters or more";
    assert_eq!(record(other_token, "consumer_created").await, StatusCode::UNAUTHORIZED);
    assert!(record(SERVICE_TOKEN, "tenant_deleted").await.is_client_error());
    assert_eq!(context.count_rows("outbox").await, 0);
    assert_eq!(record(SERVICE_TOKEN, "consumer_created").await, StatusCode::NO_CONTENT);
    assert_eq!(context.count_rows("outbox").await, 1);
}
