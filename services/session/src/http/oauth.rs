//! What the routes for devices take and refuse in the manner of OAuth, so that any client of RFC 8628 can use them: forms as
//! well as JSON, and errors as RFC 6749 (section 5.2) has them.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use contract::device::{DeviceError, DeviceErrorResponse};
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderName, StatusCode};
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{HeaderError, body};

/// A body is small.
const MOST: usize = 8192;
const FORM: &str = "application/x-www-form-urlencoded";

/// For answers about credentials, good or bad (RFC 6749, section 5.1).
pub(super) const NOT_STORED: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (PRAGMA, "no-cache")];

/// A form, or the same as JSON; nothing at all is an empty form. What stands in it twice is refused, what nobody knows
/// ignored (RFC 8628, section 3.1).
pub(super) struct OAuthBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for OAuthBody<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let is_json = body::is_json(request.headers());
        let is_form = body::media_type(request.headers())
            .is_none_or(|media_type| media_type.eq_ignore_ascii_case(FORM));
        if !is_json && !is_form {
            return Err(invalid_request(format!("Send Content-Type: {FORM} or application/json.")));
        }
        let bytes = body::read(request, MOST).await?;
        // The parsers' own words could repeat a secret. A list would be taken for the fields in their order.
        let parsed = if is_json {
            serde_json::from_slice(&bytes).ok().filter(|_| bytes.trim_ascii_start().starts_with(b"{"))
        } else {
            serde_urlencoded::from_bytes(&bytes).ok()
        };
        parsed.map(Self).ok_or_else(|| DeviceError::InvalidRequest.into())
    }
}

/// An answer other than the one that was hoped for.
pub(super) enum Refused {
    /// In OAuth's words.
    OAuth(DeviceErrorResponse),
    /// As everywhere else: what no device can do anything about.
    Problem(Problem),
}

/// The request is at fault, in a way that the words say.
pub(super) fn invalid_request(description: impl Into<String>) -> Refused {
    Refused::OAuth(DeviceErrorResponse {
        error: DeviceError::InvalidRequest,
        error_description: description.into(),
    })
}

impl From<DeviceError> for Refused {
    fn from(error: DeviceError) -> Self {
        Self::OAuth(error.into())
    }
}

impl From<HeaderError> for Refused {
    fn from(fault: HeaderError) -> Self {
        invalid_request(fault.to_string())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::OAuth(refusal) => (StatusCode::BAD_REQUEST, NOT_STORED, Json(refusal)).into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}
