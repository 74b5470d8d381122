//! What the context knows by itself, without HTTP, SQL or NATS.

pub(crate) mod session;
