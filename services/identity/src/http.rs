//! The routes of the context, a line each.

mod auth_password;
mod callers;
mod invites;
mod pages;
mod problems;
mod tenants;
mod users;
mod version;

use axum::Router;
use axum::routing::{delete, get, post};
use service::http::not_found;

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Router::new()
        .route("/api/v1/tenants", post(tenants::create).get(tenants::list))
        .route("/api/v1/tenants/{tenant_id}", get(tenants::read).patch(tenants::patch))
        .route("/api/v1/users/invite", post(users::invite))
        .route("/api/v1/users/invites", get(invites::list))
        .route("/api/v1/users/invites/{invite_id}", delete(invites::revoke))
        .route("/api/v1/users/invites/{invite_id}/resend", post(invites::resend))
        .route("/api/v1/users/accept-invite", post(users::accept_invite))
        .route("/api/v1/users", get(users::list))
        .route("/api/v1/users/{user_id}", get(users::read).patch(users::patch))
        .route("/api/v1/auth/password/login", post(auth_password::login))
        .route("/api/v1/auth/password/change", post(auth_password::change))
        .route("/api/v1/auth/password/reset", post(auth_password::reset))
        .route("/api/v1/auth/password/reset/confirm", post(auth_password::confirm_reset))
        .route("/api/v1/pages/{name}", get(pages::read))
        .route("/api/v1/problems/{code}", get(problems::read))
        .route("/api/v1/version", get(version::read))
        .fallback(not_found)
        .with_state(app)
}
