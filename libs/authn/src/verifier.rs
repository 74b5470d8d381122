//! Whoever can tell who stands behind a credential.

use std::error::Error;
use std::sync::Arc;

use contract::ProblemKind;
use contract::internal::Subject;
use hashing::TokenDigest;
use service::Problem;

/// Who stands behind a credential; `None` when it is not live.
pub type Introspection = Option<Arc<Subject>>;

/// The authority on bearer credentials: session itself in session, something that asks it elsewhere.
#[async_trait::async_trait]
pub trait CredentialVerifier: Send + Sync {
    /// Who stands behind the credential with this digest.
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable>;
}

/// Where the answers come from, many at once: the database in session, session's internal API elsewhere.
#[async_trait::async_trait]
pub trait Introspector: Send + Sync {
    /// One answer a digest, in order, as of a moment after the call.
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable>;
}

/// The authority cannot answer now. That is a 503, never a 401: a producer must not throw its data away for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("credentials cannot be checked now")]
pub struct Unavailable(#[source] Arc<dyn Error + Send + Sync>);

impl Unavailable {
    /// For this reason, which goes to the log.
    pub fn because(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into().into())
    }
}

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        Self::new(ProblemKind::DependencyUnavailable).caused_by(error)
    }
}
