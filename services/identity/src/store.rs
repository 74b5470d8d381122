//! SQL, one file an aggregate. Nothing is decided here.

pub(crate) mod attempt;
pub(crate) mod invite;
pub(crate) mod reset;
pub(crate) mod tenant;
pub(crate) mod user;
