//! `/api-keys`: the tenant's API keys, for its administrators.

use authn::{Admin, RecentAdmin};
use axum::Json;
use axum::extract::State;
use contract::Page;
use contract::session::{ApiKey, CreateApiKey};
use http::StatusCode;
use service::Problem;
use service::http::Id;
use service::http::JsonBody;
use service::http::Paging;
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
    Admin(admin): Admin,
    paging: Paging<KeyId>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    Ok(Json(app.list_api_keys(&admin, &paging).await?))
}

/// `DELETE /api-keys/{key_id}`.
pub(super) async fn revoke(
    State(app): State<App>,
    Admin(admin): Admin,
    Id(key_id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    app.revoke_api_key(&admin, key_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
