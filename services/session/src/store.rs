//! SQL, one file an aggregate. Nothing is decided here.

pub(crate) mod api_key;
pub(crate) mod credential;
pub(crate) mod device_grant;
pub(crate) mod session;
pub(crate) mod standing;
pub(crate) mod wrong_user_code;
