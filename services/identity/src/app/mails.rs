//! The mails of invites and notices, what the mail server has accepted, and the mails that it has not.

use std::num::NonZeroU32;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use contract::identity::{Invite as InviteBody, InviteMail, MailStatus, UndeliveredMail};
use contract::{Page, Secret, TenantStatus, UserStatus};
use database::Error;
use hashing::{RawToken, TokenKind};
use ratelimit::RateLimitError;
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, InviteId, OutboxId, TenantId};

use super::{App, MailLimit, Work};
use crate::domain::email::is_plain;
use crate::domain::invite::Invite;
use crate::mail::{Letterhead, Mail, MailToken, Purpose, Values, reason_for_tenant};
use crate::message::{Message, Notice};
use crate::store::mail::UndeliveredInvite;
use crate::store::{invite, mail, tenant, user};

/// Mails of invites per recipient, so that tenants cannot fill a mailbox.
const INVITE_MAILS: MailLimit = MailLimit::per_hour("invite_recipient", NonZeroU32::new(3).unwrap());

/// Why the mail of an invite cannot be composed now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// The tenant was suspended after the message was claimed. The outbox holds the message until the tenant is resumed.
    #[error("the tenant is suspended")]
    Suspended,
    #[error(transparent)]
    Database(#[from] Error),
}

impl App {
    /// Composes the mail of an invite with a new token; `None` if the invite is not pending or has another term. Earlier tokens stay
    /// valid until the mail server has accepted the mail.
    ///
    /// # Errors
    /// See [`ComposeError`].
    #[tracing::instrument(skip_all)]
    pub(crate) async fn compose_invite(
        &self,
        head: &Arc<Letterhead>,
        tenant_id: &TenantId,
        invite_id: InviteId,
        term: DateTime<Utc>,
    ) -> Result<Option<Mail>, ComposeError> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let Some(tenant) = tenant::find(&mut tx).await? else { return Ok(None) };
        if tenant.status == TenantStatus::Suspended {
            return Err(ComposeError::Suspended);
        }
        let Some(found) = invite::find_for_update(&mut tx, invite_id).await? else { return Ok(None) };
        let token = RawToken::generate(TokenKind::Invite, &*self.entropy);
        let Some(mailed) = found.mail(token.digest(), term, tx.now()) else { return Ok(None) };
        invite::save(&mut tx, &mailed).await?;
        // The mail is for a person who does not know the tenant yet, so it must not contain a link of the inviter's choice.
        let inviter = invite::find_inviter(&mut tx, invite_id).await?.filter(|inviter| is_plain(inviter));
        tx.commit().await?;
        let values = Values::new(&mailed.email, &tenant, mailed.expires_at);
        let letter = head.invite(&Values { inviter: inviter.as_deref(), ..values }, &token);
        let token = MailToken { digest: token.digest(), purpose: Purpose::Invite(invite_id, term) };
        Ok(Some(Mail { to: mailed.email, letter, token: Some(token) }))
    }

    /// Composes a notice; `None` if its recipient does not exist, or is not active and the notice is for administrators.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn compose_notice(
        &self,
        head: &Arc<Letterhead>,
        tenant_id: &TenantId,
        notice: &Notice,
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let (tenant, to) = (tenant::find(&mut tx).await?, user::find(&mut tx, notice.recipient()).await?);
        let (Some(tenant), Some(to)) = (tenant, to) else { return Ok(None) };
        let is_to_admin = matches!(notice, Notice::Admin { .. } | Notice::ApiKey { .. });
        if is_to_admin && to.status != UserStatus::Active {
            return Ok(None);
        }
        let values = |changed_at: DateTime<Utc>| Values::new(&to.email, &tenant, changed_at);
        let letter = match notice {
            Notice::Password { changed_at, .. } => head.password_changed(&values(*changed_at)),
            Notice::Factor { change, changed_at, .. } => head.factor_changed(*change, &values(*changed_at)),
            Notice::Admin { recipient, notice } => {
                let Some(about) = user::find(&mut tx, notice.user_id).await? else { return Ok(None) };
                let by = match notice.changed_by {
                    Some(user_id) => user::find(&mut tx, user_id).await?.map(|user| user.email),
                    None => None,
                };
                let values =
                    Values { account: &about.email, changed_by: by.as_deref(), ..values(notice.changed_at) };
                head.admin_notice(notice.change, *recipient == notice.user_id, &values)
            }
            Notice::ApiKey { notice, .. } => {
                let creator = user::find(&mut tx, notice.created_by).await?;
                let creator = creator.map_or_else(|| notice.created_by.to_string(), |user| user.email);
                let values = Values { changed_by: Some(&creator), ..values(notice.created_at) };
                head.api_key_created(notice, &values)
            }
        };
        Ok(Some(Mail { to: to.email, letter, token: None }))
    }

    /// The mail server has accepted a mail: its token replaces older ones.
    pub(crate) async fn mail_accepted(
        &self,
        tenant_id: &TenantId,
        token: Option<MailToken>,
    ) -> Result<(), Error> {
        match token {
            None => Ok(()),
            Some(MailToken { purpose: Purpose::Reset(reset_id), .. }) => {
                self.reset_mailed(tenant_id, reset_id).await
            }
            Some(MailToken { purpose: Purpose::Invite(invite_id, term), digest }) => {
                let mut tx = self.begin(tenant_id, Actor::System).await?;
                let found = invite::find_for_update(&mut tx, invite_id).await?;
                let now = tx.now();
                if let Some(mailed) = found.and_then(|invite| invite.mailed(&digest, term, now)) {
                    invite::save(&mut tx, &mailed).await?;
                }
                tx.commit().await
            }
        }
    }

    /// Returns a page of the mails of all tenants that the mail server has not accepted, oldest first.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_mails(
        &self,
        paging: &Paging<OutboxId>,
    ) -> Result<Page<UndeliveredMail>, Problem> {
        let mails = mail::list(&self.database, paging.after, paging.rows()).await?;
        Ok(paging.page(mails, |mail| mail.mail_id))
    }
}

impl Work<'_> {
    /// Sends the mail of an invite, unless its recipient already has the maximum.
    pub(super) async fn mail_invite(&mut self, invite: &Invite) -> Result<(), Problem> {
        match self.count_mail(&INVITE_MAILS, &invite.email_key).await {
            Ok(()) => {}
            Err(error @ RateLimitError::Limited { .. }) => {
                let text = "Too many invites were mailed to this address, by this tenant or others. Wait, or get the token in \
                    the response.";
                return Err(Problem::from(error).detail(text));
            }
            Err(error) => return Err(error.into()),
        }
        let (invite_id, user_id, expires_at) = (invite.id, invite.user_id, invite.expires_at);
        self.send(&Message::MailInvite { invite_id, user_id, expires_at });
        Ok(())
    }

    /// The invites as the API returns them.
    pub(super) async fn with_mails(&mut self, invites: Vec<Invite>) -> Result<Vec<InviteBody>, Error> {
        let ids: Vec<_> = invites.iter().map(|invite| invite.id).collect();
        let waiting = mail::list_undelivered_invites(self, &ids).await?;
        let with_mail = |invite: Invite| {
            let of_term = |mail: &&UndeliveredInvite| {
                (mail.invite_id, mail.expires_at) == (invite.id, invite.expires_at)
            };
            let mail = match waiting.iter().find(of_term) {
                _ if invite.mailed_at.is_some() => Some(InviteMail { status: MailStatus::Sent, error: None }),
                Some(mail) => Some(InviteMail {
                    status: if mail.is_failed { MailStatus::Failed } else { MailStatus::Waiting },
                    error: mail.last_error.as_deref().map(reason_for_tenant),
                }),
                None => None,
            };
            to_contract(invite, mail, None)
        };
        Ok(invites.into_iter().map(with_mail).collect())
    }
}

/// An invite that was created or resent. Without a token, its mail waits.
pub(super) fn written(invite: Invite, token: Option<&RawToken>) -> InviteBody {
    let mail = token.is_none().then_some(InviteMail { status: MailStatus::Waiting, error: None });
    to_contract(invite, mail, token)
}

fn to_contract(invite: Invite, mail: Option<InviteMail>, token: Option<&RawToken>) -> InviteBody {
    InviteBody {
        invite_id: invite.id,
        email: invite.email,
        role: invite.role,
        status: invite.state.status(),
        expires_at: invite.expires_at,
        created_at: invite.created_at,
        mail,
        token: token.map(|token| Secret::new(token.expose())),
    }
}
