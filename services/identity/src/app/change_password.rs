//! Change a password: the current one is the proof. The other sessions of the user end.

use std::net::IpAddr;

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use contract::ProblemKind;
use contract::identity::ChangePassword;
use database::Error;
use hashing::Overloaded;
use service::Problem;
use tenancy::{SessionId, TenantId, TenantScope, UserId};

use super::App;
use super::accept_password::PasswordError;
use super::attempt::{AttemptError, Purpose};
use crate::domain::attempt::AccountRef;
use crate::store::{reset, user};

/// Why a password was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("the bearer is somebody else's")]
    Somebody,
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Somebody => ProblemKind::NotFound.into(),
            ChangeError::Attempt(error) => error.into(),
            ChangeError::Password(error) => error.at("/new_password"),
            ChangeError::Overloaded(_) => ProblemKind::Overloaded.into(),
            ChangeError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// Looks at the current password first, an attempt like a login, whoever it is about; then at the new one. `caller` is
    /// the bearer that was sent along: it must be the user's, and it is the session that stays.
    pub(crate) async fn change_password(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        caller: Option<&Caller>,
        request: &ChangePassword,
        address: IpAddr,
    ) -> Result<(), ChangeError> {
        let kept = match caller {
            Some(caller) => Some(session_of(caller, tenant_id, user_id).ok_or(ChangeError::Somebody)?),
            None => None,
        };
        let found = user::find_account_by_id(&self.database, tenant_id, user_id).await?;
        let email = found.as_ref().map(|account| &account.email);
        let whom =
            email.map_or(AccountRef::User(tenant_id, user_id), |email| AccountRef::Email(tenant_id, email));
        let attempt = self.begin_attempt(whom, address, Purpose::ChangePassword).await?;
        let account = self.check_password(&attempt, found, request.current_password.expose()).await?;

        let new = request.new_password.expose();
        let new = self.accept_password(new, &account.email, tenant_id).await?;
        let digest = self.hashes.hash(new).await?;
        let now = self.clock.now();
        let mut tx = self.database.tenant(&TenantScope::of_password(tenant_id.clone())).await?;
        // Only if nothing has changed since the current password was checked.
        let seen = account.subject.credential_version;
        if !user::mark_password_changed(&mut tx, user_id, seen, &digest, kept, now).await? {
            return Err(AttemptError::Failed.into());
        }
        // Whoever holds a mail of an earlier request shall not undo this.
        reset::mark_replaced(&mut tx, user_id, None, now).await?;
        let changed = AuditEvent {
            about: Some("change"),
            user_id: Some(user_id),
            ip: Some(address),
            ..AuditEvent::new(EventName::AuthnPasswordChange, Actor::User { user_id })
        };
        self.audit.record_at(&mut tx, tenant_id, changed, now).await?;
        self.write_subject(&mut tx, tenant_id, user_id, now).await?;
        self.write_notice(&mut tx, tenant_id, user_id, now).await?;
        tx.commit().await?;
        self.push_subject(tenant_id, user_id).await;
        Ok(())
    }
}

fn session_of(caller: &Caller, tenant_id: &TenantId, user_id: UserId) -> Option<SessionId> {
    let own = caller.tenant_id() == tenant_id && caller.user_id() == Some(user_id);
    caller.session_id().filter(|_| own)
}
