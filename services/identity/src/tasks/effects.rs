//! Delivery of outbox messages: mails, and account status for the session service.

use database::outbox::{Deliver, DeliveryError, OutboxMessage};
use service::chain;
use url::Url;

use super::mailer::Mailer;
use crate::app::App;
use crate::domain::email::EmailKey;
use crate::message::Message;

/// Delivers the messages of this service.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) app: App,
    pub(crate) public_url: Url,
    pub(crate) mailer: Mailer,
}

impl Deliver for Effects {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        let (app, url, tenant_id) = (&self.app, &self.public_url, &row.tenant_id);
        // `None`: there is nothing to send any more.
        let mail = match row.decode()? {
            Message::PushUserStatus { user_id } => {
                return app.tell_subject(tenant_id, user_id).await.map_err(|error| transient(&error));
            }
            Message::PushTenantStatus => {
                return app.tell_tenant(tenant_id).await.map_err(|error| transient(&error));
            }
            Message::MailInvite { invite_id, expires_at } => app
                .compose_invite(url, tenant_id, invite_id, expires_at)
                .await
                .map_err(|error| transient(&error))?,
            Message::MailReset { email_key } => app
                .compose_reset(url, tenant_id, row.outbox_id, &EmailKey::from_stored(email_key))
                .await
                .map_err(|error| transient(&error))?,
            Message::MailNotice { user_id, changed_at } => {
                app.compose_notice(tenant_id, user_id, changed_at).await.map_err(|error| transient(&error))?
            }
        };
        match mail {
            Some(mail) => self.mailer.send(row.outbox_id, &mail).await,
            None => Ok(()),
        }
    }
}

fn transient(error: &dyn std::error::Error) -> DeliveryError {
    DeliveryError::Transient(chain(error))
}
