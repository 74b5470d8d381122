//! Recording of audit events, the policy that decides which personal data they keep, and publication to the stream.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bus::{AUDIT_STREAM, AuditSubject, ConnectError, Message, PublishLimits, Publisher};
use chrono::{DateTime, Utc};
use database::outbox::{
    CONCURRENCY, DELIVERY_TIMEOUT, Deliver, DeliveryError, OutboxMessage, Relay, RetryPolicy,
};
use database::{Database, TenantTx};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service::config::Variable;
use service::telemetry::{self, Metrics};
use service::{Clock, Tasks};
use tokio::time::Instant;

use crate::AuditEvent;

/// The kind of the outbox messages.
const AUDIT: &str = "audit";

/// The personal data that audit events keep.
pub const AUDIT_PERSONAL: Variable = Variable {
    name: "SVC_AUDIT_PERSONAL",
    form: "`ip`, `email`, `ip,email` or `none`",
    default: Some("ip"),
    secret: false,
    meaning: "Personal data that audit events keep in addition to ids: client address, e-mail address.",
};

/// The value of [`AUDIT_PERSONAL`]. It applies before an event is written, so that excluded data is not stored anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiiPolicy {
    ip: bool,
    email: bool,
}

/// The text is not a PII policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `ip`, `email`, `ip,email` or `none`")]
pub struct InvalidPiiPolicy;

impl FromStr for PiiPolicy {
    type Err = InvalidPiiPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPiiPolicy> {
        if text == "none" {
            return Ok(Self::default());
        }
        text.split(',').map(str::trim).try_fold(Self::default(), |policy, word| match word {
            "ip" => Ok(Self { ip: true, ..policy }),
            "email" => Ok(Self { email: true, ..policy }),
            _ => Err(InvalidPiiPolicy),
        })
    }
}

impl PiiPolicy {
    fn apply(self, event: AuditEvent) -> AuditEvent {
        AuditEvent { ip: event.ip.filter(|_| self.ip), email: event.email.filter(|_| self.email), ..event }
    }
}

/// Records the audit events of one context.
#[derive(Clone, Copy)]
pub struct AuditLog {
    policy: PiiPolicy,
}

/// The outbox message of an event. The function of session's schema that records expired sessions writes the same form.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename = "audit")]
struct Recorded {
    /// Whether the tenant exists. The events of all tenants that do not exist share one subject.
    tenant_exists: bool,
    name: String,
    occurred_at: DateTime<Utc>,
    event: Value,
}

impl AuditLog {
    /// A log with a PII policy.
    pub const fn new(policy: PiiPolicy) -> Self {
        Self { policy }
    }

    /// Records an event of a transaction.
    pub fn record(&self, tx: &mut TenantTx, event: AuditEvent) {
        self.record_unverified(tx, true, event);
    }

    /// Records an event for a tenant that comes from an unverified header and may not exist.
    pub fn record_unverified(&self, tx: &mut TenantTx, tenant_exists: bool, event: AuditEvent) {
        let event = AuditEvent { actor: event.actor.or(Some(tx.actor())), ..self.policy.apply(event) };
        // Plain data always has a JSON form.
        let event = serde_json::to_value(event).unwrap_or_default();
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        let occurred_at = tx.now();
        tx.send(&Recorded { tenant_exists, name, occurred_at, event });
    }
}

/// Timeout for the acknowledgement of one event.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Small, because the relay delivers few messages at the same time.
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
        concurrency: CONCURRENCY,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventName;

    #[test]
    fn keeps_only_the_personal_data_that_the_policy_names() {
        let event = AuditEvent {
            ip: Some([192, 0, 2, 1].into()),
            email: Some("ada@example.com".to_owned()),
            ..AuditEvent::of(EventName::AuthnLoginFail)
        };
        for (policy, ip, email) in
            [("none", false, false), ("ip", true, false), ("email", false, true), ("ip, email", true, true)]
        {
            let kept = policy.parse::<PiiPolicy>().unwrap().apply(event.clone());
            assert_eq!((kept.ip.is_some(), kept.email.is_some()), (ip, email), "{policy}");
        }
        for invalid in ["", "IP", "ip,phone", "none,ip"] {
            assert_eq!(invalid.parse::<PiiPolicy>(), Err(InvalidPiiPolicy), "{invalid}");
        }
    }
}
