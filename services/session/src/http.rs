//! The routes of the context, a line each.

mod api_keys;
mod auth_device;
mod auth_session;
mod auth_sessions;
mod internal;
mod oauth;

use authn::internal_only;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{post, put};
use contract::internal::{INTROSPECT, ISSUE_SESSION, SUBJECTS, TENANTS};
use contract::routes;
use service::http::{Api, not_found};

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Api::default()
        .on(&routes::WHOAMI, auth_session::whoami)
        .on(&routes::LIST_SESSIONS, auth_sessions::list)
        .on(&routes::REVOKE_SESSIONS, auth_sessions::revoke_all)
        .on(&routes::LOG_OUT, auth_sessions::logout)
        .on(&routes::REVOKE_SESSION, auth_sessions::revoke)
        .on(&routes::CREATE_API_KEY, api_keys::create)
        .on(&routes::LIST_API_KEYS, api_keys::list)
        .on(&routes::REVOKE_API_KEY, api_keys::revoke)
        .on(&routes::START_DEVICE, auth_device::start)
        .on(&routes::REDEEM_DEVICE, auth_device::redeem)
        .on(&routes::INSPECT_DEVICE, auth_device::inspect)
        .on(&routes::DECIDE_DEVICE, auth_device::decide)
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
