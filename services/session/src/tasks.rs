//! Periodic work.

pub(crate) mod purge;
