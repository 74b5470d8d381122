//! The routes of ingest, over the whole system with a real database and broker. A file a resource.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

#[path = "http/api_keys.rs"]
mod api_keys;
#[path = "http/batch.rs"]
mod batch;
#[path = "http/events.rs"]
mod events;
#[path = "http/health.rs"]
mod health;
#[path = "http/stream.rs"]
mod stream;
