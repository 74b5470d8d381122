//! SQL, one file an aggregate. Nothing is decided here.

pub(crate) mod session;
pub(crate) mod standing;
