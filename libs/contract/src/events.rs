//! Answers of the event endpoints. The events themselves are the `udm` crate's.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    /// The stream holds it.
    Accepted,
    /// The stream does not hold it; code, message and `retryable` say why and what to do.
    Rejected,
}

/// `POST /events`: 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "event_id": "1", "server_event_id": "3f4c2a52-6b0f-5c1e-9d0a-0d6b5c1e9d0a", "status": "accepted",
    "duplicate": false, "received_at": "2026-01-31T12:00:00Z",
}))]
pub struct AcceptedEvent {
    /// The sender's id, or the one that the server made.
    pub event_id: String,
    /// UUIDv5 of tenant, source and event id: the same at every retry.
    pub server_event_id: Uuid,
    /// Always `accepted`.
    pub status: EventStatus,
    /// The stream held it already; the first bytes stand.
    pub duplicate: bool,
    /// When the server received this request.
    pub received_at: DateTime<Utc>,
}

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventResult {
    /// Its place in the request, from 0.
    pub index: usize,
    /// The sender's id, or the one that the server made; absent when the event had none that could be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// Whether the stream holds it.
    pub status: EventStatus,
    /// The stream held it already.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicate: Option<bool>,
    /// UUIDv5 of tenant, source and event id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_event_id: Option<Uuid>,
    /// The problem's code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// The problem in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Where in the event, as a JSON Pointer (RFC 6901).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pointer: Option<String>,
    /// Whether the same event can succeed later, unchanged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retryable: Option<bool>,
}

/// `POST /events/batch`: 202 (all accepted), 207 (some), 422, 429 or 503 (none).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "batch_id": "019c1373-2f00-7000-8000-000000000004", "total_events": 2, "successful_events": 1, "failed_events": 1,
    "results": [
        { "index": 0, "event_id": "1", "status": "accepted", "duplicate": false,
          "server_event_id": "3f4c2a52-6b0f-5c1e-9d0a-0d6b5c1e9d0a" },
        { "index": 1, "event_id": "2", "status": "rejected", "code": "validation_failed",
          "message": "is missing", "pointer": "/source_id", "retryable": false },
    ],
}))]
pub struct BatchResponse {
    /// Names this answer in logs.
    pub batch_id: Uuid,
    /// How many events the request held.
    pub total_events: usize,
    /// How many the stream holds.
    pub successful_events: usize,
    /// How many it does not hold.
    pub failed_events: usize,
    /// One result an event, in the request's order.
    pub results: Vec<EventResult>,
}

/// `GET /health`: 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`; when events cannot be accepted, the answer is a 503 problem.
    pub status: HealthStatus,
}

/// The one healthy answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Events can be accepted now.
    Ok,
}
