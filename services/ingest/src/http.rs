//! The routes of the context, a line each.

mod answer;
mod body;
mod events;
mod health;
mod room;

pub(crate) use room::Room;

use axum::Router;
use contract::routes;
use service::http::Api;

use crate::app::App;

/// The public API.
pub(crate) fn public(app: App) -> Router {
    Api::default()
        .on(&routes::SEND_EVENT, events::one)
        .on(&routes::SEND_EVENTS, events::batch)
        .on(&routes::GET_EVENT_SCHEMA, events::schema)
        .on(&routes::GET_HEALTH, health::read)
        .with_state(app)
}
