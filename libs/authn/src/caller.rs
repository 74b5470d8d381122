//! The caller of a request, as session knows it now.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use contract::internal::{Credential, Subject};
use contract::{ProblemKind, Role, Scope};
use hashing::TokenKind;
use http::request::Parts;
use service::Problem;
use service::http::TenantHeader;
use tenancy::{Actor, SessionId, TenantId, TenantScope, UserId};

use crate::{CredentialVerifier, bearer};

/// A live credential and who stands behind it.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Subject>);

impl Caller {
    /// The tenant that the credential belongs to.
    pub fn tenant_id(&self) -> &TenantId {
        &self.0.tenant_id
    }

    /// The right to touch that tenant's rows.
    pub fn scope(&self) -> TenantScope {
        TenantScope::of_credential(self.0.tenant_id.clone())
    }

    /// Everything that session said.
    pub fn subject(&self) -> &Subject {
        &self.0
    }

    /// The person, when it is one.
    pub fn user_id(&self) -> Option<UserId> {
        match &self.0.credential {
            Credential::Session { user_id, .. } => Some(*user_id),
            Credential::ApiKey { .. } => None,
        }
    }

    /// The session, when it is one.
    pub fn session_id(&self) -> Option<SessionId> {
        match &self.0.credential {
            Credential::Session { session_id, .. } => Some(*session_id),
            Credential::ApiKey { .. } => None,
        }
    }

    /// Whether it is an administrator of its tenant.
    pub fn is_admin(&self) -> bool {
        matches!(self.0.credential, Credential::Session { role: Role::Admin, .. })
    }

    /// What the credential may be used for, beyond managing its own person.
    pub fn scopes(&self) -> &[Scope] {
        match &self.0.credential {
            Credential::Session { role, .. } => role.scopes(),
            Credential::ApiKey { scopes, .. } => scopes,
        }
    }

    /// Demands a scope.
    ///
    /// # Errors
    /// 403: `insufficient_scope` for a key, `forbidden` for a person.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes().contains(&scope) {
            return Ok(());
        }
        Err(match self.0.credential {
            Credential::Session { .. } => ProblemKind::Forbidden.into(),
            Credential::ApiKey { .. } => {
                Problem::new(ProblemKind::InsufficientScope).detail(format!("The scope {scope} is needed."))
            }
        })
    }

    /// The user that a call is about: the caller, or for an administrator anybody of the tenant; whether there is such a
    /// user, the handler finds out.
    ///
    /// # Errors
    /// 404 `not_found`, the same as for a user who does not exist.
    pub fn about(&self, user_id: UserId) -> Result<UserId, Problem> {
        if self.user_id() == Some(user_id) || self.is_admin() {
            return Ok(user_id);
        }
        Err(ProblemKind::NotFound.into())
    }

    /// Names the credential in headers and logs, without being one: `session:<id>` or `key:<id>`.
    pub fn credential_label(&self) -> String {
        match &self.0.credential {
            Credential::Session { session_id, .. } => format!("session:{session_id}"),
            Credential::ApiKey { key_id, .. } => format!("key:{key_id}"),
        }
    }
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        match caller.subject().credential {
            Credential::Session { user_id, .. } => Self::User { user_id },
            Credential::ApiKey { key_id, .. } => Self::ApiKey { key_id },
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
        let token = bearer(&parts.headers, &[TokenKind::Session, TokenKind::ApiKey]).required()?;
        let authority = <Arc<dyn CredentialVerifier>>::from_ref(state);
        let subject = authority.introspect(token.digest()).await?.ok_or(ProblemKind::CredentialInvalid)?;
        let named = <Option<TenantHeader>>::from_request_parts(parts, state).await?;
        if named.is_some_and(|TenantHeader(tenant_id)| tenant_id != subject.tenant_id) {
            return Err(ProblemKind::TenantMismatch.into());
        }
        Ok(Self(subject))
    }
}

/// A caller who is an administrator of the tenant.
pub struct Admin(pub Caller);

impl<S> FromRequestParts<S> for Admin
where
    S: Send + Sync,
    Arc<dyn CredentialVerifier>: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        if caller.is_admin() { Ok(Self(caller)) } else { Err(ProblemKind::Forbidden.into()) }
    }
}
