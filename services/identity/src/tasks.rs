//! Queued and periodic work.

pub(crate) mod effects;
pub(crate) mod mailer;
pub(crate) mod purge;
