//! Notices of new API keys, which session reports.

use std::num::NonZeroU32;

use contract::internal::ApiKeyNotice;
use database::Error;
use tenancy::Actor;

use super::{App, MailLimit};
use crate::message::{Message, Notice};
use crate::store::api_key_report;
use crate::store::user::{self, Admin};

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
                let notice = Notice::ApiKey { recipient: user_id, notice: notice.clone() };
                tx.send(&Message::MailNotice(notice));
            } else {
                tracing::debug!(tenant_id = %notice.tenant_id, %user_id, "limit of notices reached");
            }
        }
        tx.commit().await
    }
}
