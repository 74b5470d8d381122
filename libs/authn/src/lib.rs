//! Verification of bearer credentials.
//!
//! The session service determines the owner of a credential. Other services query it by the digest of the token; ingest
//! caches the result in [`CredentialCache`]. The extractors [`Caller`], [`AnyUser`] and [`RecentAdmin`] show in the signature
//! of a handler which credential it requires.

mod batcher;
mod cache;
mod caller;
mod internal_client;
mod operator;
mod page_session;
mod secret;
mod session_client;
mod token_review;

pub use batcher::{IntrospectionBatcher, MAX_BATCH};
pub use cache::{CredentialCache, CredentialWatch};
pub use caller::{
    AnyUser, Bearer, Caller, CredentialVerifier, Introspection, Introspector, RecentAdmin, Unavailable,
    bearer,
};
pub use internal_client::InternalClient;
pub use operator::{OperatorAccess, OperatorSettings, operator_only};
pub use page_session::{PAGE_SESSION_LIFETIME, page_session_cookie};
pub use secret::{
    AnyCaller, InvalidSecret, PLATFORM_TOKEN, PlatformAdmin, PlatformSecret, SERVICE_TOKEN, ServiceSecret,
    TenantCaller, internal_only,
};
pub use session_client::{IssueError, SessionClient};
pub use token_review::{KubernetesApi, TokenReviewer, WorkloadVerifier, service_account_digest};
