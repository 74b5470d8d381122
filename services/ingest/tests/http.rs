//! The routes of ingest on the whole system with a real database and a real nats-server. One file per resource.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "http/api_keys.rs"]
mod api_keys;
#[path = "http/audit.rs"]
mod audit;
#[path = "http/batch.rs"]
mod batch;
#[path = "http/changes.rs"]
mod changes;
#[path = "http/consumers.rs"]
mod consumers;
#[path = "http/dead_letters.rs"]
mod dead_letters;
#[path = "http/events.rs"]
mod events;
#[path = "http/failed_credentials.rs"]
mod failed_credentials;
#[path = "http/health.rs"]
mod health;
#[path = "http/managed_consumers.rs"]
mod managed_consumers;
#[path = "http/quarantine.rs"]
mod quarantine;
#[path = "http/quotas.rs"]
mod quotas;
#[path = "http/read_events.rs"]
mod read_events;
#[path = "http/service_accounts.rs"]
mod service_accounts;
#[path = "http/stream.rs"]
mod stream;
#[path = "http/streams.rs"]
mod streams;
