//! Tell a person that their password was changed. The mail holds no token.

use chrono::{DateTime, Utc};
use database::{Error, TenantTx};
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::mail::{Letter, Mail};
use crate::message::Message;
use crate::store::user;

impl App {
    /// Has the notice mailed once the transaction commits; nothing where no mail can be sent.
    pub(super) async fn write_notice(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        user_id: UserId,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        if !self.can_mail {
            return Ok(());
        }
        let _ = tenant_id;
        tx.set_now(now);
        tx.send(&Message::MailNotice { user_id, changed_at: now });
        Ok(())
    }

    /// The notice; `None` when the user is gone.
    pub(crate) async fn compose_notice(
        &self,
        tenant_id: &TenantId,
        user_id: UserId,
        changed_at: DateTime<Utc>,
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(tenant_id.clone())).await?;
        let Some(user) = user::find(&mut tx, user_id).await? else { return Ok(None) };
        Ok(Some(Mail { to: user.email, letter: letter(tenant_id, changed_at), token: None }))
    }
}

fn letter(tenant_id: &TenantId, changed_at: DateTime<Utc>) -> Letter {
    let when = changed_at.format("%Y-%m-%d %H:%M UTC");
    Letter {
        subject: "Your password was changed".to_owned(),
        lead: vec![
            format!("The password of this address in tenant {tenant_id} was changed at {when}."),
            "Sessions that were made with the old one have ended.".to_owned(),
        ],
        action: None,
        closing: vec![
            "If it was not you, ask for a new password at once, and tell an administrator.".to_owned(),
        ],
    }
}
