//! For tests only: real databases and brokers of a test's own, the running system, and clients by role.

pub mod client;
pub mod nats;
pub mod postgres;
pub mod world;

pub use client::{Answer, Client};
pub use postgres::TestDatabase;
pub use world::World;
