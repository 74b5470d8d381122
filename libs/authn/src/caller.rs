//! The caller of a request: the `Authorization` header (RFC 6750, section 2.1), the sources of introspection results, and
//! the extractors that verify the bearer credential.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::token_review::is_service_account_token;
use axum::extract::{FromRef, FromRequestParts};
use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::{Credential, Subject};
use contract::session::{AuthMethod, SessionMethod};
use contract::{ProblemKind, Role, Scope};
use hashing::{RawToken, TokenDigest, TokenKind};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use service::http::TenantHeader;
use service::{Clock, Problem};
use tenancy::{Actor, SessionId, TenantId, UserId};

/// How long after a password login sensitive actions are permitted.
const RECENT_LOGIN: TimeDelta = TimeDelta::minutes(10);

/// The bearer credential of a request.
pub enum Bearer {
    /// No `Authorization` header.
    Missing,
    /// Not a well-formed credential. It is rejected without a lookup.
    Malformed,
    /// A well-formed credential.
    Token(RawToken),
    /// A text with the form of a Kubernetes service account token.
    ServiceAccountToken(String),
}

/// Reads the bearer credential. A credential of another kind is malformed.
pub fn bearer(headers: &HeaderMap, kinds: &[TokenKind]) -> Bearer {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Bearer::Missing;
    };
    if values.next().is_some() {
        return Bearer::Malformed;
    }
    let token = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let Some(text) = token else { return Bearer::Malformed };
    match RawToken::parse_any(kinds, text) {
        Ok(token) => Bearer::Token(token),
        Err(_) if is_service_account_token(text) => Bearer::ServiceAccountToken(text.to_owned()),
        Err(_) => Bearer::Malformed,
    }
}

impl Bearer {
    /// Returns the credential.
    ///
    /// # Errors
    /// 401 `unauthenticated` or `credential_invalid`.
    pub fn required(self) -> Result<RawToken, Problem> {
        match self {
            Self::Token(token) => Ok(token),
            Self::Missing => Err(ProblemKind::Unauthenticated.into()),
            Self::Malformed | Self::ServiceAccountToken(_) => Err(ProblemKind::CredentialInvalid.into()),
        }
    }
}

/// The owner of a credential, or `None` if the credential is not active.
pub type Introspection = Option<Arc<Subject>>;

/// Verifies bearer credentials one at a time.
#[async_trait::async_trait]
pub trait CredentialVerifier: Send + Sync {
    /// Looks up the owner of the credential with this digest.
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable>;

    /// Returns the digest of the service account with this token; `None` if the token is not valid. Most services accept no
    /// tokens of service accounts.
    async fn review(&self, _token: &str) -> Result<Option<TokenDigest>, Unavailable> {
        Ok(None)
    }
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

/// The owner of an active credential.
#[derive(Clone)]
pub struct Caller {
    subject: Arc<Subject>,
    digest: TokenDigest,
}

/// Omits the digest of the credential.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.subject).finish()
    }
}

impl Caller {
    /// Looks up the owner of a credential.
    pub(crate) async fn verify(
        digest: TokenDigest,
        verifier: &Arc<dyn CredentialVerifier>,
    ) -> Result<Self, Problem> {
        let subject = verifier.introspect(digest).await?;
        Ok(Self { subject: subject.ok_or(ProblemKind::CredentialInvalid)?, digest })
    }

    #[cfg(test)]
    pub(crate) fn for_test(subject: Arc<Subject>, digest: TokenDigest) -> Self {
        Self { subject, digest }
    }

    /// The caller with a later introspection result of the same credential.
    pub(crate) fn with_subject(&self, subject: Arc<Subject>) -> Self {
        Self { subject, digest: self.digest }
    }

    /// The digest of the credential.
    pub(crate) fn digest(&self) -> TokenDigest {
        self.digest
    }

    /// The tenant of the credential.
    pub fn tenant_id(&self) -> &TenantId {
        &self.subject.tenant_id
    }

    /// The complete introspection result.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The user, or `None` for a program.
    pub fn user_id(&self) -> Option<UserId> {
        match &self.subject.credential {
            Credential::Session { user_id, .. } => Some(*user_id),
            Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => None,
        }
    }

    /// The session, or `None` for a program.
    pub fn session_id(&self) -> Option<SessionId> {
        match &self.subject.credential {
            Credential::Session { session_id, .. } => Some(*session_id),
            Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => None,
        }
    }

    /// Returns whether the caller is an administrator of the tenant. The session of the page of own sessions has no rights of an
    /// administrator.
    pub fn is_admin(&self) -> bool {
        matches!(self.subject.credential, Credential::Session { role: Role::Admin, .. })
            && !self.is_page_session()
    }

    /// The scopes of the credential. Users need none for their own account.
    pub fn scopes(&self) -> &[Scope] {
        match &self.subject.credential {
            Credential::Session { role, .. } => role.scopes(),
            Credential::ApiKey { scopes, .. } => scopes,
            Credential::ServiceAccount { .. } => &[Scope::EventsWrite],
        }
    }

    /// Requires a scope.
    ///
    /// # Errors
    /// 403: `insufficient_scope` for a program, `forbidden` for a user.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes().contains(&scope) {
            return Ok(());
        }
        Err(match self.subject.credential {
            Credential::Session { .. } => ProblemKind::Forbidden.into(),
            Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => {
                Problem::new(ProblemKind::InsufficientScope).detail(format!("The scope {scope} is required."))
            }
        })
    }

    /// Requires a session that was created with the password in the last ten minutes, and with the second factor if the user has one
    /// now. A passkey alone is both. Sensitive actions require it, so that a stolen session cannot create credentials or administrators.
    ///
    /// # Errors
    /// 403 `reauthentication_required`.
    pub fn require_recent_login(&self, now: DateTime<Utc>) -> Result<(), Problem> {
        match self.subject.credential {
            Credential::Session { method: SessionMethod::Password, created_at, has_factor, .. }
                if now - created_at <= RECENT_LOGIN && (!has_factor || self.used_factor()) =>
            {
                Ok(())
            }
            _ => Err(ProblemKind::ReauthenticationRequired.into()),
        }
    }

    /// Returns whether the user of the session logged in with a second factor.
    pub fn used_factor(&self) -> bool {
        matches!(&self.subject.credential, Credential::Session { amr, .. } if amr.contains(&AuthMethod::Mfa))
    }

    /// Requires a user, and returns the id.
    ///
    /// # Errors
    /// 403 `forbidden` for a program.
    pub fn require_user(&self) -> Result<UserId, Problem> {
        Ok(self.user_id().ok_or(ProblemKind::Forbidden)?)
    }

    /// Requires that the caller is this user or an administrator. Does not check that the user exists.
    ///
    /// # Errors
    /// 403 `forbidden` for a program; 404 `not_found` for another user, as for a user that does not exist.
    pub fn require_self_or_admin(&self, user_id: UserId) -> Result<UserId, Problem> {
        if self.require_user()? == user_id || self.is_admin() {
            return Ok(user_id);
        }
        Err(ProblemKind::NotFound.into())
    }

    /// Identifies the credential in headers and logs: `session:<id>`, `key:<id>` or `serviceaccount:<namespace>/<name>`.
    pub fn credential_label(&self) -> String {
        match &self.subject.credential {
            Credential::Session { session_id, .. } => format!("session:{session_id}"),
            Credential::ApiKey { key_id, .. } => format!("key:{key_id}"),
            Credential::ServiceAccount { service_account, .. } => format!("serviceaccount:{service_account}"),
        }
    }
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        match caller.subject().credential {
            Credential::Session { user_id, .. } => Self::User { user_id },
            Credential::ApiKey { key_id, .. } => Self::ApiKey { key_id },
            // Can only send events, which causes no audit event.
            Credential::ServiceAccount { .. } => Self::Anonymous,
        }
    }
}

impl<S> FromRequestParts<S> for Caller
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let kinds = [TokenKind::Session, TokenKind::ApiKey, TokenKind::PlatformAdmin];
        let verifier = <Arc<dyn CredentialVerifier>>::from_ref(state);
        let digest = match bearer(&parts.headers, &kinds) {
            Bearer::ServiceAccountToken(token) => {
                verifier.review(&token).await?.ok_or(ProblemKind::CredentialInvalid)?
            }
            bearer => {
                let token = bearer.required()?;
                if token.kind() == TokenKind::PlatformAdmin {
                    // The route does not accept it, whether or not it is valid.
                    return Err(ProblemKind::Forbidden.into());
                }
                token.digest()
            }
        };
        let caller = Self::verify(digest, &verifier).await?;
        if caller.is_page_session() {
            return Err(ProblemKind::CredentialInvalid.into());
        }
        let header = <Option<TenantHeader>>::from_request_parts(parts, state).await?;
        if header.is_some_and(|TenantHeader(tenant_id)| tenant_id != *caller.tenant_id()) {
            return Err(ProblemKind::TenantMismatch.into());
        }
        Ok(caller)
    }
}

/// A caller that is a user of the tenant, not a program.
pub struct AnyUser(pub Caller);

impl<S> FromRequestParts<S> for AnyUser
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        caller.require_user()?;
        Ok(Self(caller))
    }
}

/// A caller that is an administrator of the tenant with a recent password login, see [`Caller::require_recent_login`].
pub struct RecentAdmin(pub Caller);

impl<S> FromRequestParts<S> for RecentAdmin
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
    Arc<dyn Clock>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        if !caller.is_admin() {
            return Err(ProblemKind::Forbidden.into());
        }
        caller.require_recent_login(<Arc<dyn Clock>>::from_ref(state).now())?;
        Ok(Self(caller))
    }
}

#[cfg(test)]
mod tests {
    use contract::identity::Quota;
    use tenancy::KeyId;

    use super::*;

    const LOGIN: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn caller(credential: Credential) -> Caller {
        let tenant_id = "acme".parse().unwrap();
        let subject = Subject { credential, tenant_id, quota: Quota::default(), expires_at: LOGIN };
        Caller { subject: Arc::new(subject), digest: TokenDigest::from_text("a") }
    }

    fn session(method: SessionMethod) -> Caller {
        caller(Credential::Session {
            session_id: SessionId::generate(),
            user_id: UserId::generate(),
            role: Role::Admin,
            method,
            amr: vec![AuthMethod::Pwd],
            has_factor: false,
            created_at: LOGIN,
            idle_expires_at: LOGIN,
        })
    }

    #[test]
    fn a_password_login_is_recent_for_ten_minutes() {
        let login = session(SessionMethod::Password);
        assert!(login.require_recent_login(LOGIN + TimeDelta::minutes(10)).is_ok());
        let later = LOGIN + TimeDelta::minutes(10) + TimeDelta::microseconds(1);
        let problem = login.require_recent_login(later).unwrap_err();
        assert_eq!(problem.kind(), ProblemKind::ReauthenticationRequired);
    }

    #[test]
    fn a_login_without_the_second_factor_of_the_user_is_never_recent() {
        for (with_factor, has_factor, is_recent) in
            [(false, false, true), (false, true, false), (true, true, true), (true, false, true)]
        {
            let mut subject = session(SessionMethod::Password).subject().clone();
            if let Credential::Session { amr, has_factor: has, .. } = &mut subject.credential {
                *has = has_factor;
                amr.extend(with_factor.then_some(AuthMethod::Mfa));
            }
            let login = caller(subject.credential);
            assert_eq!(login.require_recent_login(LOGIN).is_ok(), is_recent, "{with_factor} {has_factor}");
        }
    }

    #[test]
    fn a_device_login_and_an_api_key_are_never_a_recent_login() {
        let key =
            Credential::ApiKey { key_id: KeyId::generate(), scopes: Vec::new(), source_ids: Vec::new() };
        assert!(session(SessionMethod::Device).require_recent_login(LOGIN).is_err());
        assert!(caller(key).require_recent_login(LOGIN).is_err());
    }
}
