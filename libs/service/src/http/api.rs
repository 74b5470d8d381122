//! The public API of one service: handlers at the routes of the table, and nowhere else.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use contract::API_PREFIX;
use contract::routes::{Method, Route};

use super::not_found;

/// A router whose every route stands in [`contract::routes`].
pub struct Api<S>(Router<S>);

impl<S: Clone + Send + Sync + 'static> Default for Api<S> {
    fn default() -> Self {
        Self(Router::new())
    }
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Serves a route.
    #[must_use]
    pub fn on<T: 'static>(self, route: &Route, handler: impl Handler<T, S>) -> Self {
        let method = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Patch => MethodFilter::PATCH,
            Method::Delete => MethodFilter::DELETE,
        };
        Self(self.0.route(&format!("{API_PREFIX}{}", route.path), on(method, handler)))
    }

    /// The router, which answers everything else with 404.
    pub fn with_state(self, state: S) -> Router {
        self.0.fallback(not_found).with_state(state)
    }
}
