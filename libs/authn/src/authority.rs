//! Whoever can tell who stands behind a credential.

use contract::ProblemKind;
use contract::internal::Subject;
use hashing::TokenDigest;
use service::Problem;

/// The authority on bearer credentials: session itself in session, a client of its internal API elsewhere.
#[async_trait::async_trait]
pub trait Authority: Send + Sync {
    /// Who stands behind the credential with this digest; `None` when it is not live.
    async fn introspect(&self, digest: TokenDigest) -> Result<Option<Subject>, Unavailable>;
}

/// The authority cannot answer now. That is a 503, never a 401: a producer must not throw its data away for it.
#[derive(Debug, thiserror::Error)]
#[error("credentials cannot be checked now")]
pub struct Unavailable(#[source] pub Box<dyn std::error::Error + Send + Sync>);

impl From<Unavailable> for Problem {
    fn from(error: Unavailable) -> Self {
        Self::new(ProblemKind::DependencyUnavailable).caused_by(error)
    }
}
