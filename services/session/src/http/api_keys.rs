//! `/api-keys`: the tenant's API keys, for its administrators. The platform administrator can list and revoke them.

use audit::Actor;
use authn::{AnyCaller, RecentAdmin};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use contract::session::{ApiKey, CreateApiKey};
use contract::{Page, ProblemKind};
use http::StatusCode;
use http::request::Parts;
use service::Problem;
use service::http::JsonBody;
use service::http::Paging;
use service::http::{Id, TenantHeader};
use tenancy::{KeyId, TenantId};

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
    KeyManager { tenant_id, .. }: KeyManager,
    paging: Paging<KeyId>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    Ok(Json(app.list_api_keys(&tenant_id, &paging).await?))
}

/// `DELETE /api-keys/{key_id}`.
pub(super) async fn revoke(
    State(app): State<App>,
    KeyManager { tenant_id, actor }: KeyManager,
    Id(key_id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    app.revoke_api_key(&tenant_id, actor, key_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A caller that may list and revoke keys: an administrator of the tenant, or the platform administrator.
pub(super) struct KeyManager {
    tenant_id: TenantId,
    actor: Actor,
}

impl FromRequestParts<App> for KeyManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, app).await? {
            AnyCaller::PlatformAdmin => {
                let TenantHeader(tenant_id) = TenantHeader::from_request_parts(parts, app).await?;
                Ok(Self { tenant_id, actor: Actor::PlatformAdmin })
            }
            AnyCaller::Caller(caller) if caller.is_admin() => {
                Ok(Self { tenant_id: caller.tenant_id().clone(), actor: Actor::from(&caller) })
            }
            AnyCaller::Caller(_) => Err(ProblemKind::Forbidden.into()),
        }
    }
}
