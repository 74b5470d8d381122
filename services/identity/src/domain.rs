//! What the context knows by itself, without HTTP, SQL or NATS.

pub(crate) mod account;
pub(crate) mod attempt;
pub(crate) mod email;
pub(crate) mod invite;
pub(crate) mod password;
