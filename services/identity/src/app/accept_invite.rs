//! Accept an invite: the token is spent in the transaction that writes the password, and never by a refused password.

use audit::{Actor, AuditEvent, EventName};
use contract::ProblemKind;
use contract::identity::AcceptedInvite;
use database::Error;
use hashing::{Overloaded, RawToken, TokenKind};
use service::Problem;
use tenancy::TenantScope;

use super::App;
use super::accept_password::PasswordError;
use crate::domain::email::EmailKey;
use crate::store::{invite, user};

/// Why an invite was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptInviteError {
    #[error("the token cannot be used")]
    Token,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<AcceptInviteError> for Problem {
    fn from(error: AcceptInviteError) -> Self {
        match error {
            AcceptInviteError::Token => ProblemKind::TokenInvalid.into(),
            AcceptInviteError::Password(error) => error.at("/password"),
            AcceptInviteError::Overloaded(_) => ProblemKind::Overloaded.into(),
            AcceptInviteError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// Looks at the token first, then at the password, and only then hashes.
    pub(crate) async fn accept_invite(
        &self,
        raw_token: &str,
        raw_password: &str,
    ) -> Result<AcceptedInvite, AcceptInviteError> {
        let token = RawToken::parse(TokenKind::Invite, raw_token).map_err(|_| AcceptInviteError::Token)?;
        let digest = token.digest();
        let found = invite::find_by_digest(&self.database, digest).await?;
        let (invite_id, tenant_id) = found.ok_or(AcceptInviteError::Token)?;
        let scope = TenantScope::of_token(tenant_id.clone());

        let mut tx = self.database.tenant(&scope).await?;
        let pending = invite::find_pending(&mut tx, invite_id, self.clock.now()).await?;
        // Not held while the password is hashed: that takes longer than all else together.
        drop(tx);
        let pending = pending.ok_or(AcceptInviteError::Token)?;
        let email_key = EmailKey::from_stored(pending.email_key);
        let password = self.accept_password(raw_password, &email_key, &tenant_id).await?;
        let password_digest = self.hashes.hash(password).await?;

        let now = self.clock.now();
        let mut tx = self.database.tenant(&scope).await?;
        let won = invite::mark_accepted(&mut tx, invite_id, digest, now).await?
            && user::mark_active(&mut tx, pending.user_id, pending.role, &password_digest, now).await?;
        if !won {
            return Err(AcceptInviteError::Token);
        }
        self.forget_attempts(&mut tx, &tenant_id, &email_key).await?;
        let user_id = pending.user_id;
        let created = AuditEvent {
            about: Some(pending.role.as_str()),
            user_id: Some(user_id),
            invite_id: Some(invite_id),
            email: Some(pending.email.clone()),
            ..AuditEvent::new(EventName::UserCreated, Actor::User { user_id }).credential(&digest)
        };
        self.audit.record_at(&mut tx, &tenant_id, created, now).await?;
        self.write_subject(&mut tx, &tenant_id, pending.user_id, now).await?;
        tx.commit().await?;
        tracing::info!(tenant_id = %tenant_id, user_id = %pending.user_id, "an invite was accepted");
        Ok(AcceptedInvite { user_id: pending.user_id, tenant_id, email: pending.email, role: pending.role })
    }
}
