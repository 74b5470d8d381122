//! The identity context: tenants, users, invites, passwords, password resets and their mail.

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
