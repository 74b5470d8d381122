//! What the context knows by itself, without HTTP, SQL or NATS.

pub(crate) mod api_key;
pub(crate) mod device_grant;
pub(crate) mod session;
pub(crate) mod standing;
pub(crate) mod user_code;
