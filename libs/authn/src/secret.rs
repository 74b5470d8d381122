//! Shared secrets: the service token of the internal API and the platform token. The previous value of each is accepted
//! too, so that a secret can be rotated without an outage.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bus::InvalidationKeys;
use contract::{ProblemKind, Secret};
use hashing::{RawToken, TokenDigest, TokenKind};
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::Problem;
use service::config::{Reader, Variable, Variables};

use crate::{Bearer, Caller, CredentialVerifier, bearer};

/// Authenticates services to the internal API.
pub const SERVICE_TOKEN: Variable = Variable {
    name: "SVC_SERVICE_TOKEN",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "Shared secret of the internal API and of the invalidation feed. All services have the same value.",
};
/// Previous service token.
pub const SERVICE_TOKEN_PREVIOUS: Variable = Variable {
    name: "SVC_SERVICE_TOKEN_PREVIOUS",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "Previous service token, which is accepted during a rotation. ingest uses it for the invalidation feed only.",
};
/// Authenticates the platform administrator.
pub const PLATFORM_TOKEN: Variable = Variable {
    name: "SVC_PLATFORM_TOKEN",
    form: "a token `svc_pt_…` from `svc-identity platform-token`",
    default: None,
    secret: true,
    meaning: "Credential of the platform administrator, who manages tenants and invites their first administrator. If it is unset, these routes reject all requests.",
};
/// Previous platform token.
pub const PLATFORM_TOKEN_PREVIOUS: Variable = Variable {
    name: "SVC_PLATFORM_TOKEN_PREVIOUS",
    form: "a token `svc_pt_…`",
    default: None,
    secret: true,
    meaning: "Previous platform token, which is accepted during a rotation.",
};

/// The digests of a secret and of its previous value.
#[derive(Clone, Debug, Default)]
pub struct SharedSecret(Vec<TokenDigest>);

/// The secret is too short or malformed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the secret is too short or malformed")]
pub struct InvalidSecret;

/// A shorter secret could be guessed.
const MIN_CHARACTERS: usize = 32;

impl SharedSecret {
    /// Parses a service token.
    ///
    /// # Errors
    /// The token is too short.
    pub fn service(text: &str) -> Result<Self, InvalidSecret> {
        if text.chars().count() < MIN_CHARACTERS {
            return Err(InvalidSecret);
        }
        Ok(Self(vec![TokenDigest::of_text(text)]))
    }

    /// Parses a platform token.
    ///
    /// # Errors
    /// The token is malformed.
    pub fn platform(text: &str) -> Result<Self, InvalidSecret> {
        let token = RawToken::parse(TokenKind::PlatformAdmin, text).map_err(|_| InvalidSecret)?;
        Ok(Self(vec![token.digest()]))
    }

    /// Accepts the previous secret too.
    #[must_use]
    pub fn or(mut self, previous: Option<Self>) -> Self {
        self.0.extend(previous.into_iter().flat_map(|secret| secret.0));
        self
    }

    /// Returns whether the digest is accepted. Compares in constant time.
    pub fn matches(&self, digest: &TokenDigest) -> bool {
        self.0.iter().fold(false, |found, known| found | known.matches(digest))
    }
}

/// Secret of the internal APIs and of the invalidation feed.
#[derive(Clone, Debug)]
pub struct ServiceSecret {
    token: Secret,
    accepted: SharedSecret,
}

impl ServiceSecret {
    /// Parses a service token.
    ///
    /// # Errors
    /// The token is too short.
    pub fn new(token: &str) -> Result<Self, InvalidSecret> {
        Ok(Self { token: Secret::new(token), accepted: SharedSecret::service(token)? })
    }

    /// The token of requests to other services.
    pub fn token(&self) -> &str {
        self.token.expose()
    }

    /// Returns the keys that authenticate invalidations.
    pub fn invalidation_keys(&self) -> InvalidationKeys {
        InvalidationKeys::new(&self.accepted.0)
    }
}

impl Variables for ServiceSecret {
    fn variables() -> Vec<Variable> {
        vec![SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS]
    }

    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let current = read.required_with(&SERVICE_TOKEN, Self::new);
        let previous = read.optional_with(&SERVICE_TOKEN_PREVIOUS, SharedSecret::service);
        let Self { token, accepted } = current?;
        Some(Self { token, accepted: accepted.or(previous?) })
    }
}

/// Middleware of the internal listener that requires the service token.
pub async fn internal_only(State(secret): State<ServiceSecret>, request: Request, next: Next) -> Response {
    let token =
        request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match token.map(TokenDigest::of_text) {
        Some(digest) if secret.accepted.matches(&digest) => next.run(request).await,
        Some(_) => Problem::new(ProblemKind::CredentialInvalid).into_response(),
        None => Problem::new(ProblemKind::Unauthenticated).into_response(),
    }
}

/// Secret of the platform administrator.
#[derive(Clone, Debug)]
pub struct PlatformSecret(pub SharedSecret);

impl Variables for PlatformSecret {
    fn variables() -> Vec<Variable> {
        vec![PLATFORM_TOKEN, PLATFORM_TOKEN_PREVIOUS]
    }

    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let current = read.optional_with(&PLATFORM_TOKEN, SharedSecret::platform);
        let previous = read.optional_with(&PLATFORM_TOKEN_PREVIOUS, SharedSecret::platform);
        Some(Self(current?.unwrap_or_default().or(previous?)))
    }
}

/// The platform administrator, or a caller with a credential of a tenant.
pub enum AnyCaller {
    /// The platform administrator.
    PlatformAdmin,
    /// The owner of a session or an API key.
    Caller(Caller),
}

impl<S> FromRequestParts<S> for AnyCaller
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
    PlatformSecret: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match bearer(&parts.headers, &[TokenKind::PlatformAdmin]) {
            Bearer::Token(_) => {
                PlatformAdmin::from_request_parts(parts, state).await.map(|_| Self::PlatformAdmin)
            }
            Bearer::Missing | Bearer::Malformed => {
                Caller::from_request_parts(parts, state).await.map(Self::Caller)
            }
        }
    }
}

/// The platform administrator, authenticated by the platform token.
#[derive(Clone, Copy, Debug)]
pub struct PlatformAdmin(());

impl<S> FromRequestParts<S> for PlatformAdmin
where
    S: Send + Sync,
    PlatformSecret: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let kinds = [TokenKind::PlatformAdmin, TokenKind::Session, TokenKind::ApiKey];
        let token = bearer(&parts.headers, &kinds).required()?;
        if token.kind() != TokenKind::PlatformAdmin {
            return Err(ProblemKind::Forbidden.into());
        }
        let PlatformSecret(secret) = PlatformSecret::from_ref(state);
        if secret.matches(&token.digest()) {
            Ok(Self(()))
        } else {
            Err(ProblemKind::CredentialInvalid.into())
        }
    }
}
