//! Sources of introspection results.

use std::error::Error;
use std::sync::Arc;

use contract::ProblemKind;
use contract::internal::Subject;
use hashing::TokenDigest;
use service::Problem;

/// The owner of a credential, or `None` if the credential is not active.
pub type Introspection = Option<Arc<Subject>>;

/// Verifies bearer credentials one at a time.
#[async_trait::async_trait]
pub trait CredentialVerifier: Send + Sync {
    /// Looks up the owner of the credential with this digest.
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable>;
}

/// Looks up many credentials at once: in the database, or through the internal API of the session service.
#[async_trait::async_trait]
pub trait Introspector: Send + Sync {
    /// Returns one result per digest, in the same order. The results are not older than the call.
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable>;
}

/// Credentials cannot be verified. The response is 503, never 401: a producer must not discard its events.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to verify the credential")]
pub struct Unavailable(#[source] Arc<dyn Error + Send + Sync>);

impl Unavailable {
    /// Returns the error with a cause for the log.
    pub fn because(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into().into())
    }
}

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        Self::new(ProblemKind::DependencyUnavailable).caused_by(error)
    }
}
