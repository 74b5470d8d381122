//! The routes of the context, a line each.

mod auth_session;
mod auth_sessions;
mod internal;

use authn::internal_only;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use contract::internal::{INTROSPECT, ISSUE_SESSION, SUBJECTS, TENANTS};
use service::http::not_found;

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Router::new()
        .route("/api/v1/auth/session", get(auth_session::whoami))
        .route("/api/v1/auth/sessions", get(auth_sessions::list).delete(auth_sessions::revoke_all))
        .route("/api/v1/auth/sessions/logout", post(auth_sessions::logout))
        .route("/api/v1/auth/sessions/{session_id}", delete(auth_sessions::revoke))
        .fallback(not_found)
        .with_state(app)
}

/// The internal API, behind the service token.
pub(crate) fn internal(app: App) -> Router {
    Router::new()
        .route(ISSUE_SESSION, post(internal::issue))
        .route(INTROSPECT, post(internal::introspect))
        .route(&format!("{SUBJECTS}/{{user_id}}"), put(internal::put_subject))
        .route(&format!("{TENANTS}/{{tenant_id}}"), put(internal::put_tenant))
        .fallback(not_found)
        .layer(from_fn_with_state(app.service_secret.clone(), internal_only))
        .with_state(app)
}
