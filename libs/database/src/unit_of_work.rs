//! The unit of work of a use case: a transaction that row-level security confines to one tenant.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};
use tenancy::{Actor, TenantId};

use crate::audit::{AuditEvent, FailedAttempt, PiiPolicy, Recorded};
use crate::outbox::{Message, NewMessage, Outbox};
use crate::pool::Transaction;
use crate::{Error, Pool};

/// A unit of work of one tenant, with the time and the actor of the use case. It collects outbox messages and audit events,
/// which are written in its transaction, and actions, which run afterwards. `C` is the connection: see [`TenantTx`] and
/// [`TenantCall`].
pub struct UnitOfWork<C> {
    connection: C,
    outbox: Outbox,
    tenant_id: TenantId,
    actor: Actor,
    now: DateTime<Utc>,
    pii_policy: PiiPolicy,
    messages: Vec<Result<NewMessage, Error>>,
    after_commit: Vec<BoxFuture<'static, ()>>,
}

/// A transaction with any number of statements. A drop without a commit rolls back and runs no action.
pub type TenantTx = UnitOfWork<Transaction>;

/// A transaction of one statement, and so of one round trip instead of at least four: the call of a function of the schema that
/// sets the tenant and writes the outbox messages.
pub type TenantCall = UnitOfWork<Pool>;

impl<C> UnitOfWork<C> {
    pub(crate) fn new(
        connection: C,
        outbox: Outbox,
        pii_policy: PiiPolicy,
        tenant_id: TenantId,
        actor: Actor,
        now: DateTime<Utc>,
    ) -> Self {
        let (messages, after_commit) = Default::default();
        Self { connection, outbox, tenant_id, actor, now, pii_policy, messages, after_commit }
    }

    /// Tenant of the visible rows.
    pub fn tenant_id(&self) -> &TenantId {
        &self.tenant_id
    }

    /// The time at which the unit of work began. Everything that it writes has this time.
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// The actor of the change.
    pub fn actor(&self) -> Actor {
        self.actor
    }

    /// The address of the client of the request, if audit events keep it.
    pub fn kept_address(&self) -> Option<IpAddr> {
        self.pii_policy.kept_address()
    }

    /// Records an audit event.
    pub fn audit(&mut self, event: AuditEvent) {
        let record = self.pii_policy.record(event, self.actor, self.now);
        self.send(&Recorded::OfTenant(record));
    }

    /// Records the event of a failed attempt. The message is due after a delay. Until a relay claims it, messages with the same key and
    /// member only increase its field `count`. The first ten members of a key have their own message; all further ones have one together.
    /// So about eleven messages per key and delay are delivered. Each has the fields of its first message, and in `members` its members,
    /// at most 100.
    pub fn audit_failure(&mut self, attempt: FailedAttempt<'_>, event: AuditEvent) {
        let record = self.pii_policy.record(event, self.actor, self.now);
        let (fold, message) = attempt.message(&self.tenant_id, record);
        self.messages.push(NewMessage::new(&message).map(|message| message.folded(fold)));
    }

    /// Adds an outbox message. The relay continues the trace of the current request.
    pub fn send(&mut self, message: &impl Message) {
        self.messages.push(NewMessage::new(message));
    }

    /// Adds an action that runs once the transaction has committed, after those added before.
    pub fn after_commit(&mut self, action: impl Future<Output = ()> + Send + 'static) {
        self.after_commit.push(Box::pin(action));
    }
}

impl TenantTx {
    /// The connection for statements.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.connection.connection()
    }

    /// Runs a statement. Returns the number of rows that it changed.
    ///
    /// # Errors
    /// The database is not available, or a constraint rejects the change.
    pub async fn execute(&mut self, statement: Query<'_, Postgres, PgArguments>) -> Result<u64, Error> {
        Ok(statement.execute(self.connection()).await?.rows_affected())
    }

    /// Writes the outbox messages and commits, then wakes the relays of this process that deliver them and runs the actions.
    ///
    /// # Errors
    /// The database is not available: the outcome of the transaction is unknown. A message cannot be encoded as JSON: the
    /// transaction is rolled back.
    pub async fn commit(mut self) -> Result<(), Error> {
        let messages: Vec<_> = self.messages.into_iter().collect::<Result<_, _>>()?;
        if !messages.is_empty() {
            self.outbox.insert(self.connection.connection(), &self.tenant_id, &messages, self.now).await?;
        }
        self.connection.commit().await?;
        self.outbox.wake(&messages);
        for action in self.after_commit {
            action.await;
        }
        Ok(())
    }
}

impl TenantCall {
    /// Calls the function. `call` gets the pool and the outbox messages, which the function gives to `outbox_insert` of the schema.
    /// It returns `None` if the function has changed nothing. Otherwise this wakes the relays and runs the actions.
    ///
    /// # Errors
    /// That of `call`: the outcome is unknown if the database is not available. A message cannot be encoded as JSON: the function
    /// is not called.
    pub async fn run<T>(
        self,
        call: impl AsyncFnOnce(&Pool, Value) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let messages: Vec<_> = self.messages.into_iter().collect::<Result<_, _>>()?;
        let result = call(&self.connection, json!(messages)).await?;
        if result.is_some() {
            self.outbox.wake(&messages);
            for action in self.after_commit {
                action.await;
            }
        }
        Ok(result)
    }
}
