//! A complete response of the API: its data, or its problem as an error.

use std::time::Duration;

use chrono::DateTime;
use contract::{Problem, ProblemKind};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde::de::DeserializeOwned;
use transport::is_of_another_path;

use crate::framework::credential::CredentialSource;
use crate::framework::error::{CliError, ErrorKind, Exit, Result, may_have_effect};
use crate::framework::output::now;

/// A response of the service or of a proxy in front of it.
pub(crate) struct ApiResponse {
    pub(super) status: StatusCode,
    /// Id of the request in the service's logs.
    pub(super) request_id: String,
    /// The credential of the request, which errors name.
    pub(super) credential: Option<CredentialSource>,
    /// Whether the request can be repeated after a lost response.
    pub(super) idempotent: bool,
    /// Path of the request as the service must see it.
    pub(super) path: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl ApiResponse {
    /// Value of a header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Pause that the service requests before a retry: seconds, or a date (RFC 9110, section 10.2.3).
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let value = self.header(RETRY_AFTER.as_str())?;
        if let Ok(seconds) = value.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = DateTime::parse_from_rfc2822(value).ok()?;
        Some((date.to_utc() - now()).to_std().unwrap_or_default())
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the response, or its problem as an error if the status is not a success.
    pub(crate) fn error_for_status(self) -> Result<Self> {
        self.or_error(false)
    }

    /// As [`error_for_status`](Self::error_for_status), for a request with a body that the user wrote.
    pub(crate) fn error_for_raw_status(self) -> Result<Self> {
        self.or_error(true)
    }

    fn or_error(self, is_raw: bool) -> Result<Self> {
        if self.status.is_success() {
            return Ok(self);
        }
        let error = match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) if is_of_another_path(&problem, self.path.as_deref()) => {
                ErrorKind::UnexpectedResponse.with_message(format!(
                    "the base URL is wrong: the service has no path {}",
                    problem.instance
                ))
            }
            Ok(problem) => {
                let is_uncertain =
                    !self.idempotent && ProblemKind::from_code(&problem.code).is_some_and(may_have_effect);
                let error = CliError::from_problem(problem, is_raw);
                CliError { retryable: error.retryable && !is_uncertain, ..error }
            }
            Err(_) => self.unknown_error(),
        };
        let error = match &self.credential {
            Some(source) => error.with_credential(source),
            None => error,
        };
        Err(error.with_request_id(&self.request_id))
    }

    /// Deserializes the body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        self.require_type(|content_type| content_type.contains("json"))?;
        serde_json::from_slice(&self.body).map_err(|error| {
            // Only the position: the text of serde's error could repeat a token.
            let position = format!("line {}, column {}", error.line(), error.column());
            self.unexpected(&format!("unexpected response body at {position}"))
        })
    }

    /// Requires the response of a route without a result. A page in place of the service has another status, or a body.
    pub(super) fn empty(&self) -> Result<()> {
        if self.status == StatusCode::NO_CONTENT && self.body.is_empty() {
            return Ok(());
        }
        self.require_type(|_| false)?;
        Err(self.unexpected("unexpected response to a request without a result"))
    }

    /// Requires a content type, unless the response has none.
    fn require_type(&self, is_expected: impl Fn(&str) -> bool) -> Result<()> {
        match self.header(CONTENT_TYPE.as_str()) {
            Some(content_type) if !is_expected(content_type) => {
                Err(self.unexpected(&format!("unexpected response of type {content_type}")))
            }
            _ => Ok(()),
        }
    }

    fn unexpected(&self, message: &str) -> CliError {
        ErrorKind::UnexpectedResponse
            .with_message(format!("{message} (HTTP {})", self.status))
            .with_request_id(&self.request_id)
    }

    /// Error without a problem document: from a proxy, or from another service.
    fn unknown_error(&self) -> CliError {
        let is_unavailable = Exit::from_status(self.status.as_u16()) == Exit::Unavailable;
        let kind = match (is_unavailable, self.status) {
            (false, _) => ErrorKind::UnexpectedResponse,
            // A proxy that limits requests does not forward them.
            (true, StatusCode::TOO_MANY_REQUESTS) => ErrorKind::Unreachable,
            (true, _) if self.idempotent => ErrorKind::Unreachable,
            // The service may have processed what a proxy forwarded.
            (true, _) => ErrorKind::ResponseLost,
        };
        if self.status.is_redirection()
            && let Some(target) = self.header("location")
        {
            return kind.with_message(format!("HTTP {}: the address redirects to {target}", self.status)).with_remediation(
                "Set --base-url (SVC_BASE_URL) to the address of the service after the redirect, without the API path. `svc doctor` \
                 checks it.",
            );
        }
        kind.with_message(format!("HTTP {} without an error document of the API", self.status))
    }
}

#[cfg(test)]
mod tests {
    use contract::routes::ResponseBody;
    use reqwest::header::HeaderValue;

    use super::*;

    fn response(status: u16, body: &str, idempotent: bool) -> ApiResponse {
        let status = StatusCode::from_u16(status).unwrap();
        let (request_id, body) = ("r-1".to_owned(), body.as_bytes().to_vec());
        let (credential, path, headers) = Default::default();
        ApiResponse { status, request_id, credential, idempotent, path, headers, body }
    }

    fn error_of(status: u16, body: &str) -> CliError {
        response(status, body, true).error_for_status().err().unwrap()
    }

    #[test]
    fn converts_a_problem_document() {
        let body = r#"{"type":"t","title":"T","status":401,"detail":"D","instance":"/x","code":"login_failed","request_id":"r-2"}"#;
        let error = error_of(401, body);
        assert_eq!((error.code.as_str(), error.exit), ("login_failed", Exit::Authentication));
        assert_eq!(error.request_id.as_deref(), Some("r-2"));
    }

    #[test]
    fn a_path_that_the_service_does_not_know_is_no_missing_object() {
        let body = r#"{"type":"t","title":"","status":404,"detail":"","instance":"/x/api/v1/users/7","code":"not_found","request_id":"r"}"#;
        for (path, code, exit) in [
            ("/api/v1/users/7", "unexpected_response", Exit::Failed),
            ("/x/api/v1/users/7", "not_found", Exit::NotFound),
        ] {
            let response = ApiResponse { path: Some(path.to_owned()), ..response(404, body, true) };
            let error = response.error_for_status().err().unwrap();
            assert_eq!((error.code.as_str(), error.exit), (code, exit), "{path}");
            assert_eq!(error.remediation.contains("--base-url"), code == "unexpected_response", "{path}");
        }
    }

    #[test]
    fn error_of_a_proxy_is_retryable_if_its_status_and_the_request_are() {
        let body = "<html>Bad gateway</html>";
        for (status, idempotent, code, exit, retryable) in [
            (502, true, "unreachable", Exit::Unavailable, true),
            (502, false, "response_lost", Exit::Uncertain, false),
            (504, false, "response_lost", Exit::Uncertain, false),
            (429, false, "unreachable", Exit::Unavailable, true),
        ] {
            let error = response(status, body, idempotent).error_for_status().err().unwrap();
            assert_eq!(
                (error.code.as_str(), error.exit, error.retryable),
                (code, exit, retryable),
                "{status}"
            );
        }
        let error = error_of(404, "<html>Not here</html>");
        assert_eq!((error.exit, error.retryable), (Exit::Failed, false));
        assert_eq!(error.request_id.as_deref(), Some("r-1"));
    }

    #[test]
    fn only_an_empty_response_of_the_documented_status_is_a_success_without_a_result() {
        assert!(response(204, "", true).empty().is_ok());
        for (status, body) in [(200, "<html>Log in</html>"), (200, ""), (202, "{}"), (204, "{}")] {
            let error = response(status, body, true).empty().unwrap_err();
            assert_eq!((error.code.as_str(), error.retryable), ("unexpected_response", false), "{status}");
        }
        let responses = contract::routes::all().filter_map(|route| route.operation().responses.first());
        for response in responses.filter(|response| matches!(response.body, ResponseBody::Empty)) {
            assert_eq!(response.status, 204, "{}", response.description);
        }
    }

    #[test]
    fn data_of_another_type_is_not_of_the_service() {
        let mut page = response(200, "{}", true);
        assert!(page.json::<serde_json::Value>().is_ok());
        page.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        let error = page.json::<serde_json::Value>().unwrap_err();
        assert_eq!(error.code, "unexpected_response");
        assert!(error.message.contains("text/html"), "{}", error.message);
    }

    #[test]
    fn error_for_an_unexpected_body_does_not_contain_it() {
        let response = response(200, r#"{"session_id": ["svc_st_secret"]}"#, true);
        let error = response.json::<contract::session::IssuedSession>().unwrap_err();
        assert_eq!(error.code, "unexpected_response");
        assert!(!error.message.contains("secret"));
    }
}
