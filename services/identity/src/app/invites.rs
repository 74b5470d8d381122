//! Invites: create, list, resend, revoke, mail and accept.

use std::net::IpAddr;

use audit::{AuditEvent, EventName};
use chrono::TimeDelta;
use contract::identity::{AcceptedInvite, Delivery, InspectedInvite, Invite as InviteBody, InviteStatus};
use contract::{Page, ProblemKind, Role, TenantStatus, UserStatus};
use database::Error;
use hashing::{RawToken, TokenDigest, TokenKind};
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, InviteId, TenantId, UserId};

use super::mails::written;
use super::{App, Work};
use crate::domain::account::AccountRef;
use crate::domain::email::Email;
use crate::domain::invite::{Invite, InviteState};
use crate::message::{AdminChange, Message};
use crate::store::{invite, tenant, user};

/// The time in which an expired invite and its user remain visible.
const KEEP_EXPIRED: TimeDelta = TimeDelta::days(1);

/// The content of a new invite.
pub(crate) struct Invitation {
    pub(crate) email: Email,
    pub(crate) role: Role,
    pub(crate) delivery: Delivery,
}

/// The roles that a caller may invite, and the deliveries of their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InviteRights {
    /// Members only, by mail: an API key must not create an administrator, or with a token a user.
    Members,
    /// Members by mail, and everything else after a new login: an administrator without a recent login.
    EveryoneAfterLogin,
    /// Members and administrators, by any delivery.
    Everyone,
}

impl InviteRights {
    /// Requires the right to hand out a token that grants the role.
    pub(crate) fn require_grant(self, role: Role) -> Result<(), Problem> {
        match (role, self) {
            (Role::Admin, Self::EveryoneAfterLogin) => Err(ProblemKind::ReauthenticationRequired.into()),
            _ => self.require_revoke(role),
        }
    }

    /// Requires the right to get a token by this delivery. A token in the response is sufficient to take over the invited account.
    pub(crate) fn require_delivery(self, delivery: Delivery) -> Result<(), Problem> {
        match (delivery, self) {
            (Delivery::Email, _) | (Delivery::Response, Self::Everyone) => Ok(()),
            (Delivery::Response, Self::EveryoneAfterLogin) => {
                let detail = "The response contains the token only after a recent login. Log in again with the password or a passkey, or \
                    send it by e-mail.";
                Err(Problem::new(ProblemKind::ReauthenticationRequired).detail(detail))
            }
            (Delivery::Response, Self::Members) => {
                let detail = "An API key cannot receive the token of an invite. Send it by e-mail, or ask an administrator.";
                Err(Problem::new(ProblemKind::Forbidden).detail(detail))
            }
        }
    }

    /// Requires the right to revoke an invite for the role.
    fn require_revoke(self, role: Role) -> Result<(), Problem> {
        match (role, self) {
            (Role::Admin, Self::Members) => Err(members_only()),
            _ => Ok(()),
        }
    }
}

impl App {
    /// Invites a person into a tenant.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn invite_user(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        invitation: &Invitation,
    ) -> Result<InviteBody, Problem> {
        self.count_invite(tenant_id, actor).await?;
        let mut tx = self.begin(tenant_id, actor).await?;
        if !tenant::exists(&mut tx).await? {
            return Err(ProblemKind::NotFound.into());
        }
        // Requests at the same time can exceed the maximum by their number.
        if actor != Actor::PlatformAdmin
            && invite::count_pending(&mut tx).await? >= self.config.max_pending_invites
        {
            return Err(Problem::new(ProblemKind::TooManyInvites)
                .detail(format!("The tenant has {} pending invites.", self.config.max_pending_invites)));
        }
        let invite = tx.invite(invitation).await?;
        tx.commit().await?;
        Ok(invite)
    }

    /// Returns a page of the invites of the tenant, oldest first.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_invites(
        &self,
        tenant_id: &TenantId,
        status: Option<InviteStatus>,
        paging: &Paging<InviteId>,
    ) -> Result<Page<InviteBody>, Problem> {
        let mut tx = self.begin(tenant_id, Actor::Anonymous).await?;
        let invites = invite::list(&mut tx, status, paging.after, paging.rows()).await?;
        // The platform administrator can name a tenant that does not exist.
        if invites.is_empty() && !tenant::exists(&mut tx).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let invites = tx.with_mails(invites).await?;
        Ok(paging.page(invites, |invite: &InviteBody| invite.invite_id))
    }

    /// Gives a pending invite a new term and a new token. A mailed token replaces the previous one when the mail server has
    /// accepted the mail.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn resend_invite(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        rights: InviteRights,
        invite_id: InviteId,
        delivery: Delivery,
    ) -> Result<InviteBody, Problem> {
        self.count_invite(tenant_id, actor).await?;
        let mut tx = self.begin(tenant_id, actor).await?;
        let found = invite::find_for_update(&mut tx, invite_id).await?.ok_or(ProblemKind::NotFound)?;
        match found.state {
            InviteState::Accepted { .. } => return Err(accepted()),
            InviteState::Expired { .. } | InviteState::Revoked { .. } => return Err(not_pending()),
            // A caller that cannot grant a role must not get a token that grants it.
            InviteState::Pending(_) => rights.require_grant(found.role)?,
        }
        let resent = tx.resend(found, delivery).await?;
        tx.commit().await?;
        Ok(resent)
    }

    /// Revokes a pending invite and deletes its user. A repeated call succeeds. An accepted invite cannot be revoked.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn revoke_invite(
        &self,
        tenant_id: &TenantId,
        actor: Actor,
        rights: InviteRights,
        invite_id: InviteId,
    ) -> Result<(), Problem> {
        let mut tx = self.begin(tenant_id, actor).await?;
        let found = invite::find_for_update(&mut tx, invite_id).await?.ok_or(ProblemKind::NotFound)?;
        rights.require_revoke(found.role)?;
        if let InviteState::Accepted { .. } = found.state {
            return Err(accepted());
        }
        let revoked = found.revoke(tx.now());
        if !invite::save(&mut tx, &revoked).await? {
            return Ok(());
        }
        user::delete_invited(&mut tx, revoked.user_id).await?;
        let event = AuditEvent::new(EventName::AuthnTokenRevoked).about("invite").invite(invite_id);
        tx.audit(event.always_recorded());
        Ok(tx.commit().await?)
    }

    /// Counts a request that invites. The platform administrator is exempt, and can help a tenant that has used up its limit.
    async fn count_invite(&self, tenant_id: &TenantId, actor: Actor) -> Result<(), Problem> {
        if actor == Actor::PlatformAdmin {
            return Ok(());
        }
        Ok(self.limiter.count(&self.config.rate_limits.invite, tenant_id.as_str()).await?)
    }

    /// Deletes the users of expired invites after a day, and settled invites after their retention, of all tenants.
    pub(crate) async fn purge_invites(&self, limit: i64) -> Result<(), Error> {
        let now = self.clock.now();
        let (expired_before, settled_before) = (now - KEEP_EXPIRED, now - self.config.invite_retention);
        while invite::delete_before(&self.database, expired_before, settled_before, limit).await? == limit {}
        Ok(())
    }

    /// Returns the invite of a token that can be accepted now. Does not use up the token.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn inspect_invite(
        &self,
        raw_token: &str,
        address: IpAddr,
    ) -> Result<InspectedInvite, Problem> {
        let (digest, invite_id, tenant_id) = self.find_invite(raw_token, address).await?;
        // Never committed.
        let mut tx = self.begin(&tenant_id, Actor::Anonymous).await?;
        let invite = tx.accept(invite_id, &digest).await?;
        let tenant = tenant::find(&mut tx).await?.ok_or(ProblemKind::TokenInvalid)?;
        Ok(InspectedInvite {
            tenant_id: tenant.tenant_id,
            tenant_name: tenant.display_name,
            email: invite.email,
            role: invite.role,
            invited_by: invite::find_inviter(&mut tx, invite_id).await?,
            expires_at: invite.expires_at,
            password_min_length: self.policy.for_tenant(tenant.password_min_length).min_length,
        })
    }

    /// Returns the digest of an invite token, the id of the invite, and its tenant.
    async fn find_invite(
        &self,
        raw_token: &str,
        address: IpAddr,
    ) -> Result<(TokenDigest, InviteId, TenantId), Problem> {
        let find = |digest| invite::find_by_digest(&self.database, digest);
        self.find_by_token(TokenKind::Invite, raw_token, address, find).await
    }

    /// Accepts an invite. The token is checked first, then the password; only then the password is hashed. The transaction that
    /// writes the password consumes the token.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn accept_invite(
        &self,
        raw_token: &str,
        raw_password: &str,
        address: IpAddr,
    ) -> Result<AcceptedInvite, Problem> {
        let (digest, invite_id, tenant_id) = self.find_invite(raw_token, address).await?;
        let mut tx = self.begin(&tenant_id, Actor::Anonymous).await?;
        let accepted = tx.accept(invite_id, &digest).await?;
        // Hashing takes longer than everything else, so it does not hold a connection.
        drop(tx);
        let password =
            self.check_new_password(raw_password, &accepted.email_key, &tenant_id, "/password").await?;
        let account = AccountRef::Email(&tenant_id, &accepted.email_key);
        let password_digest = self.hash(password, address, account).await?;

        let mut tx = self.begin(&tenant_id, Actor::User { user_id: accepted.user_id }).await?;
        let accepted = tx.accept(invite_id, &digest).await?;
        let Invite { user_id, role, .. } = accepted;
        let consumed = invite::save(&mut tx, &accepted).await?
            && user::mark_active(&mut tx, user_id, role, &password_digest).await?;
        if !consumed {
            return Err(ProblemKind::TokenInvalid.into());
        }
        tx.delete_failures(&accepted.email_key).await?;
        let event = AuditEvent::new(EventName::UserCreated).about(role.as_str()).user(user_id);
        let event = event.invite(invite_id).credential(&digest);
        tx.audit(AuditEvent { email: Some(accepted.email.clone()), ..event });
        tx.send(&Message::PushUserStatus { user_id });
        tx.commit().await?;
        tracing::info!(%tenant_id, %user_id, "invite accepted");
        Ok(AcceptedInvite { user_id, tenant_id, email: accepted.email, role })
    }
}

impl Work<'_> {
    /// Invites a person, or an invited user again after the previous invite is settled.
    pub(super) async fn invite(&mut self, invitation: &Invitation) -> Result<InviteBody, Problem> {
        let Invitation { email, role, delivery } = invitation;
        // Before the row of the invited user, in the order of a change of role.
        let admins = if *role == Role::Admin { user::lock_oldest_admins(self).await? } else { Vec::new() };
        let token = self.invite_token(*delivery)?;
        // Locks the invite before the user, like every other transaction.
        invite::mark_expired(self, email.key()).await?;
        let user_id = match user::find_by_email_for_update(self, email.key()).await? {
            Some(user) if user.status != UserStatus::Invited => return Err(exists(user.status)),
            Some(user) => {
                user::mark_reinvited(self, user.user_id, email, *role).await?;
                user.user_id
            }
            None => {
                self.require_user_limit().await?;
                let user_id = UserId::generate();
                let inserted = user::insert_invited(self, user_id, email, *role).await;
                inserted.map_err(pending_or_failed)?;
                user_id
            }
        };
        let invite = Invite {
            id: InviteId::generate(),
            user_id,
            email: email.typed().to_owned(),
            email_key: email.key().clone(),
            role: *role,
            created_at: self.now(),
            expires_at: self.now() + self.app.config.invite_ttl,
            mailed_at: None,
            state: InviteState::Pending(token.iter().map(RawToken::digest).collect()),
        };
        invite::insert(self, &invite).await.map_err(pending_or_failed)?;
        if *delivery == Delivery::Email {
            self.mail_invite(&invite).await?;
        }
        let event = AuditEvent::new(EventName::AuthnTokenCreated).about("invite").invite(invite.id);
        self.audit(AuditEvent { email: Some(invite.email.clone()), ..event.user(user_id) });
        self.notify_admins(&admins, AdminChange::Invited, user_id).await?;
        Ok(written(invite, token.as_ref()))
    }

    /// Gives a pending invite a new term and a new token.
    pub(super) async fn resend(&mut self, found: Invite, delivery: Delivery) -> Result<InviteBody, Problem> {
        let token = self.invite_token(delivery)?;
        let now = self.now();
        let digest = token.as_ref().map(RawToken::digest);
        let resent = found.resend(digest, now + self.app.config.invite_ttl, now).ok_or_else(not_pending)?;
        invite::save(self, &resent).await?;
        self.audit(AuditEvent::new(EventName::AuthnTokenCreated).about("invite").invite(resent.id));
        if delivery == Delivery::Email {
            self.mail_invite(&resent).await?;
        }
        Ok(written(resent, token.as_ref()))
    }

    /// Requires that the tenant can have another user. Requests at the same time can exceed the maximum by their number.
    async fn require_user_limit(&mut self) -> Result<(), Problem> {
        let max = self.app.config.max_users;
        if self.actor() == Actor::PlatformAdmin || user::count(self, max).await? < max {
            return Ok(());
        }
        Err(Problem::new(ProblemKind::TooManyUsers).detail(format!("The tenant has {max} users.")))
    }

    /// Returns the token for the response; `None` if it is mailed.
    fn invite_token(&self, delivery: Delivery) -> Result<Option<RawToken>, Problem> {
        match delivery {
            Delivery::Response => Ok(Some(RawToken::generate(TokenKind::Invite, &*self.app.entropy))),
            Delivery::Email if self.app.can_mail => Ok(None),
            Delivery::Email => Err(ProblemKind::MailUnavailable.into()),
        }
    }

    /// Returns the invite, accepted with its token, if the tenant is active.
    async fn accept(&mut self, invite_id: InviteId, digest: &TokenDigest) -> Result<Invite, Problem> {
        let tenant = tenant::find(self).await?;
        let found = invite::find_for_update(self, invite_id).await?;
        let is_active = tenant.is_some_and(|tenant| tenant.status == TenantStatus::Active);
        let accepted = found.filter(|_| is_active).and_then(|invite| invite.accept(digest, self.now()));
        Ok(accepted.ok_or(ProblemKind::TokenInvalid)?)
    }
}

/// If two administrators invite a person at the same time, the second request violates a unique index.
fn pending_or_failed(error: Error) -> Problem {
    if error.violates(user::EMAIL_KEY) || error.violates(invite::PENDING_KEY) {
        ProblemKind::InvitePending.into()
    } else if error.violates(user::EMAIL_SKELETON_KEY) {
        ProblemKind::EmailSimilar.into()
    } else {
        error.into()
    }
}

/// The problem of an API key that is used for the invite of an administrator.
fn members_only() -> Problem {
    let detail = "An API key can invite members only. Invites of administrators require the session of an administrator.";
    Problem::new(ProblemKind::Forbidden).detail(detail)
}

/// The problem of an invite for the address of a user.
fn exists(status: UserStatus) -> Problem {
    let detail = match status {
        UserStatus::Disabled => {
            "The user is disabled and cannot log in. Enable the user instead of sending an invite."
        }
        UserStatus::Active | UserStatus::Invited => {
            "No invite is needed: the user can log in or reset the password."
        }
    };
    Problem::new(ProblemKind::UserExists).detail(detail)
}

/// The problem of a change of an accepted invite.
fn accepted() -> Problem {
    let detail = "The invite was accepted, so it cannot be sent again or revoked. To withdraw access, disable or delete the user.";
    Problem::new(ProblemKind::UserExists).detail(detail)
}

fn not_pending() -> Problem {
    Problem::new(ProblemKind::NotFound).detail("The invite is expired or revoked. Invite the person again.")
}
