//! Queries and responses of the event routes. The `udm` crate defines the events.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::value;

/// Result of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    /// The stream has stored the event.
    Accepted,
    /// The event was not stored. `code`, `message` and `retryable` give the reason.
    Rejected,
    /// The item is not a valid event and was stored as a dead letter of the tenant. `code` and `message` give the reason. Only with
    /// `invalid=quarantine`.
    Quarantined,
}

/// Query parameters of `POST /events` and `POST /events/batch`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SendEvents {
    /// What happens to invalid items. Absent: they are rejected.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invalid: Option<InvalidItems>,
}

/// What happens to invalid items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidItems {
    /// They are stored as dead letters of the tenant and count as success. If an item fails for a temporary reason, the response is 429 or
    /// 503, and the same body can be sent again.
    Quarantine,
}

/// Response of `POST /events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "event_id": "1", "server_event_id": "3f4c2a52-6b0f-5c1e-9d0a-0d6b5c1e9d0a", "status": "accepted",
    "duplicate": false, "received_at": "2026-01-31T12:00:00Z",
}))]
pub struct AcceptedEvent {
    /// The `event_id` of the request, or a generated one.
    pub event_id: String,
    /// UUIDv5 of tenant, source and event id. The same for every retry. The source is empty for a quarantined item without a valid one.
    pub server_event_id: Uuid,
    /// `accepted`, or `quarantined` with `invalid=quarantine`.
    pub status: EventStatus,
    /// Whether the event was already stored. The first version is kept.
    pub duplicate: bool,
    /// Time at which the server received the request.
    pub received_at: DateTime<Utc>,
    /// Problem code of a quarantined item.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// Problem description of a quarantined item.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Position of the error in a quarantined item, as a JSON Pointer (RFC 6901).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pointer: Option<String>,
}

/// Result of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventResult {
    /// Position in the request, starting at 0.
    pub index: usize,
    /// The `event_id` of the request, or a generated one. Absent if the event could not be parsed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// Whether the event was stored.
    pub status: EventStatus,
    /// Whether the event was already stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicate: Option<bool>,
    /// UUIDv5 of tenant, source and event id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_event_id: Option<Uuid>,
    /// Problem code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// Problem description.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Position of the error in the event, as a JSON Pointer (RFC 6901).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pointer: Option<String>,
    /// Whether the unchanged event can succeed later.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retryable: Option<bool>,
}

/// Response of `POST /events/batch`: 202 (all events stored or quarantined), 207 (some), 422, 429 or 503 (none). With
/// `invalid=quarantine`, some events can be stored also with 429 and 503.
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
    /// Identifies the response in logs.
    pub batch_id: Uuid,
    /// Number of events in the request.
    pub total_events: usize,
    /// Number of events that are stored or quarantined.
    pub successful_events: usize,
    /// Number of quarantined items. Absent without `invalid=quarantine`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quarantined_events: Option<usize>,
    /// Number of events that were not stored.
    pub failed_events: usize,
    /// One result per event, in the order of the request. Empty with `Prefer: return=minimal`.
    pub results: Vec<EventResult>,
}

/// Query parameters of `GET /events/stream`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReadEvents {
    /// Type of the events. Repeat the parameter for several types, at most 20. Absent: all types.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    #[schemars(length(max = 20), inner(pattern("^[A-Z][A-Z0-9_]{0,63}$")))]
    pub event_type: Vec<String>,
    /// Source of the events. Absent: all sources.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(min = 1, max = 256))]
    pub source_id: Option<String>,
    /// `id` of the last event of an earlier response. The first event is the next one. Absent: the next new event. The header
    /// `Last-Event-ID` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<String>,
    /// Time from which stored events are read. Not together with `after`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_time")]
    pub since: Option<DateTime<Utc>>,
    /// Whether the response continues with new events. If it is false, the response ends after the stored events. Default:
    /// true.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follow: Option<bool>,
}

/// Data of an event in the response of `GET /events/stream`, on one line.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "event_id": "1", "server_event_id": "3f4c2a52-6b0f-5c1e-9d0a-0d6b5c1e9d0a", "source_id": "fw-1",
    "event_type": "NETWORK_CONNECTION", "received_at": "2026-01-31T12:00:00Z", "event": { "source_id": "fw-1" },
}))]
pub struct StreamedEvent {
    /// The `event_id` of the producer, or a generated one.
    pub event_id: String,
    /// UUIDv5 of tenant, source and event id.
    pub server_event_id: Uuid,
    /// Source of the event.
    pub source_id: String,
    /// Type of the event.
    pub event_type: String,
    /// Time at which the server received the event.
    pub received_at: DateTime<Utc>,
    /// The event as the producer sent it. Line breaks between its values are replaced by spaces.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub event: Box<RawValue>,
}

/// Response of `GET /health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`. If events cannot be accepted, the response is a 503 problem.
    pub status: HealthStatus,
}

/// Health of event ingestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Events can be accepted.
    Ok,
}
