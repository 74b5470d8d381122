//! SQL of the session context, one file per aggregate. The store loads and saves; the domain decides.

pub(crate) mod account_status;
pub(crate) mod api_key;
pub(crate) mod credential;
pub(crate) mod device_grant;
pub(crate) mod producer;
pub(crate) mod session;

use database::Error;
use database::migrations::Migrations;
use hashing::TokenDigest;

/// The migrations of the schema `session`.
pub const MIGRATIONS: Migrations = Migrations { schema: "session", migrator: &MIGRATOR };
static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Returns the value of a nullable column that is not null in this kind of row.
fn required<T>(column: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::corrupt(column, "unexpected null"))
}

/// Parses a digest that a statement returns in hex.
fn parse_digest(hex: &str) -> Result<TokenDigest, Error> {
    TokenDigest::from_hex(hex).ok_or_else(|| Error::corrupt("digest", "not a SHA-256 digest"))
}
