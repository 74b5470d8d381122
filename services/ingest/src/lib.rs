//! The ingest context: is this event safely in the stream? It validates UDM events, publishes them, and answers only when
//! the stream has acknowledged them. It owns no table.

mod app;
mod config;
mod http;
mod wiring;

pub use config::Config;
pub use wiring::{Ingest, Parts, build};
