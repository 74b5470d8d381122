//! The task that works an outbox off. Any number of processes may run one.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use service::{Clock, Tasks, chain};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Outbox, OutboxMessage};
use crate::{Database, Error};

/// How many rows are claimed at once, and how much longer the claim holds than all of them may take together.
const BATCH: u8 = 4;
const MARGIN: Duration = Duration::from_secs(20);
/// How long an effect may take, where there is no reason for another limit.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the relay looks without being woken: for rows of other processes and rows that are due again.
const POLL: Duration = Duration::from_secs(1);
/// How often the outbox is measured.
const MEASURE: Duration = Duration::from_secs(15);
/// After so many attempts a row is parked, where its effect may be given up.
const MAX_ATTEMPTS: i32 = 5;
/// How far the wait grows where it may not.
const MAX_WAIT: TimeDelta = TimeDelta::seconds(30);

/// Brings one effect about. Delivery must be safe to repeat.
pub trait Deliver: Send + Sync + 'static {
    /// Delivers; a dropped call counts as an attempt.
    fn deliver(&self, row: &OutboxMessage) -> impl Future<Output = Result<(), DeliveryError>> + Send;
}

/// Why an effect did not come about.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// It can succeed later.
    #[error("{0}")]
    Transient(String),
    /// It can never succeed: the row is parked for a person to look at.
    #[error("{0}")]
    Permanent(String),
}

/// Whether an effect that does not come about is given up in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// After five attempts the row is parked for a person to look at.
    DeadLetter,
    /// It is tried for ever: what depends on it would be wrong without it.
    Unlimited,
}

/// Works some kinds of an outbox's rows off until the process stops. Kinds that must not wait for each other have a relay
/// each; kinds that nobody here knows are left to the newer version that wrote them.
pub struct Relay<D, C: ?Sized> {
    /// Where the outbox is.
    pub database: Database,
    /// Which one.
    pub outbox: Outbox,
    /// Which kinds of rows.
    pub kinds: &'static [&'static str],
    /// Whether they are given up in the end.
    pub retry_policy: RetryPolicy,
    /// How long one may take.
    pub limit: Duration,
    /// What brings the effects about.
    pub deliver: D,
    /// Tells the time.
    pub clock: std::sync::Arc<C>,
}

impl<D: Deliver, C: Clock + ?Sized> Relay<D, C> {
    /// Runs until the tasks are told to stop; a delivery that is under way is finished.
    pub async fn run(self, tasks: Tasks) {
        let mut measured: Option<Instant> = None;
        let mut woken = self.outbox.wake.subscribe();
        while !tasks.stopping().is_cancelled() {
            if measured.is_none_or(|at| at.elapsed() >= MEASURE) {
                self.measure().await;
                measured = Some(Instant::now());
            }
            match self.process_batch().await {
                Ok(0) => self.rest(&mut woken, &tasks).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, schema = self.outbox.schema, "the outbox cannot be read");
                    self.rest(&mut woken, &tasks).await;
                }
            }
        }
    }

    /// Reads how the outbox stands. Metrics that cannot be read keep their last values.
    async fn measure(&self) {
        let stats =
            format!("select oldest_seconds, waiting, parked from {}.outbox_stats($1)", self.outbox.schema);
        let read = sqlx::query_as::<_, (f64, i64, i64)>(sqlx::AssertSqlSafe(stats))
            .bind(self.clock.now())
            .fetch_one(self.database.pool())
            .await;
        match read {
            Ok((oldest, waiting, parked)) => {
                let metrics = &self.outbox.metrics;
                metrics.oldest.set(oldest);
                metrics.waiting.set(waiting);
                metrics.parked.set(parked);
            }
            Err(error) => {
                tracing::debug!(%error, schema = self.outbox.schema, "the outbox cannot be measured");
            }
        }
    }

    async fn rest(&self, woken: &mut watch::Receiver<()>, tasks: &Tasks) {
        tokio::select! {
            // The sender lives as long as `self`.
            _ = woken.changed() => {}
            () = tokio::time::sleep(POLL) => {}
            () = tasks.stopping().cancelled() => {}
        }
    }

    /// Claims what is due and delivers it; tells how many rows there were.
    ///
    /// # Errors
    /// The database is not available; claimed rows come back when their lease ends.
    pub async fn process_batch(&self) -> Result<usize, Error> {
        let rows = self.claim().await?;
        for row in &rows {
            match row.origin() {
                Some(origin) => origin.resume(self.process(row)).await,
                None => self.process(row).await,
            }
        }
        Ok(rows.len())
    }

    async fn process(&self, row: &OutboxMessage) {
        let settlement = match self.try_deliver(row).await {
            Ok(()) => Settlement::Done,
            Err(failure) => self.after(row, &failure),
        };
        // The others do not wait for this one's lease to end.
        if let Err(error) = self.settle(row, settlement).await {
            tracing::warn!(error = chain(&error), outbox_id = %row.outbox_id, "an effect will be brought about again");
        }
    }

    /// One attempt, which neither hangs nor takes the process down.
    async fn try_deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        if self.retry_policy == RetryPolicy::DeadLetter && row.attempts > MAX_ATTEMPTS {
            return Err(DeliveryError::Permanent(
                "it was tried too often, and no attempt came to an end".to_owned(),
            ));
        }
        let attempt = AssertUnwindSafe(self.deliver.deliver(row)).catch_unwind();
        match tokio::time::timeout(self.limit, attempt).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(DeliveryError::Transient("the attempt panicked".to_owned())),
            Err(_) => Err(DeliveryError::Transient("it took too long".to_owned())),
        }
    }

    fn after(&self, row: &OutboxMessage, failure: &DeliveryError) -> Settlement {
        let spent = matches!(failure, DeliveryError::Permanent(_)) || row.attempts >= MAX_ATTEMPTS;
        let park = spent && self.retry_policy == RetryPolicy::DeadLetter;
        tracing::warn!(outbox_id = %row.outbox_id, kind = row.kind, attempts = row.attempts, parked = park, error = %failure, "an effect did not come about");
        let error = failure.to_string();
        if park {
            return Settlement::Parked { error };
        }
        let wait = back_off(row.attempts);
        let wait = if self.retry_policy == RetryPolicy::Unlimited { wait.min(MAX_WAIT) } else { wait };
        Settlement::Later { due_at: self.clock.now() + wait, error }
    }

    async fn claim(&self) -> Result<Vec<OutboxMessage>, Error> {
        let now = self.clock.now();
        let claim = format!("select * from {}.outbox_claim($1, $2, $3, $4, $5)", self.outbox.schema);
        let rows = sqlx::query_as(sqlx::AssertSqlSafe(claim))
            .bind(Uuid::now_v7())
            .bind(now)
            .bind(now + (self.limit * u32::from(BATCH) + MARGIN))
            .bind(i32::from(BATCH))
            .bind(self.kinds)
            .fetch_all(self.database.pool())
            .await?;
        Ok(rows)
    }

    async fn settle(&self, row: &OutboxMessage, settlement: Settlement) -> Result<(), Error> {
        let delivered = &self.outbox.metrics.delivered;
        match settlement {
            Settlement::Done => delivered.done.inc(),
            Settlement::Later { .. } => delivered.later.inc(),
            Settlement::Parked { .. } => delivered.parked.inc(),
        };
        let (state, due_at, error) = match settlement {
            Settlement::Done => ("done", None, None),
            Settlement::Later { due_at, error } => ("later", Some(due_at), Some(error)),
            Settlement::Parked { error } => ("parked", None, Some(error)),
        };
        let settle = format!("select {}.outbox_settle($1, $2, $3, $4, $5, $6)", self.outbox.schema);
        sqlx::query(sqlx::AssertSqlSafe(settle))
            .bind(row.outbox_id)
            .bind(row.fence)
            .bind(state)
            .bind(due_at)
            .bind(error)
            .bind(self.clock.now())
            .execute(self.database.pool())
            .await?;
        Ok(())
    }
}

enum Settlement {
    Done,
    Later { due_at: DateTime<Utc>, error: String },
    Parked { error: String },
}

/// 2 s, 8 s, 32 s, 128 s: long enough together to outlast a restart of what was away.
fn back_off(attempts: i32) -> TimeDelta {
    let exponent = u32::try_from(attempts.clamp(1, MAX_ATTEMPTS) - 1).unwrap_or(0);
    TimeDelta::seconds(2 * 4_i64.pow(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_with_each_attempt() {
        let waits: Vec<_> = (1..5).map(|attempts| back_off(attempts).num_seconds()).collect();
        assert_eq!(waits, [2, 8, 32, 128]);
    }
}
