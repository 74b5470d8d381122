//! `/auth/password`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use contract::identity::Login;
use http::header::{CACHE_CONTROL, USER_AGENT};
use http::{HeaderMap, StatusCode};
use service::Problem;
use service::http::{JsonBody, PeerAddress};
use tenancy::TenantHeader;

use crate::app::App;
use crate::app::log_in::Client;

/// How much of a `User-Agent` is kept.
const MAX_USER_AGENT: usize = 256;

/// `POST …/login`: e-mail and password are the proof.
pub(super) async fn login(
    TenantHeader(tenant_id): TenantHeader,
    State(app): State<App>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    JsonBody(login): JsonBody<Login>,
) -> Result<Response, Problem> {
    let client = Client {
        ip: peer.map(|Extension(PeerAddress(address))| address.ip().to_canonical()),
        user_agent: headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).map(shortened),
    };
    let session = app.log_in(&tenant_id, &login.email, login.password.expose(), client).await?;
    Ok((StatusCode::OK, [(CACHE_CONTROL, "no-store")], Json(session)).into_response())
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_USER_AGENT).collect()
}
