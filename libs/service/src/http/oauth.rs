//! Errors of the routes of OAuth clients (RFC 6749, section 5.2), from all layers: clients of that standard understand no
//! problem document.

use contract::device::DeviceError;
use contract::routes::{REDEEM_DEVICE, START_DEVICE};
use contract::{API_PREFIX, ProblemKind};
use http::StatusCode;
use serde::Serialize;

/// The body of an error: that of the standard, and the problem document for people and support.
#[derive(Serialize)]
pub(super) struct OAuthError {
    #[serde(skip)]
    pub(super) status: StatusCode,
    error: DeviceError,
    error_description: String,
    #[serde(flatten)]
    problem: contract::Problem,
}

impl OAuthError {
    /// Returns the error of a request to this path; `None` if the path has problem documents.
    pub(super) fn from_problem(path: &str, kind: ProblemKind, problem: &contract::Problem) -> Option<Self> {
        let path = path.strip_prefix(API_PREFIX).unwrap_or_default();
        let is_poll = path == REDEEM_DEVICE.path;
        if !is_poll && path != START_DEVICE.path {
            return None;
        }
        let (status, error) = match kind.status() {
            // A client of the standard ends its login after any other error.
            408 | 429 | 503 if is_poll => (400, DeviceError::SlowDown),
            status @ (429 | 503) => (status, DeviceError::TemporarilyUnavailable),
            500 => (500, DeviceError::ServerError),
            405 => (405, DeviceError::InvalidRequest),
            _ => (400, DeviceError::InvalidRequest),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let error_description = description(&problem.detail);
        let problem = contract::Problem { status: status.as_u16(), ..problem.clone() };
        Some(Self { status, error, error_description, problem })
    }
}

/// The characters that RFC 6749, section 5.2, permits.
fn description(detail: &str) -> String {
    let permitted = |c: char| match c {
        '"' => '\'',
        ' '..='~' if c != '\\' => c,
        _ => ' ',
    };
    detail.chars().map(permitted).collect()
}
