//! Background tasks.

pub(crate) mod delivery;
pub(crate) mod purge;
