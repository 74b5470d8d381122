//! Background tasks: delivery of outbox messages (mails, and account status for the session service), and the purge of
//! expired rows.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use database::outbox::{Deliver, DeliveryError, OutboxMessage};
use prometheus_client::metrics::gauge::Gauge;
use service::config::Live;
use service::{Clock, chain, files};
use tenancy::OutboxId;
use tokio::task::spawn_blocking;

use crate::app::App;
use crate::app::factor_rotation::FactorRotation;
use crate::domain::email::EmailKey;
use crate::mail::{Letterhead, Mail, MailDelivery, MailSettings, Stamp, message};
use crate::message::Message;
use crate::store::{api_key_report, login_attempt, user};

pub(crate) const PURGE_INTERVAL: Duration = Duration::from_mins(10);
/// Time between two counts of the Argon2 parameters.
const COSTS_INTERVAL: Duration = Duration::from_hours(1);
/// Time until a failed count is repeated.
const COSTS_RETRY: Duration = Duration::from_secs(10);
/// Time between two counts of the users.
pub(crate) const USERS_INTERVAL: Duration = Duration::from_mins(1);
/// Small, so that a login does not wait long for a row lock.
const PURGE_BATCH: i64 = 500;

/// Delivers the messages of this service.
#[derive(Clone)]
pub(crate) struct OutboxDelivery {
    pub(crate) app: App,
    pub(crate) head: Arc<Letterhead>,
    pub(crate) mail: MailSettings,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Deliver for OutboxDelivery {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        let (app, head, tenant_id) = (&self.app, &self.head, &row.tenant_id);
        let mail = match row.decode()? {
            Message::PushUserStatus { user_id } => {
                return app.push_user_status(tenant_id, user_id).await.map_err(transient);
            }
            Message::PushTenantStatus => return app.push_tenant_status(tenant_id).await.map_err(transient),
            Message::MailInvite { invite_id, expires_at, .. } => {
                app.compose_invite(head, tenant_id, invite_id, expires_at).await.map_err(transient)?
            }
            Message::MailReset { requested_at, .. }
                if self.clock.now() > requested_at + app.config.reset_ttl =>
            {
                tracing::warn!(%tenant_id, outbox_id = %row.outbox_id, "a password reset was not mailed in time");
                None
            }
            Message::MailReset { email_key, requested_at, ip } => {
                let (email, request) = (EmailKey::from_stored(email_key), (requested_at, ip));
                app.compose_reset(head, tenant_id, row.outbox_id, &email, request).await.map_err(transient)?
            }
            Message::MailNotice(notice) => {
                app.compose_notice(head, tenant_id, &notice).await.map_err(transient)?
            }
        };
        // Otherwise, there is nothing to send any more.
        let Some(mail) = mail else { return Ok(()) };
        self.send(row.outbox_id, &mail).await?;
        app.mail_accepted(tenant_id, mail.token).await.map_err(transient)
    }
}

impl OutboxDelivery {
    /// Sends a mail. `mail_id` is the id of its outbox message.
    async fn send(&self, mail_id: OutboxId, mail: &Mail) -> Result<(), DeliveryError> {
        let stamp = Stamp { mail_id, date: self.clock.now() };
        let message =
            message(&self.mail.from, mail, stamp).map_err(|error| DeliveryError::Permanent(chain(&error)))?;
        match &self.mail.delivery {
            None => Err(DeliveryError::Transient(
                "mail is not configured; set SVC_SMTP_URL or SVC_MAIL_DIR".to_owned(),
            )),
            Some(MailDelivery::Smtp(smtp)) => smtp.send(&message).await.map_err(|error| {
                let text = error.to_string();
                if error.is_permanent() {
                    DeliveryError::Permanent(text)
                } else {
                    DeliveryError::Transient(text)
                }
            }),
            Some(MailDelivery::Directory(directory)) => {
                let file = directory.join(format!("{}-{mail_id}.eml", stamp.date.format("%Y%m%dT%H%M%S%6f")));
                let bytes = message.formatted();
                let write = move || files::replace(&file, &bytes, 0o600);
                let written = spawn_blocking(write).await.map_err(io::Error::other);
                written.flatten().map_err(|error| {
                    DeliveryError::Transient(format!("failed to write the mail file: {error}"))
                })
            }
        }
    }
}

fn transient(error: impl std::error::Error + 'static) -> DeliveryError {
    DeliveryError::Transient(chain(&error))
}

/// Deletes expired login attempts, reports of API keys and invites, and the rows of deleted tenants.
pub(crate) async fn purge(app: App) {
    if let Err(error) = purge_once(&app).await {
        tracing::warn!(error = chain(&error), "failed to purge expired rows");
    }
}

/// Counts the Argon2 parameters of the stored passwords. Returns the time until they are counted again.
pub(crate) async fn load_password_costs(app: App) -> Duration {
    match user::count_password_costs(&app.database).await {
        Ok(costs) => {
            app.password_costs.send_replace(costs);
            COSTS_INTERVAL
        }
        Err(error) => {
            tracing::warn!(error = chain(&error), "failed to count the parameters of passwords");
            COSTS_RETRY
        }
    }
}

/// Updates the gauges of active users with and without a second factor. If the database is unavailable, they keep their values.
pub(crate) async fn count_users(app: App, gauges: [Gauge; 2]) {
    match user::count_active(&app.database).await {
        Ok(counts) => gauges.iter().zip(counts).for_each(|(gauge, count)| {
            gauge.set(count);
        }),
        Err(error) => tracing::debug!(error = chain(&error), "failed to count active users"),
    }
}

/// Encrypts the secrets of authenticator apps under the current key.
pub(crate) async fn rotate_factor_key(app: App, rotation: Arc<FactorRotation>) {
    let keys = app.config.factor_keys.as_ref().map(Live::get);
    if let Err(error) = rotation.run(keys.as_deref()).await {
        tracing::warn!(error = chain(&error), "failed to count the keys of authenticator apps");
    }
}

async fn purge_once(app: &App) -> Result<(), database::Error> {
    let now = app.clock.now();
    while login_attempt::delete_before(&app.database, now, PURGE_BATCH).await? == PURGE_BATCH {}
    while api_key_report::delete_before(&app.database, now, PURGE_BATCH).await? == PURGE_BATCH {}
    app.purge_invites(PURGE_BATCH).await?;
    app.erase_tenants().await
}
