//! Periodic work.

pub(crate) mod session_gauge;
pub(crate) mod expiry;
pub(crate) mod purge;
