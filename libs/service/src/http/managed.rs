//! Responses of the internal APIs for the Kubernetes operator, see [`contract::managed`].

use axum::Json;
use axum::response::{IntoResponse, Response};
use contract::managed::Conflict;
use http::StatusCode;
use serde::Deserialize;

use super::problem::Problem;

/// The reason why a write of the operator changed nothing.
#[derive(Debug)]
pub enum WriteError {
    /// It contradicts the stored state.
    Conflict(Conflict),
    /// It failed for another reason.
    Problem(Problem),
}

impl From<Conflict> for WriteError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl<E: Into<Problem>> From<E> for WriteError {
    fn from(error: E) -> Self {
        Self::Problem(error.into())
    }
}

/// A conflict is a 409 response with a [`Conflict`].
impl IntoResponse for WriteError {
    fn into_response(self) -> Response {
        match self {
            Self::Conflict(conflict) => (StatusCode::CONFLICT, Json(conflict)).into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

/// Query parameters of a list: the id after which it starts.
#[derive(Deserialize)]
pub struct After<T> {
    /// The id. The default is less than every id.
    #[serde(default)]
    pub after: T,
}
