//! The outbox: effects outside the database, written in the transaction that causes them, worked off afterwards.
//!
//! A schema that has one brings the table `outbox` and the functions that the relay calls (see the migrations of
//! identity). A row is *claimed* with a lease: a fresh fencing value and an end. Only the holder of the fence can settle
//! the row, so a relay that was away for too long changes nothing. Attempts are counted when a row is claimed, so that
//! a row that kills the process is parked in the end. Work is delivered at least once.

mod admin;
mod metrics;
mod relay;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use service::telemetry::{Metrics, Origin};
use tenancy::TenantId;
use tokio::sync::watch;
use uuid::Uuid;

pub use self::admin::Pending;
use self::metrics::{Families, OutboxMetrics};
pub use relay::{DELIVERY_TIMEOUT, Deliver, DeliveryError, Relay, RetryPolicy};

use crate::{Error, TenantTx};

/// The field of a payload that holds the request.
const ORIGIN: &str = "origin";

/// The outbox of one schema. Clones are handles to the same.
#[derive(Clone)]
pub struct Outbox {
    schema: &'static str,
    wake: watch::Sender<()>,
    metrics: OutboxMetrics,
}

/// One effect that is due.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct OutboxMessage {
    /// The row's id; also the id of what is sent, where the receiver removes duplicates.
    pub outbox_id: Uuid,
    /// Whose.
    pub tenant_id: TenantId,
    /// What kind of effect.
    pub kind: String,
    /// What it is about: ids, never secrets. Also which request wrote it.
    pub payload: Value,
    /// How often it was tried, this time included.
    pub attempts: i32,
    /// The claim's fence.
    fence: Uuid,
}

impl Outbox {
    /// The outbox of a schema.
    pub fn new(schema: &'static str) -> Self {
        let metrics = OutboxMetrics::new(&Families::default(), schema);
        Self { schema, wake: watch::Sender::new(()), metrics }
    }

    /// The same, shown in the process's metrics.
    #[must_use]
    pub fn measured(self, metrics: &Metrics) -> Self {
        let families = metrics.shared(Families::register);
        Self { metrics: OutboxMetrics::new(&families, self.schema), ..self }
    }

    /// Writes an effect, which happens after the transaction commits. Call [`Self::wake`] then. The request at hand is kept
    /// beside what an object holds, so that the effect belongs to its trace.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn write(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        kind: &str,
        payload: &Value,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let insert = format!(
            "insert into {}.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at) values ($1, $2, $3, $4, $5, $5)",
            self.schema
        );
        sqlx::query(sqlx::AssertSqlSafe(insert))
            .bind(Uuid::now_v7())
            .bind(tenant_id)
            .bind(kind)
            .bind(with_origin(payload))
            .bind(now)
            .execute(tx.connection())
            .await?;
        Ok(())
    }

    /// Lets the relays of this process look at once.
    pub fn wake(&self) {
        self.wake.send_replace(());
    }
}

impl OutboxMessage {
    /// The request that wrote the row; a task of the process's own is none.
    fn origin(&self) -> Option<Origin> {
        serde_json::from_value(self.payload.get(ORIGIN)?.clone()).ok()
    }
}

fn with_origin(payload: &Value) -> Value {
    let mut payload = payload.clone();
    if let (Some(fields), Some(origin)) = (payload.as_object_mut(), Origin::here()) {
        fields.insert(ORIGIN.to_owned(), json!(origin));
    }
    payload
}
