//! The ingest context: validates UDM events, publishes them, and responds only after the stream has acknowledged them. It
//! owns no table.

mod app;
mod command;
mod config;
mod consumer_metrics;
mod http;
mod wiring;

pub use command::Command;
pub use config::{Config, event_streams};
#[cfg(fuzzing)]
pub use http::fuzzed_body;
pub use wiring::{Ingest, Parts, build};
