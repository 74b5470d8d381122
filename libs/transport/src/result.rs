//! Results of sending events. Names, order and defaults of the fields are specified.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::TransportError;

/// Result of sending one event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SendResult {
    /// Whether the service accepted the event.
    pub success: bool,
    /// Id that the event was sent with.
    pub event_id: String,
    /// Time of this result.
    pub timestamp: DateTime<Utc>,
    /// Error, if the event was not accepted.
    pub error: Option<TransportError>,
    /// Milliseconds from the call to the response, including retries.
    pub response_time_ms: Option<f64>,
    /// Id that the service assigned; the same for every retry.
    pub server_event_id: Option<String>,
}

impl SendResult {
    /// Result of an accepted event.
    pub fn ok(
        event_id: impl Into<String>,
        response_time_ms: Option<f64>,
        server_event_id: Option<String>,
    ) -> Self {
        Self {
            success: true,
            event_id: event_id.into(),
            timestamp: now(),
            error: None,
            response_time_ms,
            server_event_id,
        }
    }

    /// Result of an event that was not accepted.
    pub fn fail(event_id: impl Into<String>, error: TransportError) -> Self {
        Self {
            success: false,
            event_id: event_id.into(),
            timestamp: now(),
            error: Some(error),
            response_time_ms: None,
            server_event_id: None,
        }
    }
}

/// Result of sending a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchSendResult {
    /// Whether all events were accepted.
    pub success: bool,
    /// Number of events.
    pub total_events: usize,
    /// Number of accepted events.
    pub successful_events: usize,
    /// Number of events that were not accepted.
    pub failed_events: usize,
    /// One result per event, in the order of the batch.
    pub results: Vec<SendResult>,
    /// Id that the service assigned to the first request. A split or retried batch has more than one.
    pub batch_id: Option<String>,
    /// Milliseconds from the call to the last response.
    pub response_time_ms: Option<f64>,
}

impl BatchSendResult {
    /// Computes the totals from the results.
    pub fn from_results(
        results: Vec<SendResult>,
        batch_id: Option<String>,
        response_time_ms: Option<f64>,
    ) -> Self {
        let successful_events = results.iter().filter(|result| result.success).count();
        let failed_events = results.len() - successful_events;
        Self {
            success: failed_events == 0,
            total_events: results.len(),
            successful_events,
            failed_events,
            results,
            batch_id,
            response_time_ms,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the specified default; constructors of results take no clock")]
fn now() -> DateTime<Utc> {
    Utc::now()
}
