//! Publication of recorded events to the stream.

use std::sync::Arc;
use std::time::Duration;

use bus::{AUDIT_STREAM, AuditSubject, ConnectError, Message, PublishLimits, Publisher};
use database::Database;
use database::outbox::{DELIVERY_TIMEOUT, Deliver, DeliveryError, OutboxMessage, Relay, RetryPolicy};
use serde_json::json;
use service::telemetry::{self, Metrics};
use service::{Clock, Tasks};
use tokio::time::Instant;

use crate::log::{AUDIT, Recorded};

/// Timeout for the acknowledgement of one event.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Small, because the relay delivers one message at a time.
const IN_FLIGHT: PublishLimits = PublishLimits { messages: 64, bytes: 1024 * 1024 };

struct PublishAudit {
    publisher: Publisher,
    context: &'static str,
}

/// Starts the relay that publishes the events of a context. It retries without limit while the broker is down or the stream
/// is full.
///
/// # Errors
/// The configuration of the broker is invalid.
pub fn publish(
    broker: bus::Config,
    database: Database,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<(), ConnectError> {
    let publisher = Publisher::start(broker, AUDIT_STREAM, IN_FLIGHT, metrics, tasks)?;
    let deliver = PublishAudit { publisher, context: database.schema() };
    let relay = Relay {
        database,
        kinds: &[AUDIT],
        retry_policy: RetryPolicy::Unlimited,
        timeout: DELIVERY_TIMEOUT,
        deliver,
        clock,
    };
    tasks.spawn("outbox: audit", relay.run(tasks.clone()));
    Ok(())
}

impl PublishAudit {
    fn message(&self, row: &OutboxMessage) -> Result<Message, DeliveryError> {
        let permanent = |error: &dyn std::error::Error| DeliveryError::Permanent(error.to_string());
        let Recorded { tenant_exists, name, occurred_at, mut event } = row.decode()?;
        let tenant_id = tenant_exists.then_some(&row.tenant_id);
        let subject = AuditSubject::new(tenant_id, self.context, &name).map_err(|error| permanent(&error))?;
        event["id"] = json!(row.outbox_id);
        event["context"] = json!(self.context);
        event["occurred_at"] = json!(occurred_at);
        event["tenant_id"] = json!(tenant_id);
        let trace = telemetry::traceparent();
        Message::audit(&subject, &row.outbox_id.to_string(), trace.as_deref(), event.to_string().into())
            .map_err(|error| permanent(&error))
    }
}

impl Deliver for PublishAudit {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        let message = self.message(row)?;
        let deadline = Instant::now() + ACK_TIMEOUT;
        let published = self.publisher.publish(&row.tenant_id, message, deadline).await;
        published
            .map(drop)
            .map_err(|error| DeliveryError::Transient(format!("stream {AUDIT_STREAM}: {error}")))
    }
}
