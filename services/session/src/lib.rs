//! The session context: the only authority on bearer credentials. It owns sessions and a projection of each user's and
//! tenant's standing, and answers one question: who stands behind this credential, now, and what may they do?

mod app;
mod config;
mod domain;
mod http;
mod store;
mod tasks;
mod wiring;

pub use config::Config;
pub use wiring::{MIGRATIONS, Parts, Session, build};
