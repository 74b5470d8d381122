//! Notices of new API keys, which session reports.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use contract::UserStatus;
use contract::internal::ApiKeyNotice;
use database::Error;
use tenancy::{Actor, TenantId, UserId};

use super::App;
use crate::mail::{Letterhead, Mail, Values};
use crate::message::Message;
use crate::store::recipient::{self, MailCount, MailLimit};
use crate::store::tenant;
use crate::store::user::{self, Admin};

/// Notices per administrator. An attacker with a session of an administrator cannot fill the mailboxes of the others. The first
/// keys are reported in any case, and the last notice announces the pause.
const NOTICE_MAILS: MailLimit = MailLimit { name: "api_key_recipient", per_hour: 10, per_tenant: true };
/// A key is reported once per hour, which is longer than session takes to repeat a report without a response.
const REPORTS: MailLimit = MailLimit { name: "api_key", per_hour: 1, per_tenant: false };

impl App {
    /// Sends the notice of a new key to the active administrators of its tenant, if mail is configured. A repeated report has no
    /// effect within an hour.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn announce_api_key(&self, notice: &ApiKeyNotice) -> Result<(), Error> {
        if !self.can_mail {
            return Ok(());
        }
        let mut tx = self.begin(&notice.tenant_id, Actor::System).await?;
        let report = self.limiter_keys.get().api_key(notice.key_id);
        if let MailCount::Limited { .. } = recipient::count_mail(&mut tx, &REPORTS, &report).await? {
            return Ok(());
        }
        for Admin { user_id, email } in user::lock_active_admins(&mut tx).await? {
            match tx.count_mail(&NOTICE_MAILS, &email).await? {
                MailCount::Allowed { paused_until } => {
                    let notice = notice.clone();
                    tx.send(&Message::MailApiKeyNotice { recipient: user_id, notice, paused_until });
                }
                MailCount::Limited { .. } => {
                    tracing::debug!(tenant_id = %notice.tenant_id, %user_id, "limit of notices reached");
                }
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
        paused_until: Option<DateTime<Utc>>,
    ) -> Result<Option<Mail>, Error> {
        let mut tx = self.begin(tenant_id, Actor::System).await?;
        let (tenant, to) = (tenant::find(&mut tx).await?, user::find(&mut tx, recipient).await?);
        let to = to.filter(|user| user.status == UserStatus::Active);
        let (Some(tenant), Some(to)) = (tenant, to) else { return Ok(None) };
        let creator = user::find(&mut tx, notice.created_by).await?;
        let creator = creator.map_or_else(|| notice.created_by.to_string(), |user| user.email);
        let values = Values::new(&to.email, &tenant, notice.created_at);
        let values = Values { changed_by: Some(&creator), paused_until, ..values };
        let letter = head.api_key_created(notice, &values);
        Ok(Some(Mail { to: to.email, letter, token: None }))
    }
}
