//! Results and errors of sending events, and errors of connecting. Names, order and defaults of the result fields are
//! specified.

use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::ProblemKind;
use serde::{Serialize, Serializer};

/// Result of sending one event. A program that ignores it loses events without notice:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// async fn ignores_the_result(transport: &dyn transport::Transport, event: &transport::UdmEvent) {
///     transport.send(event).await;
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[must_use = "the event was possibly not accepted; use `into_result`"]
#[non_exhaustive]
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

    /// The accepted event, or the error. To send the event again after an error, set its id before the first send, or take it from
    /// `event_id` of this result.
    pub fn into_result(self) -> Result<Accepted, TransportError> {
        let Self { event_id, server_event_id, error, .. } = self;
        match error {
            None => Ok(Accepted { event_id, server_event_id }),
            Some(error) => Err(error),
        }
    }
}

/// An accepted event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// Id that the event was sent with.
    pub event_id: String,
    /// Id that the service assigned; the same for every retry.
    pub server_event_id: Option<String>,
}

/// Result of sending a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[must_use = "events were possibly not accepted; use `into_result`"]
#[non_exhaustive]
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
    /// Milliseconds from the call to the last response; `None` if nothing was sent.
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

    /// The accepted events in the order of the batch, or the first error. Its message contains the number of failed events and the
    /// id of the first one. To send only the failed events again, use `results`.
    pub fn into_result(self) -> Result<Vec<Accepted>, TransportError> {
        let Self { failed_events, total_events, results, .. } = self;
        let of_event = |result: SendResult| {
            let event_id = result.event_id.clone();
            result.into_result().map_err(|error| {
                let message = format!(
                    "{failed_events} of {total_events} events are not stored; the first is {event_id}: {error}"
                );
                TransportError { message, ..error }
            })
        };
        results.into_iter().map(of_event).collect()
    }
}

/// Progress of a batch. `accepted`, `failed` and `waiting_for_retry` do not include the events that are not sent yet or are in a
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchProgress {
    /// Number of events.
    pub total_events: usize,
    /// Number of requests so far, including retries.
    pub attempts: usize,
    /// Number of accepted events.
    pub accepted: usize,
    /// Part of `accepted`: events that were already stored.
    pub duplicates: usize,
    /// Part of `accepted`: invalid events that are stored as dead letters of the tenant. See
    /// [`quarantine_invalid`](crate::HttpTransport::quarantine_invalid).
    pub quarantined: usize,
    /// Number of events with a final error.
    pub failed: usize,
    /// Number of events that wait for the next attempt.
    pub waiting_for_retry: usize,
    /// Pause before the next attempt, if events wait for it.
    pub retry_delay: Option<Duration>,
    /// Cause of the pause; `None` if it is unknown, for example because the service did not respond.
    pub retry_cause: Option<ProblemKind>,
}

/// One request and its result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestLog<'a> {
    /// HTTP method.
    pub method: &'static str,
    /// URL, without a credential.
    pub url: &'a str,
    /// HTTP status; `None` without a response.
    pub status: Option<u16>,
    /// Id of the request in the service's logs.
    pub request_id: Option<&'a str>,
    /// Whether the service can have received the request. False without a connection.
    pub is_sent: bool,
    /// Time until the response was complete, or until the error.
    pub elapsed: Duration,
}

#[expect(clippy::disallowed_methods, reason = "the specified default; constructors of results take no clock")]
fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Where an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The configuration is invalid. Nothing was sent.
    Configuration,
    /// The certificate of the service is not trusted. Nothing was sent. See
    /// [`with_root_certificates`](crate::HttpTransport::with_root_certificates).
    UntrustedCertificate,
    /// The event is not a JSON object with at most one `event_id` of type string. It was not sent.
    InvalidEvent,
    /// The connection failed, or broke before the response was complete.
    Connection,
    /// No response within the time limit.
    Timeout,
    /// A response with an error status, from the service or from a proxy.
    Status,
    /// A response that is not one of the service, or a request that the service has received at another path: the address is wrong.
    Protocol,
}

/// An error of sending an event or of connecting.
///
/// After [`Connection`](TransportErrorKind::Connection) and [`Timeout`](TransportErrorKind::Timeout) errors, the service may
/// have accepted the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct TransportError {
    /// Where the error occurred.
    pub kind: TransportErrorKind,
    /// HTTP status; for an event of a batch, the status of the whole response.
    pub status: Option<u16>,
    /// Stable code of the service: that of a [`ProblemKind`](crate::ProblemKind).
    pub code: Option<String>,
    /// What happened and what to do. Contains no credential.
    pub message: String,
    /// Id of the request in the service's logs.
    pub request_id: Option<String>,
    /// Whether the same event can be accepted later, unchanged.
    pub retryable: bool,
    /// Delay before a retry that the service requested. Serialized as `retry_after_ms`.
    #[serde(rename = "retry_after_ms", serialize_with = "as_milliseconds")]
    pub retry_after: Option<Duration>,
}

impl TransportError {
    /// Error without a response. Connection errors and timeouts are retryable.
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            code: None,
            message: message.into(),
            request_id: None,
            retryable: matches!(kind, TransportErrorKind::Connection | TransportErrorKind::Timeout),
            retry_after: None,
        }
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn as_milliseconds<S: Serializer>(delay: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}
