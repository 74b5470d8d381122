//! Background tasks: report API keys to the identity service, delete inactive rows, audit expired sessions, count active sessions.

use std::iter::repeat_with;
use std::time::Duration;

use authn::InternalClient;
use chrono::TimeDelta;
use contract::internal::api_key_notice_path;
use database::outbox::{Deliver, DeliveryError, OutboxMessage};
use prometheus_client::metrics::gauge::Gauge;
use service::{Tasks, chain};
use tenancy::OutboxId;

use crate::app::App;
use crate::message::Message;
use crate::store::{account_status, api_key, device_grant, producer, session};

const PURGE_INTERVAL: Duration = Duration::from_mins(10);
/// How long inactive rows are kept, so that an administrator can inspect them.
const RETENTION: TimeDelta = TimeDelta::hours(24);
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);
/// A count reads one index entry per active session.
const GAUGE_INTERVAL: Duration = Duration::from_secs(30);
/// Rows per statement. Small, so that requests do not wait for locks and the relay sees audit events soon.
const BATCH: u16 = 500;

/// Delivers the messages for the identity service.
pub(crate) struct Reports(pub(crate) InternalClient);

impl Deliver for Reports {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), DeliveryError> {
        let Message::ReportApiKey { notice } = message.decode()?;
        let reported = self.0.put(&api_key_notice_path(notice.key_id), &notice).await;
        reported.map_err(|error| DeliveryError::Transient(chain(&error)))
    }
}

/// Deletes sessions, API keys, device grants and producers a day after they became inactive, and those of deleted tenants, until the process
/// stops.
pub(crate) async fn purge(app: App, tasks: Tasks) {
    while !tasks.stopping().is_cancelled() {
        if let Err(error) = purge_once(&app).await {
            tracing::warn!(
                error = chain(&error),
                "failed to purge inactive sessions, keys and device grants"
            );
        }
        sleep(PURGE_INTERVAL, &tasks).await;
    }
}

async fn purge_once(app: &App) -> Result<(), database::Error> {
    let (before, limit) = (app.clock.now() - RETENTION, i32::from(BATCH));
    while session::delete_before(&app.database, before, limit).await? == i64::from(BATCH) {}
    while device_grant::delete_before(&app.database, before, limit).await? == i64::from(BATCH) {}
    while api_key::delete_before(&app.database, before, limit).await? == i64::from(BATCH) {}
    while producer::delete_before(&app.database, before, limit).await? == i64::from(BATCH) {}
    while account_status::erase_tenants(&app.database, app.clock.now(), limit).await? > 0 {}
    Ok(())
}

/// Records audit events for expired sessions until the process stops. No request is involved when a session expires, so a
/// sweep finds them. Each session is audited once, also with several replicas.
pub(crate) async fn audit_expired_sessions(app: App, tasks: Tasks) {
    while !tasks.stopping().is_cancelled() {
        if let Err(error) = audit_expired_sessions_once(&app).await {
            tracing::warn!(error = chain(&error), "failed to record audit events for expired sessions");
        }
        sleep(EXPIRY_INTERVAL, &tasks).await;
    }
}

async fn audit_expired_sessions_once(app: &App) -> Result<(), database::Error> {
    let now = app.clock.now();
    loop {
        let outbox_ids: Vec<OutboxId> = repeat_with(OutboxId::generate).take(BATCH.into()).collect();
        if session::audit_expired(&app.database, &outbox_ids, now).await? < i64::from(BATCH) {
            return Ok(());
        }
    }
}

/// Updates the gauge of active sessions until the process stops. If the database is unavailable, the gauge keeps its value.
pub(crate) async fn count_active_sessions(app: App, gauge: Gauge, tasks: Tasks) {
    while !tasks.stopping().is_cancelled() {
        match session::count_active(&app.database, app.clock.now()).await {
            Ok(count) => {
                gauge.set(count);
            }
            Err(error) => tracing::debug!(error = chain(&error), "failed to count active sessions"),
        }
        sleep(GAUGE_INTERVAL, &tasks).await;
    }
}

async fn sleep(duration: Duration, tasks: &Tasks) {
    tokio::select! {
        () = tokio::time::sleep(duration) => {}
        () = tasks.stopping().cancelled() => {}
    }
}
