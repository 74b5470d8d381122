//! SQL of the session context, one file per aggregate. The domain decides. For statements that concern many rows, the schema repeats the
//! rules for valid and active credentials and for uses (`valid_until`, `active_sessions`, `is_use_due`); a property test compares them.

pub(crate) mod account_status;
pub(crate) mod api_key;
pub(crate) mod credential;
pub(crate) mod deletion;
pub(crate) mod device_grant;
pub(crate) mod producer;
pub(crate) mod session;

use database::migrations::Migrations;

/// The migrations of the schema `session`.
pub const MIGRATIONS: Migrations = Migrations { schema: "session", migrator: &MIGRATOR };
static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

#[cfg(test)]
mod tests;
