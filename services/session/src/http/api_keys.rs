//! `/api-keys`: the tenant's API keys, for its administrators. The platform administrator can list and revoke them.

use authn::{RecentAdmin, TenantCaller};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use contract::session::{ApiKey, CreateApiKey};
use contract::{Page, ProblemKind};
use http::StatusCode;
use http::request::Parts;
use service::Problem;
use service::http::{Id, JsonBody, Paging};
use tenancy::KeyId;

use crate::app::App;

/// `POST /api-keys`: the only response that contains the key itself.
pub(super) async fn create(
    State(app): State<App>,
    RecentAdmin(admin): RecentAdmin,
    JsonBody(request): JsonBody<CreateApiKey, 65_536>,
) -> Result<(StatusCode, Json<ApiKey>), Problem> {
    Ok((StatusCode::CREATED, Json(app.create_api_key(&admin, request).await?)))
}

/// `GET /api-keys`: the active keys.
pub(super) async fn list(
    State(app): State<App>,
    KeyManager(TenantCaller { tenant_id, .. }): KeyManager,
    paging: Paging<KeyId>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    Ok(Json(app.list_api_keys(&tenant_id, &paging).await?))
}

/// `DELETE /api-keys/{key_id}`.
pub(super) async fn revoke(
    State(app): State<App>,
    KeyManager(TenantCaller { tenant_id, actor, .. }): KeyManager,
    Id(key_id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    app.revoke_api_key(&tenant_id, actor, key_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A caller that may list and revoke keys: an administrator of the tenant, or the platform administrator.
pub(super) struct KeyManager(TenantCaller);

impl FromRequestParts<App> for KeyManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let request = TenantCaller::from_request_parts(parts, app).await?;
        if request.caller.as_ref().is_some_and(|caller| !caller.is_admin()) {
            return Err(ProblemKind::Forbidden.into());
        }
        Ok(Self(request))
    }
}
