//! Domain types, independent of HTTP, SQL and NATS.

pub(crate) mod account;
pub(crate) mod email;
pub(crate) mod invite;
pub(crate) mod password;
pub(crate) mod reset;
pub(crate) mod throttle;
