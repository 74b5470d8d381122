//! `/tenants`.

use authn::PlatformAdmin;
use axum::Json;
use axum::extract::State;
use contract::identity::{CreateTenant, PatchTenant, Tenant};
use contract::{Page, ProblemKind};
use http::StatusCode;
use service::Problem;
use service::http::Id;
use service::http::JsonBody;
use service::http::Paging;
use tenancy::TenantId;

use super::callers::TenantReader;
use crate::app::App;

/// `POST /tenants`: the platform administrator.
pub(super) async fn create(
    _: PlatformAdmin,
    State(app): State<App>,
    JsonBody(request): JsonBody<CreateTenant>,
) -> Result<(StatusCode, Json<Tenant>), Problem> {
    Ok((StatusCode::CREATED, Json(app.create_tenant(&request).await?)))
}

/// `GET /tenants`: the platform administrator.
pub(super) async fn list(
    _: PlatformAdmin,
    State(app): State<App>,
    paging: Paging<TenantId>,
) -> Result<Json<Page<Tenant>>, Problem> {
    Ok(Json(app.list_tenants(&paging).await?))
}

/// `GET /tenants/{tenant_id}`: the platform administrator, or a user of the tenant.
pub(super) async fn read(
    TenantReader(only): TenantReader,
    State(app): State<App>,
    Id(tenant_id): Id<TenantId>,
) -> Result<Json<Tenant>, Problem> {
    if only.is_some_and(|own| own != tenant_id) {
        return Err(ProblemKind::NotFound.into());
    }
    Ok(Json(app.find_tenant(&tenant_id).await?))
}

/// `PATCH /tenants/{tenant_id}`: the platform administrator.
pub(super) async fn patch(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(tenant_id): Id<TenantId>,
    JsonBody(request): JsonBody<PatchTenant>,
) -> Result<Json<Tenant>, Problem> {
    Ok(Json(app.patch_tenant(&tenant_id, &request).await?))
}

/// `DELETE /tenants/{tenant_id}`: the platform administrator.
pub(super) async fn delete(
    _: PlatformAdmin,
    State(app): State<App>,
    Id(tenant_id): Id<TenantId>,
) -> Result<StatusCode, Problem> {
    app.delete_tenant(&tenant_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
