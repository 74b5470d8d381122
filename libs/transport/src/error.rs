//! Why an event was not accepted, or a connection not made.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Where it went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The transport's own configuration cannot work; nothing was sent.
    Configuration,
    /// The event is not one JSON object with at most one `event_id`, a string; it was not sent.
    InvalidEvent,
    /// No connection came about, or it broke before the whole answer was there.
    Connection,
    /// No answer came in time.
    Timeout,
    /// The service, or something before it, answered that it did not accept.
    Status,
    /// An answer came that the service does not give.
    Protocol,
}

/// A failure on the client's side of the API. After a send it says nothing more than that no acceptance is known:
/// of [`Connection`](TransportErrorKind::Connection) and [`Timeout`](TransportErrorKind::Timeout) faults, the service may have accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// Where it went wrong.
    pub kind: TransportErrorKind,
    /// HTTP status of the answer; of one event in a batch, that of the whole answer.
    pub status: Option<u16>,
    /// The service's code for the problem, the thing to key on: see [`contract::ProblemKind`].
    pub code: Option<String>,
    /// What happened and what to do, for people. Holds no credential.
    pub message: String,
    /// Finds the request in the service's logs.
    pub request_id: Option<String>,
    /// Whether the same event, sent again unchanged, can be accepted later.
    pub retryable: bool,
    /// How long the service asked to wait before that. Serialised as `retry_after_ms`.
    #[serde(rename = "retry_after_ms", serialize_with = "as_milliseconds")]
    pub retry_after: Option<Duration>,
}

impl TransportError {
    /// An error without an answer. Connection faults and time-outs pass, so they are retryable; the others are not.
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

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn as_milliseconds<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}
