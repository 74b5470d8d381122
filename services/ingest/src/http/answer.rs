//! The status of a batch: 202 when all are accepted, 422 when none can ever be, 429 or 503 when all failed for one passing
//! cause, 207 for everything in between. Whatever the status, the body is the results.

use axum::Json;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::events::{BatchResponse, EventResult, EventStatus};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

/// When to come back with what can be retried, in seconds.
const RETRY_SECONDS: u64 = 1;

/// The answer as a response.
pub(super) fn batch(answer: BatchResponse) -> Response {
    let status = status(&answer.results);
    let retry = answer.results.iter().any(|result| result.retryable == Some(true));
    let mut response = (status, Json(answer)).into_response();
    if retry {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    }
    response
}

fn status(results: &[EventResult]) -> StatusCode {
    let accepted = results.iter().filter(|result| result.status == EventStatus::Accepted).count();
    if accepted == results.len() {
        return StatusCode::ACCEPTED;
    }
    if accepted > 0 {
        return StatusCode::MULTI_STATUS;
    }
    if results.iter().all(|result| result.retryable == Some(false)) {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    let causes: Vec<_> = results.iter().map(|result| result.code.as_deref()).collect();
    let one = causes.first().copied().flatten().filter(|_| causes.windows(2).all(|pair| pair[0] == pair[1]));
    let kind = one.and_then(ProblemKind::from_code);
    kind.and_then(|kind| StatusCode::from_u16(kind.status()).ok()).unwrap_or(StatusCode::MULTI_STATUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(kind: Option<ProblemKind>) -> EventResult {
        EventResult {
            index: 0,
            event_id: None,
            status: if kind.is_some() { EventStatus::Rejected } else { EventStatus::Accepted },
            duplicate: None,
            server_event_id: None,
            code: kind.map(|kind| kind.code().to_owned()),
            message: None,
            pointer: None,
            retryable: kind.map(ProblemKind::is_retryable),
        }
    }

    #[test]
    fn the_status_says_what_to_do_with_the_whole_batch() {
        use ProblemKind::{AckTimeout, EventTooLarge, Overloaded, QuotaExceeded, ValidationFailed};
        for (kinds, expected) in [
            (vec![None, None], 202),
            (vec![None, Some(ValidationFailed)], 207),
            (vec![None, Some(Overloaded)], 207),
            (vec![Some(ValidationFailed), Some(EventTooLarge)], 422),
            (vec![Some(Overloaded), Some(Overloaded)], 503),
            (vec![Some(QuotaExceeded)], 429),
            (vec![Some(Overloaded), Some(AckTimeout)], 207),
            (vec![Some(ValidationFailed), Some(Overloaded)], 207),
        ] {
            let results: Vec<_> = kinds.iter().copied().map(result).collect();
            assert_eq!(status(&results).as_u16(), expected, "{kinds:?}");
        }
    }
}
