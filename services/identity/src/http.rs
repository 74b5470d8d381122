//! The routes of identity.

mod auth_password;
mod callers;
mod factors;
mod internal;
mod invites;
mod mails;
mod managed_tenants;
mod pages;
mod tenants;
mod users;

use std::sync::Arc;

use authn::{CredentialVerifier, OperatorAccess, PlatformSecret, internal_only, operator_only};
use axum::extract::FromRef;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use contract::internal::API_KEY_NOTICES;
use contract::session::IssuedSession;
use contract::{API_PREFIX, managed, routes};
use service::Clock;
use service::http::{Api, not_found};

use self::auth_password::PageLogin;
pub(crate) use self::pages::{Installation, Pages};
use crate::app::App;

/// Returns the router of the public API and of the pages.
pub(crate) fn public(app: App, pages: Arc<Pages>) -> Router {
    Api::default()
        .on(&routes::CREATE_TENANT, tenants::create)
        .on(&routes::LIST_TENANTS, tenants::list)
        .on(&routes::GET_TENANT, tenants::read)
        .on(&routes::UPDATE_TENANT, tenants::patch)
        .on(&routes::DELETE_TENANT, tenants::delete)
        .on(&routes::LIST_MAILS, mails::list)
        .on(&routes::INVITE_USER, invites::invite)
        .on(&routes::LIST_INVITES, invites::list)
        .on(&routes::REVOKE_INVITE, invites::revoke)
        .on(&routes::RESEND_INVITE, invites::resend)
        .on(&routes::INSPECT_INVITE, invites::inspect)
        .on(&routes::ACCEPT_INVITE, invites::accept)
        .on(&routes::LIST_USERS, users::list)
        .on(&routes::GET_USER, users::read)
        .on(&routes::EXPORT_USER, users::export)
        .on(&routes::UPDATE_USER, users::patch)
        .on(&routes::DELETE_USER, users::delete)
        .on(&routes::LOG_IN, auth_password::login::<Json<IssuedSession>>)
        .on(&routes::LOG_IN_ON_PAGE, auth_password::login::<PageLogin>)
        .on(&routes::USE_FACTOR, factors::use_factor::<Json<IssuedSession>>)
        .on(&routes::USE_FACTOR_ON_PAGE, factors::use_factor::<PageLogin>)
        .on(&routes::START_PASSKEY_LOGIN, factors::start_passkey_login)
        .on(&routes::LOG_IN_WITH_PASSKEY, factors::log_in_with_passkey::<Json<IssuedSession>>)
        .on(&routes::LOG_IN_WITH_PASSKEY_ON_PAGE, factors::log_in_with_passkey::<PageLogin>)
        .on(&routes::SET_UP_TOTP_AT_LOGIN, factors::set_up_totp_at_login)
        .on(&routes::SET_UP_PASSKEY_AT_LOGIN, factors::set_up_passkey_at_login)
        .on(&routes::LIST_FACTORS, factors::list)
        .on(&routes::SET_UP_TOTP, factors::set_up_totp)
        .on(&routes::CONFIRM_TOTP, factors::confirm_totp)
        .on(&routes::START_PASSKEY, factors::start_passkey)
        .on(&routes::ADD_PASSKEY, factors::add_passkey)
        .on(&routes::RENAME_PASSKEY, factors::rename_passkey)
        .on(&routes::REPLACE_RECOVERY_CODES, factors::replace_recovery_codes)
        .on(&routes::REMOVE_FACTOR, factors::remove)
        .on(&routes::RESET_FACTORS, factors::reset)
        .on(&routes::CHANGE_PASSWORD, auth_password::change)
        .on(&routes::REQUEST_PASSWORD_RESET, auth_password::reset)
        .on(&routes::INSPECT_PASSWORD_RESET, auth_password::inspect_reset)
        .on(&routes::CONFIRM_PASSWORD_RESET, auth_password::confirm_reset)
        .on(&routes::GET_OPENAPI, pages::openapi)
        .on(&routes::READ_DOCS, pages::docs)
        .on(&routes::OPEN_PAGE, pages::page)
        .on(&routes::LOAD_PAGE_FILE, pages::file)
        .on(&routes::READ_PROBLEM, pages::problem)
        .on(&routes::GET_VERSION, pages::version)
        .with_state(app)
        // Outside the API: for a person who opens the address of the installation.
        .route("/", get(pages::home))
        // Where password managers send people.
        .route("/.well-known/change-password", pages::redirect("/api/v1/pages/change-password"))
        // The short address that people type from a device. Browsers keep the fragment.
        .route("/device", pages::redirect("/api/v1/pages/device"))
        .route("/device/", pages::redirect("/api/v1/pages/device"))
        .route("/docs", pages::redirect("/api/v1/docs"))
        .route("/docs/", pages::redirect("/api/v1/docs"))
        .route(API_PREFIX, pages::redirect("/api/v1/docs"))
        .route(&format!("{API_PREFIX}/docs/"), pages::redirect("/api/v1/docs"))
        .route(&format!("{API_PREFIX}/pages/{{name}}/"), get(pages::page_without_slash))
        .layer(Extension(pages))
}

/// The internal API. Every request needs the service token, or a token of the operator.
pub(crate) fn internal(app: App, operator: Option<OperatorAccess>) -> Router {
    let router = match operator {
        Some(access) => Router::new()
            .route(managed::TENANTS, get(managed_tenants::list))
            .route(
                &format!("{}/{{tenant_id}}", managed::TENANTS),
                put(managed_tenants::put).delete(managed_tenants::release),
            )
            .route(&format!("{}/{{tenant_id}}/invite", managed::TENANTS), post(managed_tenants::renew_invite))
            .layer(from_fn_with_state(access, operator_only))
            .with_state(app.clone()),
        None => Router::new(),
    };
    router.merge(service_routes(app))
}

fn service_routes(app: App) -> Router {
    Router::new()
        .route(&format!("{API_KEY_NOTICES}/{{key_id}}"), put(internal::put_api_key_notice))
        .fallback(not_found)
        .layer(from_fn_with_state(app.config.service_secret.clone(), internal_only))
        .with_state(app)
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.verifier)
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
