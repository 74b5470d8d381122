//! The session context: it verifies all bearer credentials. It owns sessions, API keys and device grants, and a projection of
//! account status, and determines the owner and the current permissions of a credential.

mod app;
mod config;
mod domain;
mod http;
mod store;
mod tasks;
mod wiring;

pub use config::Config;
pub use wiring::{MIGRATIONS, Parts, Session, build};
