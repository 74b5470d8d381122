//! The default rate limit as a layer of a router, per client address and replica.

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use contract::routes::{self, RateLimit};
use service::Problem;
use service::http::ClientAddress;

use crate::{Limit, Limiter, LocalLimiter, source};

impl Limiter {
    /// Counts the requests of a router per client address, except for routes with another class than
    /// [`RateLimit::Default`] in the route table: their handlers count them. Unknown paths and methods count too. Each replica counts in
    /// memory, because a statement would cost more than most of these requests.
    pub fn wrap(&self, limit: Limit, router: Router) -> Router {
        if limit.rate.is_none() {
            return router;
        }
        let limiter = LocalLimiter::new(limit, self.clock(), self.metrics().clone());
        router.layer(from_fn_with_state(limiter, count))
    }
}

/// Returns the class of a request by its route.
pub fn class_of(request: &Request) -> RateLimit {
    let path = request.extensions().get().map_or("", MatchedPath::as_str);
    routes::find(request.method().as_str(), path).map_or(RateLimit::Default, |route| route.rate_limit)
}

async fn count(
    State(limiter): State<LocalLimiter>,
    ClientAddress(address): ClientAddress,
    request: Request,
    next: Next,
) -> Response {
    if class_of(&request) == RateLimit::Default
        && let Err(error) = limiter.check_and_count(&source(address))
    {
        return Problem::from(error).into_response();
    }
    next.run(request).await
}
