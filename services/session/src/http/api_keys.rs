//! `/api-keys`: the tenant's API keys, for its administrators.

use authn::Admin;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use contract::Page;
use contract::session::{ApiKey, CreateApiKey};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use service::Problem;
use service::http::Id;
use service::http::JsonBody;
use service::http::Paging;
use tenancy::KeyId;

use crate::app::App;

/// `POST /api-keys`: the only response that contains the key itself.
pub(super) async fn create(
    State(app): State<App>,
    Admin(admin): Admin,
    JsonBody(request): JsonBody<CreateApiKey, 65_536>,
) -> Result<Response, Problem> {
    let key = app.create_api_key(&admin, request).await?;
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(key)).into_response())
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
