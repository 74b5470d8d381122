//! The internal API: identity issues, everybody introspects.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::internal::{Introspect, Introspected, IssueSession};
use hashing::TokenDigest;
use http::StatusCode;
use service::Problem;
use service::http::JsonBody;

use crate::app::App;
use crate::app::issue_session::IssueError;

/// At most so many credentials at once.
const MAX_DIGESTS: usize = 256;

/// `POST /internal/v1/sessions`: 201, or 409 when the standing behind the login is over.
pub(super) async fn issue(
    State(app): State<App>,
    JsonBody(request): JsonBody<IssueSession, 65_536>,
) -> Response {
    match app.issue_session(&request).await {
        Ok(session) => (StatusCode::CREATED, Json(session)).into_response(),
        Err(IssueError::Overtaken) => StatusCode::CONFLICT.into_response(),
        Err(IssueError::Database(error)) => Problem::from(error).into_response(),
    }
}

/// `POST /internal/v1/introspect`: one answer a digest.
pub(super) async fn introspect(
    State(app): State<App>,
    JsonBody(question): JsonBody<Introspect, 65_536>,
) -> Result<Json<Introspected>, Problem> {
    let digests: Option<Vec<TokenDigest>> =
        question.digests.iter().map(|hex| TokenDigest::from_hex(hex)).collect();
    let digests =
        digests.filter(|digests| digests.len() <= MAX_DIGESTS).ok_or(ProblemKind::ValidationFailed)?;
    Ok(Json(Introspected { subjects: app.introspect_all(&digests).await? }))
}
