//! SQL, one file per aggregate.

pub(crate) mod api_key_report;
pub(crate) mod erasure;
pub(crate) mod invite;
pub(crate) mod login_attempt;
pub(crate) mod mail;
pub(crate) mod managed_tenant;
pub(crate) mod reset;
pub(crate) mod tenant;
pub(crate) mod user;

use database::Error;
use hashing::TokenDigest;

/// Decodes the digest of a column.
fn digest(column: &str, bytes: &[u8]) -> Result<TokenDigest, Error> {
    bytes.try_into().map(TokenDigest::from_bytes).map_err(|error| Error::corrupt(column, error))
}
