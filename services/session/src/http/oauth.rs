//! OAuth requests and errors of the device routes, for any client of RFC 8628: bodies as forms or JSON, errors as in RFC 6749,
//! section 5.2.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use contract::device::{DeviceError, DeviceErrorResponse};
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderName, StatusCode};
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{HeaderError, body};

const MAX_BODY_BYTES: usize = 8192;
const FORM: &str = "application/x-www-form-urlencoded";

/// Required on responses about credentials (RFC 6749, section 5.1).
pub(super) const NO_STORE: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (PRAGMA, "no-cache")];

/// A form, or the same fields as JSON. An empty body is an empty form. Repeated parameters are rejected, unknown ones are
/// ignored (RFC 8628, section 3.1).
pub(super) struct OAuthBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for OAuthBody<T> {
    type Rejection = OAuthError;

    async fn from_request(request: Request, _: &S) -> Result<Self, OAuthError> {
        let is_json = body::is_json(request.headers());
        let is_form = body::media_type(request.headers())
            .is_none_or(|media_type| media_type.eq_ignore_ascii_case(FORM));
        if !is_json && !is_form {
            return Err(invalid_request(format!("Send Content-Type: {FORM} or application/json.")));
        }
        let bytes = body::read(request, MAX_BODY_BYTES).await?;
        // The errors of the parsers are not returned, because they could quote a secret. serde would accept a JSON array as
        // the fields in order, so only an object is parsed.
        let parsed = if is_json {
            serde_json::from_slice(&bytes).ok().filter(|_| bytes.trim_ascii_start().starts_with(b"{"))
        } else {
            serde_urlencoded::from_bytes(&bytes).ok()
        };
        parsed.map(Self).ok_or_else(|| DeviceError::InvalidRequest.into())
    }
}

/// An error response of a device route.
pub(super) enum OAuthError {
    /// An error that RFC 6749 or RFC 8628 defines.
    Device(DeviceErrorResponse),
    /// Any other error, as a problem document.
    Problem(Problem),
}

/// The error `invalid_request` with a description.
pub(super) fn invalid_request(description: impl Into<String>) -> OAuthError {
    OAuthError::Device(DeviceErrorResponse {
        error: DeviceError::InvalidRequest,
        error_description: description.into(),
    })
}

impl From<DeviceError> for OAuthError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error.into())
    }
}

impl From<HeaderError> for OAuthError {
    fn from(error: HeaderError) -> Self {
        invalid_request(error.to_string())
    }
}

impl From<Problem> for OAuthError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        match self {
            Self::Device(error) => (StatusCode::BAD_REQUEST, NO_STORE, Json(error)).into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}
