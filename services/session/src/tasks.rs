//! Background tasks: report API keys to the identity service, record expired sessions, delete inactive rows, count active sessions.

use std::time::Duration;

use authn::InternalClient;
use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::api_key_notice_path;
use database::Database;
use database::outbox::{Deliver, DeliveryError, OutboxMessage};
use prometheus_client::metrics::gauge::Gauge;
use service::{Tasks, chain};

use crate::app::App;
use crate::app::expiry::record_expired_sessions;
use crate::message::Message;
use crate::store::{deletion, session};

const PURGE_INTERVAL: Duration = Duration::from_mins(1);
/// How long inactive rows are kept, so that an administrator can inspect them.
const RETENTION: TimeDelta = TimeDelta::hours(24);
/// A count reads one index entry per active session.
const GAUGE_INTERVAL: Duration = Duration::from_secs(30);
/// Rows per statement. Small, so that requests do not wait for locks and the relay sees audit events soon.
const BATCH: i32 = 500;

/// Delivers the messages for the identity service.
pub(crate) struct Reports(pub(crate) InternalClient);

impl Deliver for Reports {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), DeliveryError> {
        let Message::ReportApiKey { notice } = message.decode()?;
        let reported = self.0.put(&api_key_notice_path(notice.key_id), &notice).await;
        reported.map_err(|error| DeliveryError::Transient(chain(&error)))
    }
}

/// Starts the periodic tasks.
pub(crate) fn start(app: &App, active_sessions: Gauge, tasks: &Tasks) {
    let (purged, counted) = (app.clone(), app.clone());
    tasks.every("expiry", PURGE_INTERVAL, move || expire_and_purge(purged.clone()));
    tasks.every("active sessions", GAUGE_INTERVAL, move || {
        count_active_sessions(counted.clone(), active_sessions.clone())
    });
}

/// Records expired sessions, and deletes sessions, API keys, device grants and producers a day after they became inactive, and those of
/// deleted tenants.
async fn expire_and_purge(app: App) {
    let now = app.clock.now();
    if let Err(error) = record_expired_sessions(&app.database, now, BATCH).await {
        tracing::warn!(error = chain(&error), "failed to record audit events for expired sessions");
    }
    if let Err(error) = purge(&app.database, now).await {
        tracing::warn!(error = chain(&error), "failed to purge inactive sessions, keys and device grants");
    }
}

async fn purge(database: &Database, now: DateTime<Utc>) -> Result<(), database::Error> {
    while deletion::purge(database, now - RETENTION, BATCH).await? == i64::from(BATCH) {}
    while deletion::erase_tenants(database, now, BATCH).await? > 0 {}
    Ok(())
}

/// Updates the gauge of active sessions. If the database is unavailable, the gauge keeps its value.
async fn count_active_sessions(app: App, gauge: Gauge) {
    match session::count_valid(&app.database, app.clock.now()).await {
        Ok(count) => {
            gauge.set(count);
        }
        Err(error) => tracing::debug!(error = chain(&error), "failed to count active sessions"),
    }
}
