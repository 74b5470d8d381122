//! The internal API: identity issues sessions and sends account status, every service introspects credentials.

use std::sync::Arc;

use authn::MAX_BATCH;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use contract::ProblemKind;
use contract::internal::{
    ExportSubject, Introspect, Introspected, IssueSession, RecordChange, SubjectExport, SubjectRecord,
    TenantRecord,
};
use contract::managed::{ManagedProducer, OperatorId, ProducerDeletion, StoredProducer};
use hashing::TokenDigest;
use http::StatusCode;
use service::Problem;
use service::http::{After, Id, InternalJson, QueryParameters, RequestId, WriteError};
use tenancy::{TenantId, UserId};
use uuid::Uuid;

use crate::app::App;

/// `POST /internal/v1/sessions`: 201, or 409 if the account status of the login is outdated or forbids a session.
pub(super) async fn issue(
    State(app): State<App>,
    InternalJson(request): InternalJson<IssueSession, 65_536>,
) -> Result<Response, Problem> {
    Ok(match app.issue_session(request).await? {
        Some(session) => (StatusCode::CREATED, Json(session)).into_response(),
        None => StatusCode::CONFLICT.into_response(),
    })
}

/// `POST /internal/v1/introspect`: one result per digest.
pub(super) async fn introspect(
    State(app): State<App>,
    InternalJson(request): InternalJson<Introspect, 65_536>,
) -> Result<Json<Introspected>, Problem> {
    let digests: Option<Vec<TokenDigest>> =
        request.digests.iter().map(|hex| TokenDigest::from_hex(hex)).collect();
    let digests =
        digests.filter(|digests| digests.len() <= MAX_BATCH).ok_or(ProblemKind::ValidationFailed)?;
    let subjects = app.introspection.introspect_all(digests).await?;
    Ok(Json(Introspected {
        subjects: subjects.into_iter().map(|subject| subject.map(Arc::unwrap_or_clone)).collect(),
    }))
}

/// `POST /internal/v1/exports`: empty for a user without data.
pub(super) async fn export(
    State(app): State<App>,
    InternalJson(request): InternalJson<ExportSubject>,
) -> Result<Json<SubjectExport>, Problem> {
    Ok(Json(app.export_subject(request).await?))
}

/// `POST /internal/v1/changes`: 204.
pub(super) async fn record_change(
    State(app): State<App>,
    request_id: RequestId,
    InternalJson(change): InternalJson<RecordChange>,
) -> Result<StatusCode, Problem> {
    app.record_change(change, &request_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /internal/v1/subjects/{user_id}`: 204, also if the stored version is newer.
pub(super) async fn put_subject(
    State(app): State<App>,
    Id(user_id): Id<UserId>,
    InternalJson(record): InternalJson<SubjectRecord>,
) -> Result<StatusCode, Problem> {
    if record.user_id != user_id {
        return Err(ProblemKind::ValidationFailed.into());
    }
    app.apply_subject_status(&record).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /internal/v1/tenants/{tenant_id}`: 204, also if the stored version is newer.
pub(super) async fn put_tenant(
    State(app): State<App>,
    Id(tenant_id): Id<TenantId>,
    InternalJson(record): InternalJson<TenantRecord, 65_536>,
) -> Result<StatusCode, Problem> {
    if record.tenant_id != tenant_id {
        return Err(ProblemKind::ValidationFailed.into());
    }
    app.apply_tenant_status(&record).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /internal/v1/producers?after=<uid>`: at most 1,000 producers of the operator in the order of their uids.
pub(super) async fn list_producers(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    QueryParameters(After { after }): QueryParameters<After<Uuid>>,
) -> Result<Json<Vec<StoredProducer>>, Problem> {
    Ok(Json(app.list_producers(&by, after).await?))
}

/// `PUT /internal/v1/producers/{uid}`: 204, or 409 with a `Conflict`.
pub(super) async fn put_producer(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    InternalJson(write): InternalJson<ManagedProducer, 65_536>,
) -> Result<StatusCode, WriteError> {
    app.put_producer(uid, &by, &write).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /internal/v1/producers/{uid}?tenant_id=<id>&is_final=<bool>`: 204, also if there is no such producer, or 409 with a
/// `Conflict`.
pub(super) async fn delete_producer(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(uid): Id<Uuid>,
    QueryParameters(deletion): QueryParameters<ProducerDeletion>,
) -> Result<StatusCode, WriteError> {
    app.delete_producer(uid, &by, deletion).await?;
    Ok(StatusCode::NO_CONTENT)
}
