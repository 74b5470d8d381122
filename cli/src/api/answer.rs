//! An answer of the API, read whole: the data, or the problem as an error.

use std::time::Duration;

use contract::Problem;
use reqwest::StatusCode;
use serde::de::DeserializeOwned;

use crate::error::{CliError, Exit, Fault, Result};

/// What the service, or something before it, answered.
pub(crate) struct Answer {
    status: StatusCode,
    request_id: String,
    wait: Option<Duration>,
    body: Vec<u8>,
}

impl Answer {
    /// An answer of these parts.
    pub(super) fn new(status: StatusCode, request_id: &str, wait: Option<Duration>, body: &[u8]) -> Self {
        Self { status, request_id: request_id.to_owned(), wait, body: body.to_vec() }
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What the service logs the request under.
    pub(super) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// How long the service asks to wait before another try.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// The body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The answer, unless it tells of a failure.
    pub(crate) fn successful(self) -> Result<Self> {
        if self.status.is_success() {
            return Ok(self);
        }
        let error = match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => CliError::from_problem(problem),
            Err(_) => self.foreign(),
        };
        Err(error.of_request(&self.request_id))
    }

    /// The body as this type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // Only the place: the words could repeat a token.
            let place = format!("line {}, column {}", error.line(), error.column());
            Fault::UnexpectedAnswer
                .because(format!("the answer ({}) has an unexpected shape at {place}", self.status))
                .of_request(&self.request_id)
        })
    }

    /// A failure that is no problem document: something before the service answered, or it is another service.
    fn foreign(&self) -> CliError {
        let mut error = Fault::UnexpectedAnswer
            .because(format!("something that is not the API answered {}", self.status));
        if Exit::of_status(self.status.as_u16()) == Exit::Unavailable {
            error.exit = Exit::Unavailable;
            error.retryable = true;
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, body: &str) -> CliError {
        let status = StatusCode::from_u16(status).unwrap();
        Answer::new(status, "r-1", None, body.as_bytes()).successful().err().unwrap()
    }

    #[test]
    fn a_problem_document_becomes_the_error_that_it_describes() {
        let body = r#"{"type":"t","title":"T","status":401,"detail":"D","instance":"/x","code":"login_failed","request_id":"r-2"}"#;
        let error = failure(401, body);
        assert_eq!((error.code.as_str(), error.exit), ("login_failed", Exit::Authentication));
        assert_eq!(error.request_id.as_deref(), Some("r-2"));
    }

    #[test]
    fn what_a_proxy_answers_is_told_apart_and_may_pass() {
        let error = failure(502, "<html>Bad gateway</html>");
        assert_eq!(
            (error.code.as_str(), error.exit, error.retryable),
            ("unexpected_answer", Exit::Unavailable, true)
        );
        let error = failure(404, "<html>Not here</html>");
        assert_eq!((error.exit, error.retryable), (Exit::Failed, false));
        assert_eq!(error.request_id.as_deref(), Some("r-1"));
    }

    #[test]
    fn an_answer_of_another_shape_is_not_repeated() {
        let answer = Answer::new(StatusCode::OK, "r-1", None, br#"{"session_id": ["svc_st_secret"]}"#);
        let error = answer.read::<contract::session::IssuedSession>().unwrap_err();
        assert_eq!(error.code, "unexpected_answer");
        assert!(!error.message.contains("secret"));
    }
}
