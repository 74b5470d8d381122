//! Hands mails over, by whichever route the configuration names.

use std::sync::Arc;

use database::outbox::DeliveryError;
use service::{Clock, chain};
use uuid::Uuid;

use crate::mail::{Mail, MailSettings, Route, Stamp, folder, message};

/// Sends mails.
#[derive(Clone)]
pub(crate) struct Mailer {
    pub(crate) settings: MailSettings,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Mailer {
    /// Hands a mail over; `mail_id` names it.
    pub(crate) async fn send(&self, mail_id: Uuid, mail: &Mail) -> Result<(), DeliveryError> {
        let stamp = Stamp { mail_id, date: self.clock.now() };
        let message = message(&self.settings.from, mail, stamp)
            .map_err(|error| DeliveryError::Permanent(chain(&error)))?;
        match &self.settings.route {
            None => Err(DeliveryError::Transient("no mail can be sent".to_owned())),
            Some(Route::Smtp(smtp)) => smtp.send(&message).await.map_err(|error| {
                let text = error.to_string();
                if error.is_final() { DeliveryError::Permanent(text) } else { DeliveryError::Transient(text) }
            }),
            Some(Route::Folder(directory)) => {
                let name = format!("{}-{mail_id}.eml", stamp.date.format("%Y%m%dT%H%M%S%6f"));
                let stored = folder::store(directory.clone(), name, message.formatted()).await;
                stored
                    .map_err(|error| DeliveryError::Transient(format!("the mail cannot be written: {error}")))
            }
        }
    }
}
