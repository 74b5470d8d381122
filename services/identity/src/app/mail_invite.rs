//! Mail an invite. The outbox row names the invite, never a token: each try makes a token of its own, stores its digest,
//! and only then sends.

use chrono::{DateTime, Utc};
use contract::API_PREFIX;
use database::{Error, TenantTx};
use hashing::{RawToken, TokenKind};
use serde_json::json;
use tenancy::{InviteId, TenantId, TenantScope};
use url::Url;

use super::App;
use crate::store::invite;
use crate::tasks::mailer::Mail;

/// The kind of outbox row.
pub(crate) const MAIL_INVITE: &str = "mail_invite";

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
        self.outbox
            .write(
                tx,
                tenant_id,
                MAIL_INVITE,
                &json!({ "invite_id": invite_id, "expires_at": expires_at }),
                now,
            )
            .await
    }

    /// The mail of an invite that can still be accepted; `None` when there is nothing to send any more. `expires_at` names the
    /// term that is to be mailed: a late mail of an earlier one must not kill the token of a resent invite.
    pub(crate) async fn compose_invite(
        &self,
        public_url: &Url,
        tenant_id: &TenantId,
        invite_id: InviteId,
        expires_at: DateTime<Utc>,
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.database.tenant(&TenantScope::of_work(tenant_id.clone())).await?;
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
            subject: format!("You are invited to {}", pending.tenant_name),
            text: text(public_url, tenant_id, &pending.tenant_name, &token, pending.expires_at),
        }))
    }
}

fn text(
    public_url: &Url,
    tenant_id: &TenantId,
    name: &str,
    token: &RawToken,
    expires_at: DateTime<Utc>,
) -> String {
    let origin = public_url.as_str().trim_end_matches('/');
    let token = token.expose();
    let until = expires_at.format("%Y-%m-%d %H:%M UTC");
    format!(
        "You are invited to {name} (tenant {tenant_id}).\n\n\
         Open this link to accept and to choose a password:\n\n\
         {origin}{API_PREFIX}/pages/accept-invite#token={token}\n\n\
         or use the command line:\n\n\
         svc users accept-invite --base-url {origin} {token}\n\n\
         The invite can be used once, until {until}.\n\
         If you did not expect it, you can ignore this mail.\n"
    )
}
