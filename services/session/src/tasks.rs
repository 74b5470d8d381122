//! Periodic work.

pub(crate) mod census;
pub(crate) mod expiry;
pub(crate) mod purge;
