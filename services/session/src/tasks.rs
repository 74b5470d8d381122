//! Periodic work.

pub(crate) mod census;
pub(crate) mod purge;
