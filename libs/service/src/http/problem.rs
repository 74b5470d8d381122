//! Errors of handlers. The edge renders a [`Problem`] as a problem document (RFC 9457), because it knows the request id and
//! path. The message is public. The cause is private and is only logged.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use contract::problem::SecondFactor;
use contract::{FieldError, ProblemKind};
use http::StatusCode;

/// An error response with its private cause.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) kind: ProblemKind,
    pub(super) detail: Option<String>,
    pub(super) errors: Vec<FieldError>,
    pub(super) retry_after: Option<Duration>,
    pub(super) second_factor: Option<Box<SecondFactor>>,
    pub(super) cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// Creates a problem with its default texts. A temporary problem has `Retry-After: 1`.
    pub fn new(kind: ProblemKind) -> Self {
        let retry_after = kind.is_retryable().then_some(Duration::from_secs(1));
        Self { kind, detail: None, errors: Vec::new(), retry_after, second_factor: None, cause: None }
    }

    /// Sets the detail. The text is public.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the error of a field. The text is public.
    #[must_use]
    pub fn field(
        mut self,
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), code: code.into(), message: message.into() });
        self
    }

    /// Adds the errors of several fields. The texts are public.
    #[must_use]
    pub fn fields(mut self, errors: impl IntoIterator<Item = FieldError>) -> Self {
        self.errors.extend(errors);
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Sets the challenge of `second_factor_required`.
    #[must_use]
    pub fn second_factor(mut self, challenge: SecondFactor) -> Self {
        self.second_factor = Some(Box::new(challenge));
        self
    }

    /// Sets the cause, for the log only.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(Arc::from(cause.into()));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }
}

impl From<ProblemKind> for Problem {
    fn from(kind: ProblemKind) -> Self {
        Self::new(kind)
    }
}

impl IntoResponse for Problem {
    /// Creates an empty response that carries the problem to the edge as an extension.
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
