//! Publication of audit events, and the share of the stream that one tenant can fill.
//!
//! NATS has no limit per tenant: its limits apply to a stream or to each subject. So the relay asks the server how many messages
//! of the tenant the stream has. Only the publication depends on it, so no state is shared between the replicas.

use std::sync::Arc;
use std::time::Duration;

use bus::{
    ANONYMOUS_AUDIT_STREAM, AUDIT_STREAM, AuditSubject, ConnectError, Message, PublishLimits, Publisher,
    StreamUsage,
};
use database::Database;
use database::audit::{Record, Recorded};
use database::outbox::{DELIVERY_TIMEOUT, Deliver, DeliveryError, OutboxMessage, Relay, RetryPolicy};
use serde_json::json;
use service::telemetry::{self, Metrics};
use service::{Clock, KeyedLocks, Tasks};
use tenancy::{PerTenant, TenantId};
use tokio::time::Instant;

/// A tenant can fill this fraction of the stream.
const TENANT_FRACTION: u64 = 4;
/// Failures are published only while a tenant fills less than this fraction: half of its share. Unauthenticated clients can cause
/// any number of failures, and must not hide the other events of the tenant.
const FAILURE_FRACTION: u64 = 8;
/// How long a measurement is used. Meanwhile, a tenant can exceed its share by messages of other processes, and by the messages that were
/// in flight at the measurement.
const MEASUREMENT_TTL: Duration = Duration::from_secs(10);
/// Maximum number of messages for which a measurement is used. While the stream is almost empty, the average size is not
/// representative.
const MEASURED_MESSAGES: u64 = 500;

/// Timeout for the acknowledgement of one event.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of deliveries at the same time. Those that end together are settled by one statement, and a claim of many costs less for
/// each.
const CONCURRENCY: u16 = 500;
/// A tenant can use a quarter, which must fit the half of the deliveries that a relay starts for it, with 4 KiB each.
const IN_FLIGHT: PublishLimits =
    PublishLimits { messages: 2 * CONCURRENCY as usize, bytes: 2 * CONCURRENCY as usize * 4096 };

/// A kind of audit events and its stream. Each has its own relay, so that events of unauthenticated clients do not delay the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditStream {
    name: &'static str,
    /// The kind of the outbox messages.
    kinds: &'static [&'static str; 1],
    /// The fraction of the stream that one tenant can fill; `None` if tenants have no share.
    fraction: Option<u64>,
}

impl AuditStream {
    /// Events of tenants: the stream `AUDIT`.
    pub const OF_TENANTS: Self =
        Self { name: AUDIT_STREAM, kinds: &["audit"], fraction: Some(TENANT_FRACTION) };
    /// Failed attempts at accounts of tenants: the stream `AUDIT`.
    pub const FAILURES: Self =
        Self { name: AUDIT_STREAM, kinds: &["audit_failure"], fraction: Some(FAILURE_FRACTION) };
    /// Events of tenants that do not exist: the stream `AUDIT_ANONYMOUS`.
    pub const ANONYMOUS: Self =
        Self { name: ANONYMOUS_AUDIT_STREAM, kinds: &["audit_anonymous"], fraction: None };
}

/// Publishes the audit events of a context.
pub struct Publication {
    /// The connection to NATS.
    pub broker: bus::Config,
    /// The database with the outbox. The name of its schema is the context.
    pub database: Database,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Publication {
    /// Starts the relay that publishes to a stream. It retries without limit while the broker is down or the stream is full.
    ///
    /// # Errors
    /// The configuration of the broker is invalid.
    pub fn start(&self, stream: AuditStream, metrics: &Metrics, tasks: &Tasks) -> Result<(), ConnectError> {
        let publisher = Publisher::start(self.broker.clone(), stream.name, IN_FLIGHT, metrics, tasks)?;
        let (kinds, shares) = (stream.kinds, stream.fraction.map(Shares::new));
        let relay = Relay {
            queue: self.database.clone(),
            name: kinds[0],
            kinds,
            retry_policy: RetryPolicy::Unlimited,
            timeout: DELIVERY_TIMEOUT,
            concurrency: CONCURRENCY,
            deliver: PublishAudit { publisher, stream, shares, context: self.database.schema() },
            clock: Arc::clone(&self.clock),
        };
        tasks.spawn(kinds[0], relay.run(tasks.clone()));
        Ok(())
    }
}

struct PublishAudit {
    publisher: Publisher,
    stream: AuditStream,
    /// `None` if tenants have no share.
    shares: Option<Shares>,
    context: &'static str,
}

impl PublishAudit {
    fn message(&self, row: &OutboxMessage) -> Result<Message, DeliveryError> {
        let permanent = |error: &dyn std::error::Error| DeliveryError::Permanent(error.to_string());
        let (tenant_id, record) = match row.decode()? {
            Recorded::OfTenant(record) | Recorded::Failure(record) => (Some(&row.tenant_id), record),
            Recorded::Anonymous(record) => (None, record),
        };
        let Record { name, occurred_at, mut event, count, members, .. } = record;
        let subject = AuditSubject::new(tenant_id, self.context, &name).map_err(|error| permanent(&error))?;
        event["id"] = json!(row.outbox_id);
        event["context"] = json!(self.context);
        event["occurred_at"] = json!(occurred_at);
        event["tenant_id"] = json!(tenant_id);
        if let Some(count) = count {
            event["count"] = json!(count);
            event["sources"] = json!(members.len());
        }
        let trace = telemetry::traceparent();
        Message::audit(&subject, &row.outbox_id.to_string(), trace.as_deref(), event.to_string().into())
            .map_err(|error| permanent(&error))
    }
}

impl Deliver for PublishAudit {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        let message = self.message(row)?;
        if let Some(shares) = &self.shares
            && shares.is_exhausted(&self.publisher, &row.tenant_id).await
        {
            return Err(DeliveryError::TenantBlocked(
                "the tenant has used its share of the stream".to_owned(),
            ));
        }
        let deadline = Instant::now() + ACK_TIMEOUT;
        let published = self.publisher.publish(&row.tenant_id, message, deadline).await;
        let stream = self.stream.name;
        published.map(drop).map_err(|error| DeliveryError::Transient(format!("stream {stream}: {error}")))
    }
}

/// The parts of their shares that tenants have left, as last measured.
struct Shares {
    /// A share is this fraction of the stream.
    fraction: u64,
    measurements: PerTenant<Option<Measurement>>,
    /// Deliveries of a tenant measure one after the other, so that all but the first one use its measurement.
    measuring: KeyedLocks,
}

#[derive(Clone, Copy)]
struct Measurement {
    /// Whether nothing was left.
    exhausted: bool,
    /// Number of messages that were left, less those that this process published since then.
    left: u64,
    measured_at: Instant,
}

impl Measurement {
    fn is_recent(&self) -> bool {
        self.measured_at.elapsed() < MEASUREMENT_TTL
    }
}

impl Shares {
    fn new(fraction: u64) -> Self {
        Self { fraction, measurements: PerTenant::default(), measuring: KeyedLocks::default() }
    }

    /// Returns whether the tenant has used its share. If this is unknown, publication decides.
    async fn is_exhausted(&self, publisher: &Publisher, tenant_id: &TenantId) -> bool {
        if let Some(exhausted) = self.known(tenant_id) {
            return exhausted;
        }
        let _measuring = self.measuring.lock(tenant_id).await;
        // Another delivery may have measured meanwhile.
        if let Some(exhausted) = self.known(tenant_id) {
            return exhausted;
        }
        let Ok(usage) = publisher.usage(&AuditSubject::tenant_filter(tenant_id)).await else { return false };
        let left = messages_left(&usage, self.fraction);
        let exhausted = left == 0;
        // Less the message that is published now.
        let left = left.saturating_sub(1);
        let last = self.save(tenant_id, Measurement { exhausted, left, measured_at: Instant::now() });
        if exhausted && !last.is_some_and(|last| last.exhausted) {
            tracing::warn!(%tenant_id, "tenant has used its share of the audit stream; its events wait in the outbox");
        }
        exhausted
    }

    /// Returns the result of a recent measurement, and counts the message that is published if there was space.
    fn known(&self, tenant_id: &TenantId) -> Option<bool> {
        self.measurements.update_known(tenant_id, |measurement| {
            let recent = measurement.as_mut().filter(|measurement| measurement.is_recent())?;
            if !recent.exhausted {
                recent.left = recent.left.checked_sub(1)?;
            }
            Some(recent.exhausted)
        })?
    }

    /// Saves a measurement. Returns the last one.
    fn save(&self, tenant_id: &TenantId, measurement: Measurement) -> Option<Measurement> {
        let is_outdated =
            |known: &mut Option<Measurement>| !known.is_some_and(|measurement| measurement.is_recent());
        self.measurements.update(tenant_id, is_outdated, |known| known.replace(measurement))
    }
}

/// Returns how many messages of the tenant can be published before the next measurement. Its share is a fraction of the maximum size.
/// NATS counts the messages of a tenant, but not their bytes, so each counts as an average message of the stream.
fn messages_left(usage: &StreamUsage, fraction: u64) -> u64 {
    let (Some(max_bytes), true) = (usage.max_bytes, usage.bytes > 0) else { return MEASURED_MESSAGES };
    let share = u128::from(max_bytes / fraction) * u128::from(usage.messages) / u128::from(usage.bytes);
    u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(usage.matching).min(MEASURED_MESSAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_a_fraction_of_the_maximum_size_at_the_average_message_size() {
        // 100 messages of 10 bytes are a quarter of 4000 bytes.
        let usage = |matching| StreamUsage { max_bytes: Some(4000), bytes: 1000, messages: 100, matching };
        assert_eq!(
            [0, 40, 99, 100, 101].map(|matching| messages_left(&usage(matching), 4)),
            [100, 60, 1, 0, 0]
        );
        assert_eq!([0, 49, 50, 100].map(|matching| messages_left(&usage(matching), 8)), [50, 1, 0, 0]);
        assert_eq!(messages_left(&StreamUsage { max_bytes: None, ..usage(100) }, 4), MEASURED_MESSAGES);
        assert_eq!(messages_left(&StreamUsage { bytes: 0, messages: 0, ..usage(0) }, 4), MEASURED_MESSAGES);
        let large = StreamUsage { max_bytes: Some(1 << 30), ..usage(0) };
        assert_eq!(messages_left(&large, 4), MEASURED_MESSAGES);
        let largest = u64::MAX;
        let full =
            StreamUsage { max_bytes: Some(largest), bytes: largest, messages: largest, matching: largest };
        assert_eq!(messages_left(&full, 4), 0);
    }

    #[test]
    fn messages_of_this_process_count_until_the_next_measurement() {
        let (shares, acme) = (Shares::new(4), "acme".parse().unwrap());
        let measure = |left| Measurement { exhausted: left == 0, left, measured_at: Instant::now() };
        assert_eq!(shares.known(&acme), None);
        shares.save(&acme, measure(2));
        assert_eq!([(); 3].map(|()| shares.known(&acme)), [Some(false), Some(false), None]);
        shares.save(&acme, measure(0));
        assert_eq!([(); 2].map(|()| shares.known(&acme)), [Some(true); 2]);
    }
}
