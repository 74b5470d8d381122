//! Works the outbox off: mails, and what session is told.

use chrono::{DateTime, Utc};
use database::outbox::{Deliver, DeliveryError, OutboxMessage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use service::chain;
use tenancy::{InviteId, UserId};
use url::Url;

use super::mailer::Mailer;
use crate::app::App;
use crate::app::mail_invite::MAIL_INVITE;
use crate::app::mail_notice::MAIL_NOTICE;
use crate::app::reset_password::MAIL_RESET;
use crate::app::standing::{TELL_SUBJECT, TELL_TENANT};
use crate::domain::email::EmailKey;
use crate::mail::Mail;

/// The mails: one that cannot be sent is given up in the end.
pub(crate) const MAILS: &[&str] = &[MAIL_INVITE, MAIL_RESET, MAIL_NOTICE];
/// What session is told: never given up, since somebody who was put out would stay in.
pub(crate) const TELLS: &[&str] = &[TELL_SUBJECT, TELL_TENANT];

/// Brings about what outbox rows ask for.
#[derive(Clone)]
pub(crate) struct Effects {
    pub(crate) app: App,
    pub(crate) public_url: Url,
    pub(crate) mailer: Mailer,
}

#[derive(Deserialize)]
struct OfInvite {
    invite_id: InviteId,
    expires_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct OfUser {
    user_id: UserId,
}

#[derive(Deserialize)]
struct OfReset {
    email_key: String,
}

#[derive(Deserialize)]
struct OfNotice {
    user_id: UserId,
    changed_at: DateTime<Utc>,
}

impl Deliver for Effects {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        match row.kind.as_str() {
            TELL_SUBJECT => {
                let OfUser { user_id } = payload(row)?;
                self.app.tell_subject(&row.tenant_id, user_id).await.map_err(|error| later(&error))
            }
            TELL_TENANT => self.app.tell_tenant(&row.tenant_id).await.map_err(|error| later(&error)),
            _ => match self.compose(row).await? {
                Some(mail) => self.mailer.send(row.outbox_id, &mail).await,
                None => Ok(()),
            },
        }
    }
}

impl Effects {
    /// The mail that a row asks for; `None` when there is nothing to send any more.
    async fn compose(&self, row: &OutboxMessage) -> Result<Option<Mail>, DeliveryError> {
        let (app, url, tenant_id) = (&self.app, &self.public_url, &row.tenant_id);
        match row.kind.as_str() {
            MAIL_INVITE => {
                let OfInvite { invite_id, expires_at } = payload(row)?;
                let composed = app.compose_invite(url, tenant_id, invite_id, expires_at).await;
                composed.map_err(|error| later(&error))
            }
            MAIL_RESET => {
                let OfReset { email_key } = payload(row)?;
                let email = EmailKey::from_stored(email_key);
                let composed = app.compose_reset(url, tenant_id, row.outbox_id, &email).await;
                composed.map_err(|error| later(&error))
            }
            MAIL_NOTICE => {
                let OfNotice { user_id, changed_at } = payload(row)?;
                let composed = app.compose_notice(tenant_id, user_id, changed_at).await;
                composed.map_err(|error| later(&error))
            }
            kind => Err(DeliveryError::Permanent(format!("the kind {kind} is not known here"))),
        }
    }
}

fn payload<T: DeserializeOwned>(row: &OutboxMessage) -> Result<T, DeliveryError> {
    serde_json::from_value(row.payload.clone()).map_err(|error| DeliveryError::Permanent(error.to_string()))
}

fn later(error: &dyn std::error::Error) -> DeliveryError {
    DeliveryError::Transient(chain(error))
}
