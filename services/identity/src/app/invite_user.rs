//! Invite a person into a tenant.

use audit::{Actor, AuditEvent, EventName};
use contract::identity::{Delivery, Invite, InviteStatus};
use contract::{ProblemKind, Role, Secret, UserStatus};
use database::{Error, TenantTx};
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::{InviteId, TenantId, TenantScope, UserId};

use super::App;
use crate::domain::email::Email;
use crate::store::invite::{self, NewInvite};
use crate::store::{tenant, user};

/// AccountRef to invite, as what, and how they learn of it.
pub(crate) struct Invitation {
    pub(crate) email: Email,
    pub(crate) role: Role,
    pub(crate) delivery: Delivery,
}

/// Why nobody was invited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InviteError {
    #[error("there is no such tenant")]
    NoTenant,
    #[error("the user exists")]
    UserExists,
    #[error("an invite is pending")]
    Pending,
    #[error("no mail can be sent")]
    MailUnavailable,
    #[error(transparent)]
    Database(Error),
}

impl From<Error> for InviteError {
    /// Two who invite the same person at once: the second learns that an invite is pending.
    fn from(error: Error) -> Self {
        let lost = error.violates(user::EMAIL_KEY) || error.violates(invite::PENDING_KEY);
        if lost { Self::Pending } else { Self::Database(error) }
    }
}

impl From<InviteError> for Problem {
    fn from(error: InviteError) -> Self {
        match error {
            InviteError::NoTenant => ProblemKind::NotFound.into(),
            InviteError::UserExists => ProblemKind::UserExists.into(),
            InviteError::Pending => ProblemKind::InvitePending.into(),
            InviteError::MailUnavailable => ProblemKind::MailUnavailable.into(),
            InviteError::Database(error) => error.into(),
        }
    }
}

impl App {
    /// Invites into the tenant that the inviter has proven a right to.
    pub(crate) async fn invite_user(
        &self,
        scope: &TenantScope,
        actor: Actor,
        invitation: &Invitation,
    ) -> Result<Invite, InviteError> {
        let mut tx = self.database.tenant(scope).await?;
        if tenant::find(&mut tx, scope.tenant_id()).await?.is_none() {
            return Err(InviteError::NoTenant);
        }
        let invite = self.invite_in(&mut tx, scope.tenant_id(), actor, invitation).await?;
        tx.commit().await?;
        Ok(invite)
    }

    /// Invites inside a transaction of the caller's, who wakes the outbox after the commit.
    pub(super) async fn invite_in(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        actor: Actor,
        invitation: &Invitation,
    ) -> Result<Invite, InviteError> {
        let Invitation { email, role, delivery } = invitation;
        if *delivery == Delivery::Email && !self.can_mail {
            return Err(InviteError::MailUnavailable);
        }
        let now = self.clock.now();
        let user_id = match user::find_by_email(tx, email.key()).await? {
            Some((_, UserStatus::Active | UserStatus::Disabled)) => return Err(InviteError::UserExists),
            Some((user_id, UserStatus::Invited)) => {
                invite::mark_expired(tx, user_id, now).await?;
                user::mark_reinvited(tx, user_id, email, *role, now).await?;
                user_id
            }
            None => {
                let user_id = UserId::generate();
                user::insert_invited(tx, user_id, tenant_id, email, *role, now).await?;
                user_id
            }
        };
        let token = match delivery {
            Delivery::Response => Some(RawToken::generate(TokenKind::Invite, &*self.entropy)),
            Delivery::Email => None,
        };
        let new = NewInvite {
            invite_id: InviteId::generate(),
            tenant_id,
            user_id,
            role: *role,
            digest: token.as_ref().map(RawToken::digest),
            expires_at: now + self.invite_ttl,
            created_at: now,
        };
        invite::insert(tx, &new).await?;
        if *delivery == Delivery::Email {
            self.write_mail_of_invite(tx, tenant_id, new.invite_id, new.expires_at, now).await?;
        }
        let invited = AuditEvent {
            about: Some("invite"),
            user_id: Some(user_id),
            invite_id: Some(new.invite_id),
            email: Some(email.typed().to_owned()),
            ..AuditEvent::new(EventName::AuthnTokenCreated, actor)
        };
        self.audit.record_at(tx, tenant_id, invited, now).await?;
        Ok(Invite {
            invite_id: new.invite_id,
            email: email.typed().to_owned(),
            role: *role,
            status: InviteStatus::Pending,
            expires_at: new.expires_at,
            created_at: now,
            token: token.map(|token| Secret::new(token.expose())),
        })
    }
}
