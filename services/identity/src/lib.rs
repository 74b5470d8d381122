//! The identity context: tenants, users, invites, passwords, password resets and their mail.

mod app;
mod branding;
mod breach_set;
pub mod command;
mod config;
/// States and rules, independent of HTTP, SQL and NATS.
mod domain {
    pub(crate) mod account;
    pub(crate) mod email;
    pub(crate) mod factor;
    pub(crate) mod invite;
    pub(crate) mod ownership;
    pub(crate) mod passkey;
    pub(crate) mod password;
    pub(crate) mod password_costs;
    pub(crate) mod reset;
    pub(crate) mod throttle;
}
mod first_tenant;
mod http;
mod mail;
mod message;
mod store;
mod tasks;
mod texts;
mod wiring;

pub use config::Config;
#[cfg(fuzzing)]
pub use domain::email::fuzzed as fuzzed_email;
#[cfg(fuzzing)]
pub use domain::passkey::fuzzed as fuzzed_passkey;
pub use first_tenant::FirstTenant;
#[cfg(fuzzing)]
pub use texts::fuzzed as fuzzed_language;
pub use wiring::{Identity, MIGRATIONS, build};

// Named so that cargo compiles this crate again when the variable changes: `make gen` checks the queries against a new database.
const _: Option<&str> = option_env!("DATABASE_URL");
