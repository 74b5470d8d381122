//! The routes of the session context, one line each.

mod api_keys;
mod device_grants;
mod internal;
mod sessions;

use std::sync::Arc;

use authn::{CredentialVerifier, OperatorAccess, PlatformSecret, internal_only, operator_only};
use axum::Router;
use axum::extract::FromRef;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use contract::internal::{EXPORT_SUBJECT, INTROSPECT, ISSUE_SESSION, RECORD_CHANGE, SUBJECTS, TENANTS};
use contract::managed::PRODUCERS;
use contract::routes;
use service::Clock;
use service::http::{Api, not_found};

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Api::default()
        .on(&routes::WHOAMI, sessions::whoami)
        .on(&routes::LIST_SESSIONS, sessions::list)
        .on(&routes::REVOKE_SESSIONS, sessions::revoke_all)
        .on(&routes::LOG_OUT, sessions::log_out)
        .on(&routes::REVOKE_SESSION, sessions::revoke)
        .on(&routes::CREATE_API_KEY, api_keys::create)
        .on(&routes::LIST_API_KEYS, api_keys::list)
        .on(&routes::REVOKE_API_KEY, api_keys::revoke)
        .on(&routes::START_DEVICE, device_grants::start)
        .on(&routes::REDEEM_DEVICE, device_grants::redeem)
        .on(&routes::INSPECT_DEVICE, device_grants::inspect)
        .on(&routes::DECIDE_DEVICE, device_grants::decide)
        .with_state(app)
}

/// The internal API. Every request needs the service token, or a token of the operator.
pub(crate) fn internal(app: App, operator: Option<OperatorAccess>) -> Router {
    let router = match operator {
        Some(access) => Router::new()
            .route(PRODUCERS, get(internal::list_producers))
            .route(
                &format!("{PRODUCERS}/{{uid}}"),
                put(internal::put_producer).delete(internal::delete_producer),
            )
            .layer(from_fn_with_state(access, operator_only))
            .with_state(app.clone()),
        None => Router::new(),
    };
    router.merge(service_routes(app))
}

fn service_routes(app: App) -> Router {
    Router::new()
        .route(ISSUE_SESSION, post(internal::issue))
        .route(INTROSPECT, post(internal::introspect))
        .route(EXPORT_SUBJECT, post(internal::export))
        .route(RECORD_CHANGE, post(internal::record_change))
        .route(&format!("{SUBJECTS}/{{user_id}}"), put(internal::put_subject))
        .route(&format!("{TENANTS}/{{tenant_id}}"), put(internal::put_tenant))
        .fallback(not_found)
        .layer(from_fn_with_state(app.config.service_secret.clone(), internal_only))
        .with_state(app)
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::new(app.introspection.clone())
    }
}

impl FromRef<App> for Arc<dyn Clock> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.clock)
    }
}

impl FromRef<App> for PlatformSecret {
    fn from_ref(app: &App) -> Self {
        app.config.platform_secret.clone()
    }
}
