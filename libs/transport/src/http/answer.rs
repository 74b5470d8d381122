//! What an answer means. Anything may come back, also from what stands between: all of it ends as a value.

use std::fmt::Write;
use std::time::Duration;

use contract::Problem;
use contract::events::{AcceptedEvent, BatchResponse, EventResult};
use reqwest::StatusCode;

use crate::{TransportError, TransportErrorKind};

/// A whole answer, of whomever.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) request_id: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Of `GET /health`.
    pub(super) fn healthy(&self) -> Result<(), TransportError> {
        if self.status.is_success() { Ok(()) } else { Err(self.error()) }
    }

    /// Of `POST /events`.
    pub(super) fn accepted(&self) -> Result<AcceptedEvent, TransportError> {
        if !self.status.is_success() {
            return Err(self.error());
        }
        serde_json::from_slice(&self.body).map_err(|_| self.error())
    }

    /// Of `POST /events/batch`, with this many events. When the list could be read the answer is its results, in the
    /// list's order, whatever the status; results that do not fit the list are not understood.
    pub(super) fn batch(&self, events: usize) -> Result<BatchResponse, TransportError> {
        let mut answer: BatchResponse = serde_json::from_slice(&self.body).map_err(|_| self.error())?;
        answer.results.sort_by_key(|result| result.index);
        if answer.results.iter().map(|result| result.index).eq(0..events) {
            Ok(answer)
        } else {
            Err(self.error())
        }
    }

    /// Why one event of a batch was not accepted.
    pub(super) fn event_error(&self, result: &EventResult) -> TransportError {
        let mut message = result.message.clone().unwrap_or_else(|| "the event was not accepted".to_owned());
        if let Some(pointer) = &result.pointer {
            // Writing to a string cannot fail.
            let _ = write!(message, " (at {pointer})");
        }
        TransportError {
            code: result.code.clone(),
            retryable: result.retryable.unwrap_or(false),
            ..self.status_error(message)
        }
    }

    /// Why the whole request failed.
    fn error(&self) -> TransportError {
        if self.status.is_success() {
            let message =
                format!("HTTP {} with a body that is not the service's; is the endpoint right?", self.status);
            return TransportError {
                kind: TransportErrorKind::Protocol,
                retryable: false,
                ..self.status_error(message)
            };
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => self.problem_error(problem),
            Err(_) => self.status_error(format!(
                "HTTP {} without the service's explanation; it may come from a proxy before it",
                self.status
            )),
        }
    }

    fn problem_error(&self, problem: Problem) -> TransportError {
        let mut message = format!("{}: {}", problem.title, problem.detail);
        for fault in &problem.errors {
            let _ = write!(message, "; {} (at {})", fault.message, fault.pointer);
        }
        let wish = problem.retry_after_ms.map(Duration::from_millis);
        TransportError {
            code: Some(problem.code),
            request_id: Some(problem.request_id),
            retry_after: self.retry_after.max(wish),
            ..self.status_error(message)
        }
    }

    fn status_error(&self, message: String) -> TransportError {
        TransportError {
            status: Some(self.status.as_u16()),
            request_id: self.request_id.clone(),
            retryable: matches!(self.status.as_u16(), 408 | 429 | 502 | 503 | 504),
            retry_after: self.retry_after,
            ..TransportError::new(TransportErrorKind::Status, message)
        }
    }
}
