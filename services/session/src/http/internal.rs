//! The internal API: identity issues, everybody introspects.

use std::sync::Arc;

use authn::MAX_BATCH;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::internal::{Introspect, Introspected, IssueSession, SubjectRecord, TenantRecord};
use hashing::TokenDigest;
use http::StatusCode;
use service::Problem;
use service::http::JsonBody;
use service::http::path::Id;
use tenancy::{TenantId, UserId};

use crate::app::App;
use crate::app::issue_session::IssueError;

/// `POST /internal/v1/sessions`: 201, or 409 when the standing behind the login is over.
pub(super) async fn issue(
    State(app): State<App>,
    JsonBody(request): JsonBody<IssueSession, 65_536>,
) -> Response {
    match app.issue_session(request).await {
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
        digests.filter(|digests| digests.len() <= MAX_BATCH).ok_or(ProblemKind::ValidationFailed)?;
    let subjects = app.introspection.introspect_all(digests).await?;
    Ok(Json(Introspected {
        subjects: subjects.into_iter().map(|known| known.map(Arc::unwrap_or_clone)).collect(),
    }))
}

/// `PUT /internal/v1/subjects/{user_id}`: 204, also when something newer is known.
pub(super) async fn put_subject(
    State(app): State<App>,
    Id(user_id): Id<UserId>,
    JsonBody(record): JsonBody<SubjectRecord>,
) -> Result<StatusCode, Problem> {
    if record.user_id != user_id {
        return Err(ProblemKind::ValidationFailed.into());
    }
    app.take_subject(&record).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /internal/v1/tenants/{tenant_id}`: 204, also when something newer is known.
pub(super) async fn put_tenant(
    State(app): State<App>,
    Id(tenant_id): Id<TenantId>,
    JsonBody(record): JsonBody<TenantRecord, 65_536>,
) -> Result<StatusCode, Problem> {
    if record.tenant_id != tenant_id {
        return Err(ProblemKind::ValidationFailed.into());
    }
    app.take_tenant(&record).await?;
    Ok(StatusCode::NO_CONTENT)
}
