//! The internal API for the operator: managed tenants.

use axum::extract::State;
use axum::{Extension, Json};
use contract::managed::{IssuedInvite, ManagedTenant, OperatorId, Owner, StoredTenant, WrittenTenant};
use http::StatusCode;
use service::Problem;
use service::http::{After, Id, InternalJson, QueryParameters, WriteError};
use tenancy::TenantId;

use crate::app::App;

/// `GET /internal/v1/managed-tenants?after=<id>`: at most 1,000 tenants of the operator in the order of their ids.
pub(super) async fn list(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    QueryParameters(After { after }): QueryParameters<After<String>>,
) -> Result<Json<Vec<StoredTenant>>, Problem> {
    Ok(Json(app.list_managed_tenants(&by, &after).await?))
}

/// `PUT /internal/v1/managed-tenants/{tenant_id}`.
pub(super) async fn put(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(tenant_id): Id<TenantId>,
    InternalJson(desired): InternalJson<ManagedTenant>,
) -> Result<Json<WrittenTenant>, WriteError> {
    Ok(Json(app.put_managed_tenant(&tenant_id, &by, &desired).await?))
}

/// `POST /internal/v1/managed-tenants/{tenant_id}/invite`.
pub(super) async fn renew_invite(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(tenant_id): Id<TenantId>,
    InternalJson(owner): InternalJson<Owner>,
) -> Result<Json<IssuedInvite>, WriteError> {
    Ok(Json(app.renew_managed_invite(&tenant_id, &by, owner).await?))
}

/// `DELETE /internal/v1/managed-tenants/{tenant_id}?uid=<uid>&generation=<number>`: 204, also if the tenant has no owner.
pub(super) async fn release(
    State(app): State<App>,
    Extension(by): Extension<OperatorId>,
    Id(tenant_id): Id<TenantId>,
    QueryParameters(owner): QueryParameters<Owner>,
) -> Result<StatusCode, WriteError> {
    app.release_managed_tenant(&tenant_id, &by, owner).await?;
    Ok(StatusCode::NO_CONTENT)
}
