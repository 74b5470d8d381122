//! Periodic work.

pub(crate) mod expiry;
pub(crate) mod purge;
pub(crate) mod session_gauge;
