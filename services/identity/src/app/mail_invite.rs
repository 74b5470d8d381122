//! Mail an invite. The outbox row names the invite, never a token: each try makes a token of its own, stores its digest,
//! and only then sends.

use chrono::{DateTime, Utc};
use contract::{API_PREFIX, TenantStatus};
use database::{Error, TenantTx};
use hashing::{RawToken, TokenKind};
use tenancy::{InviteId, TenantId, TenantScope};
use url::Url;

use super::App;
use crate::mail::{Action, Letter, Mail, one_line, origin};
use crate::message::Message;
use crate::store::{invite, tenant};

/// Why there is no mail yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// It was suspended after the row was claimed; from now on the outbox holds the row back.
    #[error("the tenant is suspended")]
    Suspended,
    #[error(transparent)]
    Database(#[from] Error),
}

impl App {
    /// Has the invite mailed once the transaction commits.
    pub(super) async fn write_mail_of_invite(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        invite_id: InviteId,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let _ = tenant_id;
        tx.set_now(now);
        tx.send(&Message::MailInvite { invite_id, expires_at });
        Ok(())
    }

    /// The mail of an invite that can still be accepted; `None` when there is nothing to send any more. `expires_at` names the
    /// term that is to be mailed: a late mail of an earlier one must not kill the token of a resent invite.
    pub(crate) async fn compose_invite(
        &self,
        public_url: &Url,
        tenant_id: &TenantId,
        invite_id: InviteId,
        expires_at: DateTime<Utc>,
    ) -> Result<Option<Mail>, ComposeError> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(tenant_id.clone())).await?;
        let tenant = tenant::find(&mut tx, tenant_id).await?;
        if tenant.is_some_and(|tenant| tenant.status == TenantStatus::Suspended) {
            return Err(ComposeError::Suspended);
        }
        let Some(pending) = invite::find_pending(&mut tx, invite_id, self.clock.now()).await? else {
            return Ok(None);
        };
        if pending.expires_at != expires_at {
            return Ok(None);
        }
        let token = RawToken::generate(TokenKind::Invite, &*self.entropy);
        invite::set_digest(&mut tx, invite_id, token.digest()).await?;
        tx.commit().await?;
        Ok(Some(Mail {
            to: pending.email,
            letter: letter(public_url, tenant_id, &pending.tenant_name, &token, pending.expires_at),
            token: Some(token.digest()),
        }))
    }
}

fn letter(
    public_url: &Url,
    tenant_id: &TenantId,
    tenant_name: &str,
    token: &RawToken,
    expires_at: DateTime<Utc>,
) -> Letter {
    let (origin, token, name) = (origin(public_url), token.expose(), one_line(tenant_name));
    let until = expires_at.format("%Y-%m-%d %H:%M UTC");
    Letter {
        subject: format!("You are invited to {name}"),
        lead: vec![format!("You are invited to {name} (tenant {tenant_id}).")],
        action: Some(Action {
            purpose: "to accept and to choose a password".to_owned(),
            label: "Accept the invite".to_owned(),
            link: format!("{origin}{API_PREFIX}/pages/accept-invite#token={token}"),
            command: format!("svc users accept-invite --base-url {origin} {token}"),
        }),
        closing: vec![
            format!("The invite can be used once, until {until}."),
            "If you did not expect it, you can ignore this mail.".to_owned(),
        ],
    }
}
