//! Problems on their way out. A handler answers with a [`Problem`]; the edge renders it, since only there the request's
//! id and path are known. The public message and the private cause are two things: the cause goes to the log.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use contract::{FieldError, ProblemKind};
use http::StatusCode;

use super::HeaderError;

/// An error as the caller will see it, with its cause for the log.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) kind: ProblemKind,
    pub(super) detail: Option<String>,
    pub(super) errors: Vec<FieldError>,
    pub(super) retry_after: Option<Duration>,
    pub(super) cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem with its standard words. One that passes by itself asks to be retried after a second.
    pub fn new(kind: ProblemKind) -> Self {
        let retry_after = kind.is_retryable().then_some(Duration::from_secs(1));
        Self { kind, detail: None, errors: Vec::new(), retry_after, cause: None }
    }

    /// Says what happened this time. The text is public.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a field's fault. The text is public.
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

    /// Adds the faults of several fields. Their texts are public.
    #[must_use]
    pub fn fields(mut self, errors: impl IntoIterator<Item = FieldError>) -> Self {
        self.errors.extend(errors);
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Remembers the cause, for the log only.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(Arc::from(cause.into()));
        self
    }

    /// What kind of problem it is.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }
}

impl From<ProblemKind> for Problem {
    fn from(kind: ProblemKind) -> Self {
        Self::new(kind)
    }
}

impl From<HeaderError> for Problem {
    fn from(error: HeaderError) -> Self {
        let kind = match error {
            HeaderError::Missing(_) => ProblemKind::HeaderMissing,
            HeaderError::Invalid(..) => ProblemKind::HeaderInvalid,
        };
        Self::new(kind).detail(error.to_string())
    }
}

impl IntoResponse for Problem {
    /// A bare status that carries the problem to the edge.
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
