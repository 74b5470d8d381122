//! Who stands behind a bearer credential, for every service that has to know.
//!
//! session is the only authority. The others ask it by the credential's digest and may remember the answer for a moment;
//! what they learn is a [`Caller`], and an extractor in a handler's signature shows what the handler demands.

mod batcher;
mod bearer;
mod cache;
mod caller;
mod secret;
mod session_client;
mod verifier;

pub use batcher::{IntrospectionBatcher, MAX_BATCH};
pub use bearer::{Bearer, bearer};
pub use cache::Cache;
pub use caller::{Admin, Caller};
pub use secret::{
    InvalidSecret, PLATFORM_TOKEN, PLATFORM_TOKEN_PREVIOUS, PlatformAdmin, PlatformSecret, SERVICE_TOKEN,
    SERVICE_TOKEN_PREVIOUS, ServiceSecret, SharedSecret, internal_only,
};
pub use session_client::{IssueError, SESSION_URL, SessionClient};
pub use verifier::{CredentialVerifier, Introspection, Introspector, Unavailable};
