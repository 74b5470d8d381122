//! Interpretation of responses. Any response, of the service or of a proxy, becomes a result or an error.

use std::fmt::Write;
use std::time::Duration;

use contract::Problem;
use contract::events::{AcceptedEvent, BatchResponse, EventResult};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::{TransportError, TransportErrorKind};

/// A complete response.
#[derive(Clone, Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    body: Vec<u8>,
}

impl HttpResponse {
    pub(super) fn new(response: &Response, body: Vec<u8>) -> Self {
        Self {
            status: response.status(),
            retry_after: header(response.headers(), RETRY_AFTER.as_str())
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            request_id: header(response.headers(), "x-request-id").map(str::to_owned),
            body,
        }
    }

    /// Result of `GET /health`.
    pub(super) fn health(&self) -> Result<(), TransportError> {
        if self.status.is_success() { Ok(()) } else { Err(self.error()) }
    }

    /// Result of `POST /events`.
    pub(super) fn accepted_event(&self) -> Result<AcceptedEvent, TransportError> {
        if !self.status.is_success() {
            return Err(self.error());
        }
        serde_json::from_slice(&self.body).map_err(|_| self.error())
    }

    /// Results of `POST /events/batch` with this number of events, in the order of the batch. A response with any status may
    /// contain results. It is an error unless there is one result per event.
    pub(super) fn batch_results(&self, events: usize) -> Result<BatchResponse, TransportError> {
        let mut response: BatchResponse = serde_json::from_slice(&self.body).map_err(|_| self.error())?;
        response.results.sort_by_key(|result| result.index);
        if response.results.iter().map(|result| result.index).eq(0..events) {
            Ok(response)
        } else {
            Err(self.error())
        }
    }

    /// Error of one event of a batch.
    pub(super) fn event_error(&self, result: &EventResult) -> TransportError {
        let mut message = result.message.clone().unwrap_or_else(|| "the event was rejected".to_owned());
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

    /// Error of the whole request.
    fn error(&self) -> TransportError {
        if self.status.is_success() {
            let message = format!(
                "HTTP {} with an unexpected body; check that the endpoint is the address of the service",
                self.status
            );
            return TransportError {
                kind: TransportErrorKind::Protocol,
                retryable: false,
                ..self.status_error(message)
            };
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => self.problem_error(problem),
            Err(_) => self.status_error(format!(
                "HTTP {} without a problem document, possibly from a proxy",
                self.status
            )),
        }
    }

    fn problem_error(&self, problem: Problem) -> TransportError {
        let mut message = format!("{}: {}", problem.title, problem.detail);
        for field in &problem.errors {
            let _ = write!(message, "; {} (at {})", field.message, field.pointer);
        }
        let retry_after = problem.retry_after_ms.map(Duration::from_millis);
        TransportError {
            code: Some(problem.code),
            request_id: Some(problem.request_id),
            retry_after: self.retry_after.max(retry_after),
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

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
