//! Sends mails by the configured delivery method.

use std::sync::Arc;

use database::outbox::DeliveryError;
use service::{Clock, chain};
use uuid::Uuid;

use crate::mail::{Delivery, Mail, MailSettings, Stamp, message, write_file};

/// Sends mails.
#[derive(Clone)]
pub(crate) struct Mailer {
    pub(crate) settings: MailSettings,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Mailer {
    /// Sends a mail. `mail_id` is the id of its outbox message.
    pub(crate) async fn send(&self, mail_id: Uuid, mail: &Mail) -> Result<(), DeliveryError> {
        let stamp = Stamp { mail_id, date: self.clock.now() };
        let message = message(&self.settings.from, mail, stamp)
            .map_err(|error| DeliveryError::Permanent(chain(&error)))?;
        match &self.settings.delivery {
            None => Err(DeliveryError::Transient("mail is not configured".to_owned())),
            Some(Delivery::Smtp(smtp)) => smtp.send(&message).await.map_err(|error| {
                let text = error.to_string();
                if error.is_permanent() {
                    DeliveryError::Permanent(text)
                } else {
                    DeliveryError::Transient(text)
                }
            }),
            Some(Delivery::Directory(directory)) => {
                let name = format!("{}-{mail_id}.eml", stamp.date.format("%Y%m%dT%H%M%S%6f"));
                let stored = write_file(directory.clone(), name, message.formatted()).await;
                stored.map_err(|error| {
                    DeliveryError::Transient(format!(
                        "failed to write the mail file: {error}
"
                    ))
                })
            }
        }
    }
}
