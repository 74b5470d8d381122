//! Ids in paths. An invalid id gets the same response as an unknown id: 404.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use contract::ProblemKind;
use http::request::Parts;

use super::problem::Problem;

/// Last parameter of the path, parsed.
pub struct Id<T>(pub T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let parameters = RawPathParams::from_request_parts(parts, state).await;
        let id = parameters.ok().and_then(|parameters| parameters.iter().last()?.1.parse().ok());
        id.map(Self).ok_or_else(|| ProblemKind::NotFound.into())
    }
}
