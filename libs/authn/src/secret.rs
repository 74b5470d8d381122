//! Secrets that processes hold in memory: the service token of the internal API, the operator's token. Each may have a
//! predecessor that is still taken, so that it can be rotated without an outage.

use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use hashing::{RawToken, TokenDigest, TokenKind};
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::Problem;
use service::config::{Reader, Variable, Variables};

use crate::bearer;

/// What lets a service call another one.
pub const SERVICE_TOKEN: Variable = Variable {
    name: "SVC_SERVICE_TOKEN",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "The shared secret of the internal API; the same in every service.",
};
/// The service token before the last rotation.
pub const SERVICE_TOKEN_PREVIOUS: Variable = Variable {
    name: "SVC_SERVICE_TOKEN_PREVIOUS",
    form: "32 or more characters",
    default: None,
    secret: true,
    meaning: "The service token before the last rotation; still accepted.",
};
/// What lets the operator in.
pub const PLATFORM_TOKEN: Variable = Variable {
    name: "SVC_PLATFORM_TOKEN",
    form: "a token `svc_pt_…`, as `svc-identity platform-token` makes one",
    default: None,
    secret: true,
    meaning: "The operator's credential, for tenants and the first invite of each; without it those routes refuse everybody.",
};
/// The operator's token before the last rotation.
pub const PLATFORM_TOKEN_PREVIOUS: Variable = Variable {
    name: "SVC_PLATFORM_TOKEN_PREVIOUS",
    form: "a token `svc_pt_…`",
    default: None,
    secret: true,
    meaning: "The operator's credential before the last rotation; still accepted.",
};

/// The digests of a secret and of its predecessor.
#[derive(Clone, Debug, Default)]
pub struct SharedSecret(Vec<TokenDigest>);

/// The text is too weak a secret, or has the wrong form.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not a secret of the form that is needed")]
pub struct InvalidSecret;

/// A secret of fewer characters could be guessed.
const LEAST_CHARACTERS: usize = 32;

impl SharedSecret {
    /// A service token.
    ///
    /// # Errors
    /// It is too short.
    pub fn service(text: &str) -> Result<Self, InvalidSecret> {
        if text.chars().count() < LEAST_CHARACTERS {
            return Err(InvalidSecret);
        }
        Ok(Self(vec![TokenDigest::of_text(text)]))
    }

    /// An operator token.
    ///
    /// # Errors
    /// It has not the form of one.
    pub fn operator(text: &str) -> Result<Self, InvalidSecret> {
        let token = RawToken::parse(TokenKind::PlatformAdmin, text).map_err(|_| InvalidSecret)?;
        Ok(Self(vec![token.digest()]))
    }

    /// The same, with a predecessor that is taken too.
    #[must_use]
    pub fn or(mut self, previous: Option<Self>) -> Self {
        self.0.extend(previous.into_iter().flat_map(|secret| secret.0));
        self
    }

    /// Compares in constant time.
    pub fn matches(&self, digest: &TokenDigest) -> bool {
        self.0.iter().fold(false, |found, known| found | known.matches(digest))
    }
}

/// The secret of the internal API.
#[derive(Clone, Debug)]
pub struct ServiceSecret(pub SharedSecret);

impl Variables for ServiceSecret {
    fn variables() -> Vec<Variable> {
        vec![SERVICE_TOKEN, SERVICE_TOKEN_PREVIOUS]
    }

    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let current = read.required_with(&SERVICE_TOKEN, SharedSecret::service);
        let previous = read.optional_with(&SERVICE_TOKEN_PREVIOUS, SharedSecret::service);
        Some(Self(current?.or(previous?)))
    }
}

/// Middleware of the internal listener: nothing passes without the service token.
pub async fn internal_only(State(secret): State<ServiceSecret>, request: Request, next: Next) -> Response {
    let shown =
        request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match shown.map(TokenDigest::of_text) {
        Some(digest) if secret.0.matches(&digest) => next.run(request).await,
        Some(_) => Problem::new(ProblemKind::CredentialInvalid).into_response(),
        None => Problem::new(ProblemKind::Unauthenticated).into_response(),
    }
}

/// The operator's secret.
#[derive(Clone, Debug)]
pub struct PlatformSecret(pub SharedSecret);

impl Variables for PlatformSecret {
    fn variables() -> Vec<Variable> {
        vec![PLATFORM_TOKEN, PLATFORM_TOKEN_PREVIOUS]
    }

    fn read(read: &mut Reader<'_>) -> Option<Self> {
        let current = read.optional_with(&PLATFORM_TOKEN, SharedSecret::operator);
        let previous = read.optional_with(&PLATFORM_TOKEN_PREVIOUS, SharedSecret::operator);
        Some(Self(current?.unwrap_or_default().or(previous?)))
    }
}

/// The operator, proven by their token.
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
