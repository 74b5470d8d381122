//! Shared secrets: the service token of the internal API and the platform token. They follow their files, and during a rotation the
//! previous value is accepted too, so that no order in which the processes read a new value fails a request.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::{ProblemKind, Secret};
use hashing::{RawToken, TokenDigest, TokenKind};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::Problem;
use service::config::{Live, Rotating, Variable};
use service::http::TenantHeader;
use sha2::Sha256;
use tenancy::{Actor, TenantId};

use crate::{Bearer, Caller, CredentialVerifier, bearer};

/// Authenticates services to the internal API.
pub const SERVICE_TOKEN: Variable =
    Variable::new("SVC_SERVICE_TOKEN", "32 or more characters").secret().meaning(
        "Shared secret of the internal API. All services have the same value. During a rotation, the second line is the \
        previous value, which is accepted too.",
    );
/// Authenticates the platform administrator.
pub const PLATFORM_TOKEN: Variable =
    Variable::new("SVC_PLATFORM_TOKEN", "a token `svc_pt_…` from `svc-identity platform-token`").secret().meaning(
        "Credential of the platform administrator, who manages tenants, invites their first administrator and can revoke API \
         keys. If it is unset, these routes reject all requests. During a rotation, the second line is the previous token, which is \
         accepted too.",
    );

/// The secret is too short or malformed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the secret is too short or malformed")]
pub struct InvalidSecret;

/// A shorter secret could be guessed.
const MIN_CHARACTERS: usize = 32;

/// Returns whether one of the digests is the same. Compares in constant time.
fn matches<'a>(accepted: impl Iterator<Item = &'a TokenDigest>, digest: &TokenDigest) -> bool {
    accepted.fold(false, |found, known| found | known.matches(digest))
}

service::variables! {
    /// Secret of the internal APIs. Clones share its value.
    #[derive(Clone)]
    pub struct ServiceSecret {
        tokens: Live<Rotating<ServiceToken>> = SERVICE_TOKEN.required_live(ServiceToken::parse_lines),
    }
}

struct ServiceToken {
    text: Secret,
    digest: TokenDigest,
}

impl ServiceToken {
    fn parse(text: &str) -> Result<Self, InvalidSecret> {
        if text.chars().count() < MIN_CHARACTERS {
            return Err(InvalidSecret);
        }
        Ok(Self { text: Secret::new(text), digest: TokenDigest::from_text(text) })
    }

    fn parse_lines(text: &str) -> Result<Rotating<Self>, String> {
        Rotating::parse(text, Self::parse)
    }
}

impl ServiceSecret {
    /// Returns a secret that never changes.
    ///
    /// # Errors
    /// The token is too short.
    pub fn new(token: &str) -> Result<Self, InvalidSecret> {
        let current = ServiceToken::parse(token)?;
        Ok(Self { tokens: Live::fixed(Rotating { current, previous: None }) })
    }

    /// The token of requests to other services, and the one to send to a service that rejects it.
    pub(crate) fn tokens(&self) -> (Secret, Option<Secret>) {
        let tokens = self.tokens.get();
        (tokens.current.text.clone(), tokens.previous.as_ref().map(|token| token.text.clone()))
    }

    /// Returns a key for a purpose that follows from each accepted token, that of the current one first: HMAC-SHA-256 of the purpose.
    pub fn derive(&self, purpose: &str) -> impl Iterator<Item = [u8; 32]> {
        let tokens = self.tokens.get();
        let keys: Vec<_> = tokens.iter().filter_map(|token| hmac(token.text.expose(), purpose)).collect();
        keys.into_iter()
    }

    fn accepts(&self, digest: &TokenDigest) -> bool {
        matches(self.tokens.get().iter().map(|token| &token.digest), digest)
    }
}

/// Never `None`: HMAC accepts a key of any length.
fn hmac(key: &str, text: &str) -> Option<[u8; 32]> {
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).ok()?;
    Some(mac.chain_update(text).finalize().into_bytes().into())
}

/// Middleware of the internal listener that requires the service token.
pub async fn internal_only(State(secret): State<ServiceSecret>, request: Request, next: Next) -> Response {
    let token =
        request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match token.map(TokenDigest::from_text) {
        Some(digest) if secret.accepts(&digest) => next.run(request).await,
        Some(_) => Problem::new(ProblemKind::CredentialInvalid).into_response(),
        None => Problem::new(ProblemKind::Unauthenticated).into_response(),
    }
}

service::variables! {
    /// Secret of the platform administrator, if there is one. Clones share its value.
    #[derive(Clone)]
    pub struct PlatformSecret {
        digests: Option<Live<Rotating<TokenDigest>>> = PLATFORM_TOKEN.optional_live(PlatformSecret::parse),
    }
}

impl PlatformSecret {
    fn parse(text: &str) -> Result<Rotating<TokenDigest>, String> {
        Rotating::parse(text, |token| {
            RawToken::parse(TokenKind::PlatformAdmin, token).map(|token| token.digest())
        })
    }

    fn accepts(&self, digest: &TokenDigest) -> bool {
        self.digests.as_ref().is_some_and(|digests| matches(digests.get().iter(), digest))
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
            Bearer::Missing | Bearer::Malformed | Bearer::ServiceAccountToken(_) => {
                Caller::from_request_parts(parts, state).await.map(Self::Caller)
            }
        }
    }
}

/// The tenant of a request, and who sent it.
pub struct TenantCaller {
    /// The tenant of the caller. The platform administrator names it in a header.
    pub tenant_id: TenantId,
    /// Who sent the request, for the audit.
    pub actor: Actor,
    /// `None` for the platform administrator.
    pub caller: Option<Caller>,
}

impl<S> FromRequestParts<S> for TenantCaller
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
    PlatformSecret: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, state).await? {
            AnyCaller::PlatformAdmin => {
                let TenantHeader(tenant_id) = TenantHeader::from_request_parts(parts, state).await?;
                Ok(Self { tenant_id, actor: Actor::PlatformAdmin, caller: None })
            }
            AnyCaller::Caller(caller) => {
                let (tenant_id, actor) = (caller.tenant_id().clone(), Actor::from(&caller));
                Ok(Self { tenant_id, actor, caller: Some(caller) })
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
        if PlatformSecret::from_ref(state).accepts(&token.digest()) {
            Ok(Self(()))
        } else {
            Err(ProblemKind::CredentialInvalid.into())
        }
    }
}
