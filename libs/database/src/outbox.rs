//! The transactional outbox: messages that are written in the transaction that causes them and delivered after it.
//!
//! The migrations of a schema create the table `outbox` and the functions that the relay calls. A relay *claims* a row with
//! a lease: a new fencing value and an expiry. Only the holder of the fence can settle the row, so a relay that lost its
//! lease changes nothing. Attempts are counted at the claim, so that a message that kills the process is dead-lettered too.
//! Messages are delivered at least once.
//!
//! Messages that can repeat often are *folded*: those with the same key and member that wait for the relay are one row with their
//! number. Further members of a key share one row, so that the rows of a key are bounded.

mod groups;
mod metrics;
mod queue;
mod relay;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use service::telemetry::{Metrics, Origin};
use sqlx::PgConnection;
use tenancy::{OutboxId, TenantId, UserId};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{Database, Error};

pub use self::relay::{CONCURRENCY, DELIVERY_TIMEOUT, Deliver, DeliveryError, Relay, RetryPolicy};

/// The field of a message that names its kind: the column `kind` of its row.
const KIND: &str = "kind";
/// The field of a payload that holds the request that wrote the message.
const ORIGIN: &str = "origin";

/// The field of a payload that holds the number of folded messages.
const COUNT: &str = "count";
/// The field of a payload that holds the members of folded messages.
const MEMBERS: &str = "members";

/// A message that a service sends: a variant of an enum with `#[serde(tag = "kind")]`. It contains no secret.
pub trait Message: Serialize {
    /// The people that the message is erased with: its recipient, and those that it is about.
    fn erased_with(&self) -> People;

    /// What happens if too many messages of the kind wait for the tenant.
    fn when_full(&self) -> WhenFull {
        WhenFull::Accept
    }

    /// Whether the message waits while its tenant is suspended. The same for all messages of a kind.
    fn waits_while_suspended(&self) -> bool {
        false
    }
}

/// What happens to a message if too many of its kind wait for the tenant: as many as
/// [`DatabaseSettings`](crate::DatabaseSettings) permits. A relay counts them every 15 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It is written.
    Accept,
    /// Its transaction is rejected with [`Error::OutboxFull`].
    Reject,
    /// It is folded with all messages of the tenant that have its kind and the same first part of the key, up to the colon. The record
    /// has neither the user nor the address of the first message.
    Fold,
    /// It is not written.
    Drop,
}

/// The people that a message is erased with.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct People {
    #[serde(rename = "erased_with_users")]
    users: Vec<UserId>,
    #[serde(rename = "erased_with_email")]
    email: Option<String>,
}

impl People {
    /// The message remains, for example because it reports the erasure.
    pub fn none() -> Self {
        Self::users([])
    }

    /// Users.
    pub fn users(users: impl Into<Vec<UserId>>) -> Self {
        Self { users: users.into(), email: None }
    }

    /// The normalized address of a user who may not exist.
    pub fn address(email: &str) -> Self {
        Self { users: Vec::new(), email: Some(email.to_owned()) }
    }
}

/// The outbox of one schema. Clones share their state.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub(crate) schema: &'static str,
    /// The messages of one kind that can wait for a tenant.
    max_waiting: i64,
    relays: Arc<Mutex<Vec<WakeRelay>>>,
    metrics: Metrics,
}

/// Wakes a relay of this process.
struct WakeRelay {
    kinds: &'static [&'static str],
    wake: watch::Sender<()>,
}

/// A message that is due.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct OutboxMessage {
    /// Id of the row, by which receivers remove duplicates.
    pub outbox_id: OutboxId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The kind of message.
    pub kind: String,
    /// The fields of the message, which never contain a secret, and the request that wrote it.
    pub payload: Value,
    /// The number of attempts, including this one.
    pub attempts: i32,
    /// The fencing value of the claim.
    fence: Uuid,
    /// The turn in which it was claimed: its tenant, or one that many tenants share.
    turn: String,
}

/// A message that a transaction writes: an element of the argument of the function `outbox_insert` of the schema.
#[derive(Serialize)]
pub(crate) struct NewMessage {
    outbox_id: OutboxId,
    kind: String,
    payload: Value,
    #[serde(flatten)]
    erased_with: People,
    when_full: WhenFull,
    waits_while_suspended: bool,
    /// The time from the transaction until the message is due.
    delay_ms: i64,
    fold_key: Option<String>,
    fold_member: Option<String>,
}

/// Which messages are folded: see [`UnitOfWork::audit_failure`](crate::UnitOfWork::audit_failure).
#[derive(Clone, Debug)]
pub struct Fold {
    /// What the messages have in common. Keys of different tenants must be different, and none may continue another with a colon.
    pub key: String,
    /// What distinguishes them.
    pub member: String,
    /// The time from the first message until the relay can claim it.
    pub delay: TimeDelta,
}

impl NewMessage {
    pub(crate) fn new(message: &impl Message) -> Result<Self, Error> {
        let encoded = serde_json::to_value(message).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        let (Value::Object(mut fields), Some(Value::String(kind))) = take_kind(encoded) else {
            return Err(sqlx::Error::Encode("an outbox message is an object with a kind".into()).into());
        };
        if let Some(origin) = Origin::current() {
            fields.insert(ORIGIN.to_owned(), json!(origin));
        }
        Ok(Self {
            outbox_id: OutboxId::generate(),
            kind,
            payload: fields.into(),
            erased_with: message.erased_with(),
            when_full: message.when_full(),
            waits_while_suspended: message.waits_while_suspended(),
            delay_ms: 0,
            fold_key: None,
            fold_member: None,
        })
    }

    /// The same message, folded.
    pub(crate) fn folded(mut self, Fold { key, member, delay }: Fold) -> Self {
        self.payload[COUNT] = json!(1);
        self.payload[MEMBERS] = json!([member]);
        Self { delay_ms: delay.num_milliseconds(), fold_key: Some(key), fold_member: Some(member), ..self }
    }
}

fn take_kind(mut message: Value) -> (Value, Option<Value>) {
    let kind = message.as_object_mut().and_then(|fields| fields.remove(KIND));
    (message, kind)
}

impl Outbox {
    pub(crate) fn new(schema: &'static str) -> Self {
        // Not exported: `measured` replaces them.
        let (max_waiting, relays) = (i64::MAX, Arc::default());
        Self { schema, max_waiting, relays, metrics: Metrics::new("outbox") }
    }

    /// The same outbox with a maximum of waiting messages per tenant and kind.
    pub(crate) fn bounded(self, max_waiting: i64) -> Self {
        Self { max_waiting, ..self }
    }

    /// The same outbox, which registers its metrics here.
    pub(crate) fn measured(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    pub(crate) async fn insert(
        &self,
        connection: &mut PgConnection,
        tenant_id: &TenantId,
        messages: &[NewMessage],
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let insert = format!("-- outbox.insert\n select {}.outbox_insert($1, $2, $3)", self.schema);
        let insert = sqlx::query(sqlx::AssertSqlSafe(insert)).bind(tenant_id.as_str()).bind(now);
        insert.bind(json!(messages)).execute(connection).await?;
        Ok(())
    }

    /// Wakes the relays of this process that deliver the messages, so that they claim at once those that are due.
    pub(crate) fn wake(&self, messages: &[NewMessage]) {
        let due = || messages.iter().filter(|message| message.delay_ms == 0);
        for relay in &*self.relays.lock() {
            if due().any(|message| relay.kinds.contains(&&*message.kind)) {
                relay.wake.send_replace(());
            }
        }
    }

    /// Returns a receiver for the wakes of a relay that delivers these kinds.
    fn woken(&self, kinds: &'static [&'static str]) -> watch::Receiver<()> {
        let (wake, woken) = watch::channel(());
        self.relays.lock().push(WakeRelay { kinds, wake });
        woken
    }
}

impl OutboxMessage {
    /// The message as the enum that it was written from.
    ///
    /// # Errors
    /// [`DeliveryError::Permanent`]: the kind is unknown, or the fields do not fit it.
    pub fn decode<M: DeserializeOwned>(&self) -> Result<M, DeliveryError> {
        let mut fields = match &self.payload {
            Value::Object(fields) => fields.clone(),
            _ => Map::new(),
        };
        fields.insert(KIND.to_owned(), self.kind.clone().into());
        serde_json::from_value(fields.into()).map_err(|error| {
            DeliveryError::Permanent(format!("failed to decode the message {}: {error}", self.kind))
        })
    }

    /// The request that wrote the message; `None` if a background task wrote it.
    fn origin(&self) -> Option<Origin> {
        serde_json::from_value(self.payload.get(ORIGIN)?.clone()).ok()
    }
}

/// A message that is not delivered yet, without its payload.
#[derive(Clone, Debug, Serialize, sqlx::FromRow)]
pub struct UndeliveredMessage {
    /// The id of the row.
    pub outbox_id: OutboxId,
    /// The tenant.
    pub tenant_id: String,
    /// The kind of message.
    pub kind: String,
    /// `dead_lettered`: until it is retried; `held`: until the schema releases it; `pending`: due now or later.
    pub state: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When the next attempt is due, unless it is dead-lettered.
    pub due_at: DateTime<Utc>,
    /// The number of attempts.
    pub attempts: i32,
    /// The error of the last attempt.
    pub last_error: Option<String>,
}

/// Lists at most `limit` undelivered messages of all tenants: dead-lettered ones first, then the others, oldest first.
///
/// # Errors
/// The database is not available.
pub async fn list(database: &Database, limit: i32) -> Result<Vec<UndeliveredMessage>, Error> {
    let list = format!("select * from {}.outbox_list($1)", database.schema());
    Ok(sqlx::query_as(sqlx::AssertSqlSafe(list)).bind(limit).fetch_all(database.pool()).await?)
}

/// Schedules one dead-lettered message, or all of them, for retry. Returns their number.
///
/// # Errors
/// The database is not available.
pub async fn retry(
    database: &Database,
    outbox_id: Option<OutboxId>,
    now: DateTime<Utc>,
) -> Result<i64, Error> {
    let retry = format!("select {}.outbox_retry($1, $2)", database.schema());
    let count = sqlx::query_scalar(sqlx::AssertSqlSafe(retry)).bind(outbox_id).bind(now);
    Ok(count.fetch_one(database.pool()).await?)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum TestMessage {
        MailInvite { invite_id: u32 },
        PushTenantStatus,
    }

    impl Message for TestMessage {
        fn erased_with(&self) -> People {
            People::none()
        }
    }

    #[derive(Serialize)]
    struct Malformed(Value);

    impl Message for Malformed {
        fn erased_with(&self) -> People {
            People::none()
        }
    }

    fn row(message: &impl Message) -> OutboxMessage {
        let NewMessage { outbox_id, kind, payload, .. } = NewMessage::new(message).unwrap();
        let tenant_id = "acme".parse().unwrap();
        OutboxMessage {
            outbox_id,
            tenant_id,
            kind,
            payload,
            attempts: 1,
            fence: Uuid::nil(),
            turn: "acme".to_owned(),
        }
    }

    #[test]
    fn decodes_written_messages() {
        for (message, kind) in [
            (TestMessage::MailInvite { invite_id: 7 }, "mail_invite"),
            (TestMessage::PushTenantStatus, "push_tenant_status"),
        ] {
            let row = row(&message);
            assert_eq!((row.kind.as_str(), row.payload.get(KIND)), (kind, None));
            assert_eq!(row.decode::<TestMessage>().unwrap(), message);
        }
    }

    #[test]
    fn an_unknown_kind_is_a_permanent_error() {
        let row = OutboxMessage { kind: "mail_other".to_owned(), ..row(&TestMessage::PushTenantStatus) };
        assert!(matches!(row.decode::<TestMessage>(), Err(DeliveryError::Permanent(_))));
    }

    #[test]
    fn rejects_a_message_without_a_kind() {
        assert!(NewMessage::new(&Malformed(json!({ "invite_id": 7 }))).is_err());
        assert!(NewMessage::new(&Malformed(json!("mail_invite"))).is_err());
    }
}
