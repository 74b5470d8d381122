//! Recording: an outbox row in the transaction that the event tells of.

use chrono::{DateTime, Utc};
use database::outbox::Outbox;
use database::{Error, TenantTx};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::TenantId;

use crate::{AuditEvent, PiiPolicy};

/// The kind of an outbox row that is an audit event.
pub const AUDIT: &str = "audit";

/// Records the audit events of one context. Clones are handles to the same.
#[derive(Clone)]
pub struct AuditLog {
    outbox: Outbox,
    personal: PiiPolicy,
}

/// What an outbox row holds: the event, and what its subject is made of. A function of session's schema writes this form too
/// (`session.tell_expired`).
#[derive(Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// False for a tenant that does not exist, which has no subject of its own.
    pub(crate) tenant_exists: bool,
    pub(crate) name: String,
    pub(crate) occurred_at: DateTime<Utc>,
    pub(crate) event: Value,
}

impl AuditLog {
    /// Writes into this outbox what the policy lets it keep.
    pub fn new(outbox: Outbox, personal: PiiPolicy) -> Self {
        Self { outbox, personal }
    }

    /// Records what the transaction does. The relay sees it within a second; waking it is not worth a caller's while.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn record(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        event: AuditEvent,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        self.write(tx, tenant_id, true, event, now).await
    }

    /// The same for a tenant that a request names and nothing has proven; it may not exist.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn record_claimed(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        tenant_exists: bool,
        event: AuditEvent,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        self.write(tx, tenant_id, tenant_exists, event, now).await
    }

    async fn write(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        tenant_exists: bool,
        event: AuditEvent,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        // Plain data of our own always has a JSON form.
        let event = serde_json::to_value(self.personal.keep(event)).unwrap_or_default();
        let name = event["event"].as_str().unwrap_or_default().to_owned();
        let recorded = Recorded { tenant_exists, name, occurred_at: now, event };
        let payload = serde_json::to_value(recorded).unwrap_or_default();
        self.outbox.write(tx, tenant_id, AUDIT, &payload, now).await
    }
}
