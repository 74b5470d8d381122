//! JSON bodies of routes that verify a password or a single-use token. The request is counted after its body arrived and
//! before anything is looked up or hashed. If the counter is unavailable, the request fails with 503.

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use contract::ProblemKind;
use contract::routes::RateLimit;
use ratelimit::{class_of, source};
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{ClientAddress, JsonBody};

use crate::app::App;

/// A JSON body, counted by the limit that the route table assigns to the route.
pub(super) struct LimitedJson<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequest<App> for LimitedJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (limit, hashes_password) = match class_of(&request) {
            RateLimit::Login => (&app.limits.login, true),
            RateLimit::Token => (&app.limits.token, true),
            RateLimit::Reset => (&app.limits.reset, false),
            class @ (RateLimit::Default | RateLimit::Device | RateLimit::Unlimited) => {
                let error = format!("the rate limit {} cannot be applied to a body", class.name());
                return Err(Problem::new(ProblemKind::Internal).caused_by(error));
            }
        };
        if hashes_password {
            // A full hash queue sheds the request before it costs a database query or counts against the account.
            app.hashes.check_capacity().map_err(|_| ProblemKind::Overloaded)?;
        }
        let (mut parts, body) = request.into_parts();
        let Ok(ClientAddress(address)) = ClientAddress::from_request_parts(&mut parts, app).await;
        let JsonBody(body) = JsonBody::<T>::from_request(Request::from_parts(parts, body), app).await?;
        app.limiter.count(limit, &source(address)).await?;
        Ok(Self(body))
    }
}
