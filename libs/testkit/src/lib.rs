//! For tests only: real databases and brokers of a test's own, the running system, and clients by role.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot be set up fails there and then"
)]

pub mod client;
mod guarded;
pub mod nats;
pub mod postgres;
pub mod smtp;
pub mod world;

pub use client::{Answer, Client};
pub use postgres::TestDatabase;
pub use smtp::MailServer;
pub use world::World;

/// Runs futures at once and collects what they return, in their order.
pub async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    futures::future::join_all(futures).await
}
