//! The routes of the context, a line each.

mod answer;
mod body;
mod events;
mod health;

pub(crate) use body::Room;

use axum::Router;
use axum::routing::{get, post};
use service::http::not_found;

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Router::new()
        .route("/api/v1/events", post(events::one))
        .route("/api/v1/events/batch", post(events::batch))
        .route("/api/v1/events/schema", get(events::schema))
        .route("/api/v1/health", get(health::read))
        .fallback(not_found)
        .with_state(app)
}
