//! What became of an event, and of a batch: names, order and defaults are the specification's.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::TransportError;

/// What became of one event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SendResult {
    /// The service has accepted the event.
    pub success: bool,
    /// The id that the event was sent with.
    pub event_id: String,
    /// When this result came about.
    pub timestamp: DateTime<Utc>,
    /// Why it was not accepted.
    pub error: Option<TransportError>,
    /// Milliseconds from the call to the answer, retries included.
    pub response_time_ms: Option<f64>,
    /// The service's own id of the event: the same at every retry.
    pub server_event_id: Option<String>,
}

impl SendResult {
    /// The event was accepted.
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

    /// The event was not accepted.
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

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchSendResult {
    /// No event failed.
    pub success: bool,
    /// How many events the batch held.
    pub total_events: usize,
    /// How many the service has accepted.
    pub successful_events: usize,
    /// How many it has not.
    pub failed_events: usize,
    /// One result per event, in the batch's order.
    pub results: Vec<SendResult>,
    /// The service's name for its first answer; there are more when the batch was split or sent again.
    pub batch_id: Option<String>,
    /// Milliseconds from the call to the last answer.
    pub response_time_ms: Option<f64>,
}

impl BatchSendResult {
    /// Sums the results up, so that the totals always agree with them.
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

#[expect(
    clippy::disallowed_methods,
    reason = "the specification's default: results are made where no clock is at hand"
)]
fn now() -> DateTime<Utc> {
    Utc::now()
}
