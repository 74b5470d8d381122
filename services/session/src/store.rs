//! SQL of the session context, one file per aggregate. The store loads and saves; the domain decides.

pub(crate) mod account_status;
pub(crate) mod api_key;
pub(crate) mod credential;
pub(crate) mod device_grant;
pub(crate) mod session;

use database::Error;

/// The error for a null in a column that has a value in this kind of row.
fn unexpected_null(column: &str) -> Error {
    Error::corrupt(column, "unexpected null")
}
