//! Router of the public API of one service. It serves only routes of [`contract::routes`].

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use contract::routes::{Method, Route};

use super::not_found;

/// A router that is built from the route table.
pub struct Api<S>(Router<S>);

impl<S: Clone + Send + Sync + 'static> Default for Api<S> {
    fn default() -> Self {
        Self(Router::new())
    }
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Serves a route with this handler.
    #[must_use]
    pub fn on<T: 'static>(self, route: &Route, handler: impl Handler<T, S>) -> Self {
        let method = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Patch => MethodFilter::PATCH,
            Method::Delete => MethodFilter::DELETE,
        };
        Self(self.0.route(&route.full_path(), on(method, handler)))
    }

    /// Returns the router. Every other path gets 404.
    pub fn with_state(self, state: S) -> Router {
        self.0.fallback(not_found).with_state(state)
    }
}
