//! The routes that prove credentials, and what they count against. They count once the body has arrived whole, and before
//! anything is looked up or hashed; when nobody can count, they answer 503.

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use contract::ProblemKind;
use ratelimit::{Limit, source};
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{ClientAddress, JsonBody};

use crate::app::App;

/// Every other route counts against the default limit as soon as its head is there.
pub(crate) const COUNTED: &[&str] = &[
    "/api/v1/auth/password/login",
    "/api/v1/auth/password/change",
    "/api/v1/auth/password/reset",
    "/api/v1/auth/password/reset/confirm",
    "/api/v1/users/accept-invite",
];

/// The JSON body of a route where a password proves who somebody is.
pub(super) struct LoginBody<T>(pub(super) T);
/// The JSON body of a request for a reset.
pub(super) struct ResetBody<T>(pub(super) T);
/// The JSON body of a route where a token from a mail proves who somebody is.
pub(super) struct TokenBody<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequest<App> for LoginBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        hashed(request, app, &app.limits.login).await.map(Self)
    }
}

impl<T: DeserializeOwned + Send> FromRequest<App> for ResetBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        counted(request, app, &app.limits.reset).await.map(Self)
    }
}

impl<T: DeserializeOwned + Send> FromRequest<App> for TokenBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        hashed(request, app, &app.limits.token).await.map(Self)
    }
}

/// Of a route that hashes a password.
async fn hashed<T: DeserializeOwned + Send>(
    request: Request,
    app: &App,
    limit: &Limit,
) -> Result<T, Problem> {
    // Before anything is counted: a storm shall cost the database nothing, and leave no traces at accounts.
    app.hashes.check_room().map_err(|_| ProblemKind::Overloaded)?;
    counted(request, app, limit).await
}

async fn counted<T: DeserializeOwned + Send>(
    request: Request,
    app: &App,
    limit: &Limit,
) -> Result<T, Problem> {
    let (mut parts, body) = request.into_parts();
    let Ok(ClientAddress(address)) = ClientAddress::from_request_parts(&mut parts, app).await;
    let JsonBody(body) = JsonBody::<T>::from_request(Request::from_parts(parts, body), app).await?;
    app.limiter.count(limit, &source(address)).await?;
    Ok(body)
}
