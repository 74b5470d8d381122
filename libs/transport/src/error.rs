//! Errors of sending events and of connecting.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Where an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The configuration is invalid. Nothing was sent.
    Configuration,
    /// The event is not a JSON object with at most one `event_id` of type string. It was not sent.
    InvalidEvent,
    /// The connection failed, or broke before the response was complete.
    Connection,
    /// No response within the time limit.
    Timeout,
    /// A response with an error status, from the service or from a proxy.
    Status,
    /// A response that is not one of the service.
    Protocol,
}

/// An error of sending an event or of connecting.
///
/// After [`Connection`](TransportErrorKind::Connection) and [`Timeout`](TransportErrorKind::Timeout) errors, the service may
/// have accepted the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// Where the error occurred.
    pub kind: TransportErrorKind,
    /// HTTP status; for an event of a batch, the status of the whole response.
    pub status: Option<u16>,
    /// Stable code of the service: see [`contract::ProblemKind`].
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
