//! List, resend and revoke invites.

use audit::{Actor, AuditEvent, EventName};
use contract::identity::{Delivery, Invite, InviteStatus};
use contract::{Page, ProblemKind, Role, Secret};
use database::TenantTx;
use hashing::{RawToken, TokenKind};
use service::Problem;
use service::http::page::Paging;
use tenancy::{InviteId, TenantScope};

use super::App;
use super::invite_user::InviteError;
use crate::store::invite;

impl App {
    /// The tenant's invites, oldest first.
    pub(crate) async fn invites(
        &self,
        scope: &TenantScope,
        status: Option<InviteStatus>,
        paging: &Paging<InviteId>,
    ) -> Result<Page<Invite>, Problem> {
        let mut tx = self.database.tenant(scope).await?;
        let invites = invite::list(&mut tx, status, paging.after, paging.rows(), self.clock.now()).await?;
        Ok(paging.page(invites, |invite| invite.invite_id))
    }

    /// Gives a pending invite a new term and a new token; the old one is dead. One whose time is over is invited anew,
    /// not resent.
    pub(crate) async fn resend_invite(
        &self,
        scope: &TenantScope,
        actor: Actor,
        highest_role: Role,
        invite_id: InviteId,
        delivery: Delivery,
    ) -> Result<Invite, Problem> {
        if delivery == Delivery::Email && !self.can_mail {
            return Err(InviteError::MailUnavailable.into());
        }
        let now = self.clock.now();
        let mut tx = self.database.tenant(scope).await?;
        let pending = self.pending_invite(&mut tx, invite_id).await?;
        // Whoever may not give a role may not get at a token that does.
        if pending.role > highest_role {
            return Err(ProblemKind::Forbidden.into());
        }
        let token = match delivery {
            Delivery::Response => Some(RawToken::generate(TokenKind::Invite, &*self.entropy)),
            Delivery::Email => None,
        };
        let expires_at = now + self.invite_ttl;
        invite::mark_resent(&mut tx, invite_id, token.as_ref().map(RawToken::digest), expires_at).await?;
        let resent = of_invite(EventName::AuthnTokenCreated, actor, invite_id);
        self.audit.record_at(&mut tx, scope.tenant_id(), resent, now).await?;
        if delivery == Delivery::Email {
            self.write_mail_of_invite(&mut tx, scope.tenant_id(), invite_id, expires_at, now).await?;
        }
        tx.commit().await?;
        Ok(Invite { expires_at, token: token.map(|token| Secret::new(token.expose())), ..pending })
    }

    /// Takes a pending invite back. Repeating it is harmless; one that was accepted cannot be taken back.
    pub(crate) async fn revoke_invite(
        &self,
        scope: &TenantScope,
        actor: Actor,
        highest_role: Role,
        invite_id: InviteId,
    ) -> Result<(), Problem> {
        let now = self.clock.now();
        let mut tx = self.database.tenant(scope).await?;
        let found = invite::find(&mut tx, invite_id, now).await?.ok_or(ProblemKind::NotFound)?;
        // Nor may they keep away whom they may not invite.
        if found.role > highest_role {
            return Err(ProblemKind::Forbidden.into());
        }
        if found.status == InviteStatus::Accepted {
            return Err(ProblemKind::UserExists.into());
        }
        invite::mark_revoked(&mut tx, invite_id, now).await?;
        let revoked = of_invite(EventName::AuthnTokenRevoked, actor, invite_id);
        self.audit.record_at(&mut tx, scope.tenant_id(), revoked, now).await?;
        Ok(tx.commit().await?)
    }

    async fn pending_invite(&self, tx: &mut TenantTx, invite_id: InviteId) -> Result<Invite, Problem> {
        let found = invite::find(tx, invite_id, self.clock.now()).await?.ok_or(ProblemKind::NotFound)?;
        match found.status {
            InviteStatus::Pending => Ok(found),
            InviteStatus::Accepted => Err(ProblemKind::UserExists.into()),
            InviteStatus::Expired | InviteStatus::Revoked => {
                Err(Problem::new(ProblemKind::NotFound)
                    .detail("The invite is over. Invite the person again."))
            }
        }
    }
}

fn of_invite(name: EventName, actor: Actor, invite_id: InviteId) -> AuditEvent {
    AuditEvent { about: Some("invite"), invite_id: Some(invite_id), ..AuditEvent::new(name, actor) }
}
