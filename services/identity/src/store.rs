//! SQL, one file per aggregate.

pub(crate) mod api_key_report;
pub(crate) mod erasure;
pub(crate) mod factor;
pub(crate) mod invite;
pub(crate) mod login_attempt;
pub(crate) mod mail;
pub(crate) mod managed_tenant;
pub(crate) mod passkey;
pub(crate) mod reset;
pub(crate) mod tenant;
pub(crate) mod user;
