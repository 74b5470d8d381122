//! Who stands behind a bearer credential, for every service that has to know.
//!
//! session is the only authority. The others ask it by the credential's digest, at every call for now; what they learn is
//! a [`Caller`], and an extractor in a handler's signature shows what the handler demands.

mod authority;
mod bearer;
mod caller;
mod secret;
mod session_client;

pub use authority::{Authority, Unavailable};
pub use bearer::{Bearer, bearer};
pub use caller::{Admin, Caller};
pub use secret::{
    InvalidSecret, OPERATOR_TOKEN, OPERATOR_TOKEN_PREVIOUS, Operator, OperatorSecret, SERVICE_TOKEN,
    SERVICE_TOKEN_PREVIOUS, ServiceSecret, SharedSecret, internal_only,
};
pub use session_client::{IssueError, SESSION_URL, SessionClient};
