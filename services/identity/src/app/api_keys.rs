//! Notices of new API keys, which session reports.

use std::num::NonZeroU32;
use std::sync::Arc;

use contract::UserStatus;
use contract::internal::ApiKeyNotice;
use database::Error;
use tenancy::{Actor, TenantId, UserId};

use super::{App, MailLimit};
use crate::mail::{Letterhead, Mail, Values};
use crate::message::Message;
use crate::store::user::{self, Admin};
use crate::store::{api_key_report, tenant};

/// Notices per administrator. An attacker with a session of an administrator cannot fill the mailboxes of the others. The first
/// keys are reported in any case.
const NOTICE_MAILS: MailLimit =
    MailLimit::per_hour("api_key_recipient", NonZeroU32::new(10).unwrap()).per_tenant();

impl App {
    /// Sends the notice of a new key to the oldest active administrators of its tenant, if mail is configured. A repeated report has
    /// no effect.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn announce_api_key(&self, notice: &ApiKeyNotice) -> Result<(), Error> {
        if !self.can_mail {
            return Ok(());
        }
        let mut tx = self.begin(&notice.tenant_id, Actor::System).await?;
        if !api_key_report::insert(&mut tx, notice.key_id).await? {
            return Ok(());
        }
        for Admin { user_id, email } in user::lock_oldest_admins(&mut tx).await? {
            if tx.may_mail(&NOTICE_MAILS, &email).await? {
                tx.send(&Message::MailApiKeyNotice { recipient: user_id, notice: notice.clone() });
            } else {
                tracing::debug!(tenant_id = %notice.tenant_id, %user_id, "limit of notices reached");
            }
        }
        tx.commit().await
    }

    /// Composes the notice of a new key to an administrator; `None` if the recipient is no longer active.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn compose_api_key_notice(
        &self,
        head: &Arc<Letterhead>,
        tenant_id: &TenantId,
        recipient: UserId,
        notice: &ApiKeyNotice,
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let (tenant, to) = (tenant::find(&mut tx).await?, user::find(&mut tx, recipient).await?);
        let to = to.filter(|user| user.status == UserStatus::Active);
        let (Some(tenant), Some(to)) = (tenant, to) else { return Ok(None) };
        let creator = user::find(&mut tx, notice.created_by).await?;
        let creator = creator.map_or_else(|| notice.created_by.to_string(), |user| user.email);
        let values = Values::new(&to.email, &tenant, notice.created_at);
        let values = Values { changed_by: Some(&creator), ..values };
        let letter = head.api_key_created(notice, &values);
        Ok(Some(Mail { to: to.email, letter, token: None }))
    }
}
