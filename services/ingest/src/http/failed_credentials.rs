//! Limits requests without a valid credential per client address, because each can cause a lookup at the session service.
//!
//! Valid credentials are not limited: a failure counts after it has happened, and a credential that was valid before is
//! accepted also from an address above the limit. So an attacker behind the same address does not stop other producers.

use std::sync::Arc;

use authn::{Bearer, bearer};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::routes::RateLimit;
use hashing::{TokenDigest, TokenKind};
use moka::sync::Cache;
use ratelimit::{LocalLimiter, class_of, source};
use service::Problem;
use service::http::ClientAddress;

/// Number of credentials that are remembered as valid: more than the producers of an installation.
const MAX_VALID: u64 = 65_536;

/// The limit of failed credentials.
pub(crate) struct FailedCredentials {
    limiter: LocalLimiter,
    /// Credentials that were valid at their last use.
    valid: Cache<TokenDigest, ()>,
}

impl FailedCredentials {
    pub(crate) fn new(limiter: LocalLimiter) -> Self {
        Self { limiter, valid: Cache::new(MAX_VALID) }
    }

    /// Limits the routes with the class [`RateLimit::Credential`].
    pub(super) fn wrap(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), limit))
    }
}

async fn limit(
    State(failed): State<Arc<FailedCredentials>>,
    ClientAddress(address): ClientAddress,
    request: Request,
    next: Next,
) -> Response {
    let FailedCredentials { limiter, valid } = &*failed;
    if class_of(&request) != RateLimit::Credential {
        return next.run(request).await;
    }
    let digest = match bearer(request.headers(), &[TokenKind::Session, TokenKind::ApiKey]) {
        Bearer::Token(token) => Some(token.digest()),
        Bearer::ServiceAccountToken(token) => Some(TokenDigest::from_text(&token)),
        Bearer::Missing | Bearer::Malformed => None,
    };
    let source = source(address);
    let was_valid = digest.is_some_and(|digest| valid.contains_key(&digest));
    if !was_valid && let Err(error) = limiter.check(&source) {
        return Problem::from(error).into_response();
    }
    let response = next.run(request).await;
    match (response.extensions().get().map(Problem::kind), digest) {
        (Some(ProblemKind::Unauthenticated | ProblemKind::CredentialInvalid), digest) => {
            limiter.count(&source);
            if let Some(digest) = digest {
                valid.invalidate(&digest);
            }
        }
        // The credential was possibly not verified.
        (Some(ProblemKind::DependencyUnavailable), _) | (_, None) => {}
        (_, Some(_)) if was_valid => {}
        (_, Some(digest)) => valid.insert(digest, ()),
    }
    response
}
