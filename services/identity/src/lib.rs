//! The identity context: who is this, and do they know the password? It owns tenants, users, invites, passwords and the
//! mail that goes with them.

mod app;
mod breach_set;
pub mod command;
mod config;
mod domain;
mod http;
mod mail;
mod message;
mod store;
mod tasks;
mod wiring;

pub use config::Config;
pub use wiring::{Identity, MIGRATIONS, Parts, build};
