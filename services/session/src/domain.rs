//! Domain types of the session context: states and transitions, without HTTP, SQL or NATS.

pub(crate) mod account_status;
pub(crate) mod api_key;
pub(crate) mod device_grant;
pub(crate) mod session;
pub(crate) mod user_code;
