//! Interpretation of responses. Any response, of the service or of a proxy, becomes a result or an error.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use contract::events::{AcceptedEvent, BatchResponse, EventResult, Health};
use contract::{Problem, ProblemKind};
use httpdate::parse_http_date;
use reqwest::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::endpoint::{Endpoint, is_of_another_path};
use crate::{TransportError, TransportErrorKind};

/// A complete response.
#[derive(Clone, Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    /// Path of the request as the service must receive it.
    path: Option<String>,
    /// Target of a redirect.
    location: Option<String>,
    /// Whether the request had one.
    pub(super) has_credential: bool,
    body: Vec<u8>,
}

impl HttpResponse {
    /// `endpoint` is the address of the request.
    pub(super) fn new(response: &Response, body: Vec<u8>, endpoint: &Endpoint) -> Self {
        Self {
            status: response.status(),
            retry_after: retry_after(response.headers()),
            request_id: header(response.headers(), "x-request-id").map(str::to_owned),
            path: endpoint.service_path(response.url()).map(str::to_owned),
            location: header(response.headers(), LOCATION.as_str()).map(str::to_owned),
            has_credential: true,
            body,
        }
    }

    pub(super) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Result of `GET /health`. Another web server does not respond as the service does.
    pub(super) fn health(&self) -> Result<(), TransportError> {
        if !self.status.is_success() {
            return Err(self.error());
        }
        serde_json::from_slice::<Health>(&self.body).map(drop).map_err(|_| self.error())
    }

    /// The status, if the service or something that it depends on is not available.
    pub(super) fn outage(&self) -> Option<String> {
        let problem = || serde_json::from_slice::<Problem>(&self.body);
        let is_overloaded = || problem().is_ok_and(|problem| problem.code == ProblemKind::Overloaded.code());
        let is_outage = matches!(self.status.as_u16(), 502..=504) && !is_overloaded();
        is_outage.then(|| format!("HTTP {}", self.status))
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
        add_pointer(&mut message, result.pointer.as_deref().unwrap_or_default());
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
            return self.protocol_error(message);
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) if is_of_another_path(&problem, self.path.as_deref()) => {
                let path = problem.instance;
                self.protocol_error(format!(
                    "the address is wrong: the service has no path {path}; check the path of the address"
                ))
            }
            Ok(problem) => self.problem_error(problem),
            Err(_) if self.status.is_redirection() => self.status_error(format!(
                "HTTP {} redirects to {}; the service never redirects: use its address, with https:// if it has TLS",
                self.status,
                self.location.as_deref().unwrap_or("an unknown address")
            )),
            Err(_) => self.status_error(format!(
                "HTTP {} without a problem document, possibly from a proxy",
                self.status
            )),
        }
    }

    fn problem_error(&self, problem: Problem) -> TransportError {
        let mut message = format!("{}: {}", problem.title, problem.detail);
        for field in &problem.errors {
            message.push_str("; ");
            message.push_str(&field.message);
            add_pointer(&mut message, &field.pointer);
        }
        if self.status == StatusCode::UNAUTHORIZED && !self.has_credential {
            message.push_str("; the request had no credential: set `api_key` or a token file");
        }
        let retry_after = problem.retry_after_ms.map(Duration::from_millis);
        TransportError {
            code: Some(problem.code),
            request_id: Some(problem.request_id),
            retry_after: self.retry_after.max(retry_after),
            ..self.status_error(message)
        }
    }

    fn protocol_error(&self, message: String) -> TransportError {
        let error = self.status_error(message);
        TransportError { kind: TransportErrorKind::Protocol, retryable: false, ..error }
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

/// Adds the position of an error. An empty one is the whole event.
fn add_pointer(message: &mut String, pointer: &str) {
    if !pointer.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(message, " (at {pointer})");
    }
}

/// Delay of `Retry-After` (RFC 9110, section 10.2.3): a number of seconds or a date. The date is compared with the date of the
/// response, because the clocks of client and service can differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = header(headers, RETRY_AFTER.as_str())?;
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = parse_http_date(value).ok()?;
    let sent = header(headers, DATE.as_str()).and_then(|sent| parse_http_date(sent).ok());
    Some(date.duration_since(sent.unwrap_or_else(now)).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "only for a response without a date")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use httpdate::fmt_http_date;
    use proptest::prelude::*;

    use super::*;

    fn delay(retry_after_value: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after_value.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        retry_after(&headers)
    }

    #[test]
    fn retry_after_is_a_number_or_a_date_in_any_form_of_http() {
        let sent = Some("Sun, 06 Nov 1994 08:49:30 GMT");
        for (value, seconds) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7)),
            ("Sun Nov  6 08:49:37 1994", Some(7)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-7", None),
            ("7.5", None),
            ("soon", None),
        ] {
            assert_eq!(delay(value, sent), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn date_of_a_response_without_a_date_is_compared_with_the_local_time() {
        let hour = Duration::from_hours(1);
        for date in [None, Some("unknown")] {
            assert!(delay(&fmt_http_date(now() + hour), date).unwrap().abs_diff(hour) < hour / 2);
            assert_eq!(delay(&fmt_http_date(now() - hour), date), Some(Duration::ZERO));
        }
    }

    proptest! {
        #[test]
        fn delay_is_the_difference_of_the_dates(sent in 0_u64..4_000_000_000, delay_seconds in 0_u64..1_000_000) {
            let date = |seconds| fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            let parsed = delay(&date(sent + delay_seconds), Some(&date(sent)));
            prop_assert_eq!(parsed, Some(Duration::from_secs(delay_seconds)));
        }

        #[test]
        fn retry_after_accepts_any_text_without_panicking(text in "[ -~]{0,40}", date in "[ -~]{0,40}") {
            let _ = delay(&text, Some(&date));
        }
    }
}
