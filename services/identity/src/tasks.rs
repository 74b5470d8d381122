//! Queued and periodic work.

pub(crate) mod mailer;
