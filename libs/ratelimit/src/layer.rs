//! The default rate limit as a layer of a router, per client address.

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use contract::routes::{self, RateLimit};
use service::Problem;
use service::http::ClientAddress;

use crate::{Limit, Limiter, RateLimitError, source};

#[derive(Clone)]
struct Layer {
    limiter: Limiter,
    limit: Limit,
}

impl Limiter {
    /// Counts the requests of a router per client address, except for routes with another class than
    /// [`RateLimit::Default`] in the route table: their handlers count them. Unknown paths and methods count too. If the counter is
    /// unavailable, requests are accepted, because these routes verify no passwords or single-use tokens.
    pub fn wrap(&self, limit: Limit, router: Router) -> Router {
        if limit.rate.is_none() {
            return router;
        }
        router.layer(from_fn_with_state(Layer { limiter: self.clone(), limit }, count))
    }
}

/// Returns the class of a request by its route.
pub fn class_of(request: &Request) -> RateLimit {
    let path = request.extensions().get().map_or("", MatchedPath::as_str);
    routes::find(request.method().as_str(), path).map_or(RateLimit::Default, |route| route.rate_limit)
}

async fn count(
    State(Layer { limiter, limit }): State<Layer>,
    ClientAddress(address): ClientAddress,
    request: Request,
    next: Next,
) -> Response {
    if class_of(&request) != RateLimit::Default {
        return next.run(request).await;
    }
    match limiter.count(&limit, source(address)).await {
        Ok(()) => next.run(request).await,
        Err(error @ RateLimitError::Limited { .. }) => Problem::from(error).into_response(),
        Err(RateLimitError::Unavailable(error)) => {
            limiter.log_unavailable(&error);
            next.run(request).await
        }
    }
}
