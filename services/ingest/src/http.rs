//! The routes of the context.

mod body;
mod events;

use axum::extract::State;
use axum::{Json, Router};
use contract::events::{Health, HealthStatus};
use contract::{ProblemKind, routes};
use service::Problem;
use service::http::Api;

use crate::app::App;

/// Returns the public API.
pub(crate) fn public(app: App) -> Router {
    Api::default()
        .on(&routes::SEND_EVENT, events::send_one)
        .on(&routes::SEND_EVENTS, events::send_batch)
        .on(&routes::GET_EVENT_SCHEMA, events::schema)
        .on(&routes::GET_HEALTH, health)
        .with_state(app)
}

/// `GET /health`: returns whether events can be accepted.
async fn health(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.publisher.is_ready() {
        return Ok(Json(Health { status: HealthStatus::Ok }));
    }
    Err(Problem::new(ProblemKind::DependencyUnavailable).detail("The event stream is not reachable."))
}
