//! Publication of what was recorded.

use std::time::Duration;

use std::sync::Arc;

use bus::{AUDIT_STREAM, AuditSubject, ConnectError, Limits, Message, Publisher};
use database::Database;
use database::outbox::{DELIVERY_TIMEOUT, Deliver, DeliveryError, Outbox, OutboxMessage, Relay, RetryPolicy};
use serde_json::json;
use service::{Clock, Tasks, telemetry};
use tokio::time::Instant;

use crate::record::{AUDIT, Recorded};

/// How long the stream may take to acknowledge one event.
const ACK_LIMIT: Duration = Duration::from_secs(5);

/// The relay works a few rows off at a time.
const IN_FLIGHT: Limits = Limits { messages: 64, bytes: 1024 * 1024 };

/// Publishes outbox rows of the kind [`AUDIT`].
struct PublishAudit {
    publisher: Publisher,
    context: &'static str,
}

/// Starts the relay that publishes what a context records. A broker that is not there, or a stream that is full, is waited
/// for: the rows stay. Returns the publisher, for its metrics.
///
/// # Errors
/// The broker's configuration can never work.
pub fn publish(
    context: &'static str,
    broker: bus::Config,
    database: Database,
    outbox: Outbox,
    clock: Arc<dyn Clock>,
    tasks: &Tasks,
) -> Result<Publisher, ConnectError> {
    let publisher =
        Publisher::start(broker, AUDIT_STREAM, IN_FLIGHT, tasks.tracker(), tasks.stopping().clone())?;
    let deliver = PublishAudit { publisher: publisher.clone(), context };
    let (retry_policy, limit) = (RetryPolicy::Unlimited, DELIVERY_TIMEOUT);
    let relay = Relay { database, outbox, kinds: &[AUDIT], retry_policy, limit, deliver, clock };
    tasks.spawn("outbox: audit", relay.run(tasks.clone()));
    Ok(publisher)
}

impl PublishAudit {
    fn message(&self, row: &OutboxMessage) -> Result<Message, String> {
        let Recorded { tenant_exists, name, occurred_at, mut event } =
            serde_json::from_value(row.payload.clone()).map_err(|error| error.to_string())?;
        let tenant_id = tenant_exists.then_some(&row.tenant_id);
        let subject = AuditSubject::new(tenant_id, self.context, &name).map_err(|error| error.to_string())?;
        event["id"] = json!(row.outbox_id);
        event["context"] = json!(self.context);
        event["occurred_at"] = json!(occurred_at);
        event["tenant_id"] = json!(tenant_id);
        let trace = telemetry::traceparent();
        Message::audit(&subject, &row.outbox_id.to_string(), trace.as_deref(), event.to_string().into())
            .map_err(|error| error.to_string())
    }
}

impl Deliver for PublishAudit {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        let message = self.message(row).map_err(DeliveryError::Permanent)?;
        let deadline = Instant::now() + ACK_LIMIT;
        let published = self.publisher.publish(&row.tenant_id, message, deadline).await;
        published
            .map(drop)
            .map_err(|error| DeliveryError::Transient(format!("stream {AUDIT_STREAM}: {error}")))
    }
}
