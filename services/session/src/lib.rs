//! The session context: it verifies all bearer credentials. It owns sessions, API keys and device grants, and a projection of
//! account status, and determines the owner and the current permissions of a credential.

mod app;
mod command;
mod config;
/// States and rules, independent of HTTP, SQL and NATS.
mod domain {
    pub(crate) mod account_status;
    pub(crate) mod api_key;
    pub(crate) mod device_grant;
    pub(crate) mod producer;
    pub(crate) mod session;
    pub(crate) mod user_code;
}
mod http;
mod message;
mod store;
mod tasks;
mod wiring;

pub use config::Config;
pub use store::MIGRATIONS;
pub use wiring::{Session, build};

// Named so that cargo compiles this crate again when the variable changes: `make gen` checks the queries against a new database.
const _: Option<&str> = option_env!("DATABASE_URL");
