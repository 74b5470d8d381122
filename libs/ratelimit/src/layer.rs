//! A limit around a router: each of its routes counts, also one that is added later, but for those that count themselves.

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use service::Problem;
use service::http::ClientAddress;

use crate::{Limit, Limiter, RateLimitError, source};

#[derive(Clone)]
struct Layer {
    limiter: Limiter,
    limit: Limit,
    except: &'static [&'static str],
}

impl Limiter {
    /// Puts a limit per address around a router, which is complete by now; the routes in `except` call [`Self::count`]
    /// themselves. What cannot be counted passes, since such routes prove no credentials.
    pub fn around(&self, limit: Limit, except: &'static [&'static str], router: Router) -> Router {
        if limit.rate.is_none() {
            return router;
        }
        let layer = Layer { limiter: self.clone(), limit, except };
        router.layer(from_fn_with_state(layer, pass))
    }
}

async fn pass(
    State(Layer { limiter, limit, except }): State<Layer>,
    ClientAddress(address): ClientAddress,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get().map_or("", MatchedPath::as_str);
    if except.contains(&route) {
        return next.run(request).await;
    }
    match limiter.count(&limit, &source(address)).await {
        Ok(()) => next.run(request).await,
        Err(refusal @ RateLimitError::Limited { .. }) => Problem::from(refusal).into_response(),
        Err(RateLimitError::Unavailable(error)) => {
            limiter.tell_uncounted(&error);
            next.run(request).await
        }
    }
}
