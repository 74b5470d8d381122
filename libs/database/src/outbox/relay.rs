//! The relay: the background task that delivers outbox messages. Several processes can run one.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use service::{Clock, Tasks, chain};
use tokio::time::Instant;

use super::OutboxMessage;
use super::groups::Groups;
use super::metrics::RelayMetrics;
use super::queue::{Claim, Outcome, Postponement, Queue, Settlement, State};
use crate::{Database, Error};

/// The usual number of deliveries at the same time.
pub const CONCURRENCY: u16 = 4;
/// A lease lasts this much longer than the timeout of the delivery.
const LEASE_MARGIN: Duration = Duration::from_secs(20);
/// The usual timeout of one delivery.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between claims: finds messages of other processes and retries that are due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between claims while they fail, for example because the password is wrong.
const MAX_CLAIM_BACK_OFF: Duration = Duration::from_secs(5);
/// Minimum interval between a claim that found messages and the next one while the relay has free slots. Messages that are written one
/// after the other are claimed together: a claim takes a millisecond of Postgres, more than most transactions that write a message.
const CLAIM_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between updates of the outbox gauges.
const STATS_INTERVAL: Duration = Duration::from_secs(15);
/// How long the messages of a tenant are postponed.
const TENANT_PAUSE: TimeDelta = TimeDelta::minutes(5);
/// The longest back-off of messages that must arrive.
const MAX_UNLIMITED_BACK_OFF: TimeDelta = TimeDelta::seconds(30);
/// The longest back-off of other messages.
const MAX_BACK_OFF: TimeDelta = TimeDelta::minutes(5);

/// Delivers messages. Delivery must be safe to repeat.
pub trait Deliver: Send + Sync + 'static {
    /// Delivers one message. A cancelled call counts as an attempt.
    fn deliver(&self, message: &OutboxMessage) -> impl Future<Output = Result<(), DeliveryError>> + Send;
}

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// A later attempt can succeed.
    #[error("{0}")]
    Transient(String),
    /// No attempt can succeed: the message is dead-lettered.
    #[error("{0}")]
    Permanent(String),
    /// No message of the relay for this tenant can be delivered for a while: all of them are postponed.
    #[error("{0}")]
    TenantBlocked(String),
}

/// The handling of a message after a failed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// It is dead-lettered after this number of attempts, or after a permanent error.
    DeadLetter {
        /// At least 1.
        attempts: i32,
    },
    /// It is retried without limit, for messages that must arrive, such as a change of account status.
    Unlimited,
}

/// Delivers messages of the given kinds until the process stops, the first kind first. Tenants take turns. Kinds that must not
/// delay each other have separate relays. A message of another kind stays in the outbox: a newer release wrote it, and its
/// relay claims it.
pub struct Relay<D, Q = Database> {
    /// The database with the outbox.
    pub queue: Q,
    /// The name in metrics: the label `kind`.
    pub name: &'static str,
    /// The kinds of messages.
    pub kinds: &'static [&'static str],
    /// What happens after a failed delivery.
    pub retry_policy: RetryPolicy,
    /// The timeout of one delivery.
    pub timeout: Duration,
    /// The number of deliveries at the same time. At most half of them, rounded up, are for one tenant.
    pub concurrency: u16,
    /// Delivers the messages.
    pub deliver: D,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl RetryPolicy {
    /// Tries for about as long as this, a multiple of five minutes.
    pub const fn for_minutes(minutes: i32) -> Self {
        // The first attempts are in the first three minutes.
        Self::DeadLetter { attempts: 5 + minutes / 5 }
    }

    /// Returns whether these attempts are all.
    fn is_exhausted(self, attempts: i32) -> bool {
        matches!(self, Self::DeadLetter { attempts: max } if attempts >= max)
    }

    /// 2 s, 8 s, 32 s, 128 s, and then the longest back-off.
    fn back_off(self, attempts: i32) -> TimeDelta {
        let exponent = u32::try_from(attempts.clamp(1, 8) - 1).unwrap_or(0);
        TimeDelta::seconds(2 * 4_i64.pow(exponent)).min(match self {
            Self::DeadLetter { .. } => MAX_BACK_OFF,
            Self::Unlimited => MAX_UNLIMITED_BACK_OFF,
        })
    }
}

impl<D: Deliver, Q: Queue> Relay<D, Q> {
    /// Runs until the tasks are stopped. Deliveries in progress are completed.
    pub async fn run(self, tasks: Tasks) {
        let mut stats_read: Option<Instant> = None;
        let mut woken = self.queue.woken(self.kinds);
        let settler = Settler { metrics: self.metrics(), outcomes: Groups::default() };
        let mut deliveries = FuturesUnordered::new();
        // The turn of the last claim. Each relay has its own: the turns are fair in each, and so in all.
        let mut last_turn = String::new();
        let mut outage = Outage::default();
        while !tasks.stopping().is_cancelled() {
            if stats_read.is_none_or(|at| at.elapsed() >= STATS_INTERVAL) {
                self.read_stats(&settler.metrics).await;
                stats_read = Some(Instant::now());
            }
            let free = usize::from(self.concurrency) - deliveries.len();
            let claimed_at = Instant::now();
            // Deliveries continue during the claim. During a flood of messages, most of the time passes in claims.
            let mut slot_freed = false;
            let claimed = {
                let mut claim = pin!(self.claim(free, &last_turn));
                loop {
                    tokio::select! {
                        biased;
                        claimed = &mut claim => break claimed,
                        Some(()) = deliveries.next() => slot_freed = true,
                    }
                }
            };
            let claimed = outage.record(claimed, self.queue.schema());
            if let Some(last) = claimed.last() {
                last.turn.clone_into(&mut last_turn);
            }
            let has_free_slot = claimed.len() < free;
            let pause = if claimed.is_empty() { Duration::ZERO } else { CLAIM_INTERVAL };
            deliveries.extend(claimed.into_iter().map(|message| self.process(message, &settler)));
            // Otherwise all messages that are due were claimed, and only a wake or the poll finds further ones. The share of a tenant
            // includes the deliveries of other processes, so it can be exhausted with fewer here.
            let is_limited = !has_free_slot || deliveries.len() * 4 >= usize::from(self.share());
            if is_limited && slot_freed {
                continue;
            }
            let mut next_claim = claimed_at + outage.claim_interval();
            loop {
                tokio::select! {
                    // In this order, so that a simulation is repeatable.
                    biased;
                    Some(()) = deliveries.next() => {
                        // All that are complete, so that the next claim is a large one.
                        while let Some(Some(())) = deliveries.next().now_or_never() {}
                        if is_limited {
                            break;
                        }
                    }
                    // `self` owns the sender, so the channel is open.
                    _ = woken.changed(), if has_free_slot => next_claim = claimed_at + pause,
                    () = tokio::time::sleep_until(next_claim), if has_free_slot => break,
                    () = tasks.stopping().cancelled() => break,
                }
            }
        }
        while deliveries.next().await.is_some() {}
    }

    /// The number of deliveries at the same time for one tenant.
    fn share(&self) -> u16 {
        self.concurrency.div_ceil(2)
    }

    fn metrics(&self) -> RelayMetrics {
        RelayMetrics::new(self.queue.metrics(), self.queue.schema(), self.name)
    }

    /// Updates the gauges. They keep their values if the database is not available.
    async fn read_stats(&self, metrics: &RelayMetrics) {
        match self.queue.stats(self.kinds, self.clock.now()).await {
            Ok(stats) => {
                metrics.oldest.set(stats.oldest_seconds);
                metrics.pending.set(stats.pending);
                metrics.dead_lettered_rows.set(stats.dead_lettered);
            }
            Err(error) => {
                let (error, schema) = (chain(&error), self.queue.schema());
                tracing::debug!(error, schema, "failed to read outbox statistics");
            }
        }
    }

    /// Delivers a message in the trace of the request that wrote it.
    async fn process(&self, message: OutboxMessage, settler: &Settler) {
        match message.origin() {
            Some(origin) => origin.resume("outbox.deliver", self.deliver_and_settle(message, settler)).await,
            None => self.deliver_and_settle(message, settler).await,
        }
    }

    async fn deliver_and_settle(&self, message: OutboxMessage, settler: &Settler) {
        let settlement = match self.try_deliver(&message).await {
            Ok(()) => Settlement { state: State::Delivered, due_at: None, error: None },
            Err(error) => self.settlement_after(&message, &error),
        };
        settler.metrics.deliveries[settlement.state as usize].inc();
        let outcome = Outcome { message, settlement };
        let settled = settler.outcomes.write(outcome, |outcomes| self.settle(outcomes)).await;
        if let Err(error) = settled {
            tracing::warn!(
                error = chain(&error),
                "failed to settle outbox messages; they will be redelivered"
            );
        }
    }

    /// One attempt, with a timeout. A panic is an error.
    async fn try_deliver(&self, message: &OutboxMessage) -> Result<(), DeliveryError> {
        if self.retry_policy.is_exhausted(message.attempts - 1) {
            return Err(DeliveryError::Permanent("no attempt completed".to_owned()));
        }
        let attempt = AssertUnwindSafe(self.deliver.deliver(message)).catch_unwind();
        match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(DeliveryError::Transient("the attempt panicked".to_owned())),
            Err(_) => Err(DeliveryError::Transient("the attempt timed out".to_owned())),
        }
    }

    fn settlement_after(&self, message: &OutboxMessage, error: &DeliveryError) -> Settlement {
        let due_after = |state, delay| Settlement {
            state,
            due_at: Some(self.clock.now() + delay),
            error: Some(error.to_string()),
        };
        if let DeliveryError::TenantBlocked(_) = error {
            return due_after(State::Postponed, TENANT_PAUSE);
        }
        let (outbox_id, kind, attempts) = (message.outbox_id, &message.kind, message.attempts);
        let is_permanent =
            matches!(error, DeliveryError::Permanent(_)) && self.retry_policy != RetryPolicy::Unlimited;
        if is_permanent || self.retry_policy.is_exhausted(attempts) {
            tracing::warn!(%outbox_id, kind, attempts, %error, "failed to deliver outbox message; dead-lettered");
            return Settlement { state: State::DeadLettered, due_at: None, error: Some(error.to_string()) };
        }
        tracing::warn!(%outbox_id, kind, attempts, %error, "failed to deliver outbox message; retrying");
        due_after(State::Retried, self.retry_policy.back_off(attempts))
    }

    /// Claims messages that are due, beginning with the turn after the given one.
    async fn claim(&self, limit: usize, after: &str) -> Result<Vec<OutboxMessage>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let claim = Claim {
            now,
            lease_until: now + (self.timeout + LEASE_MARGIN),
            limit,
            kinds: self.kinds,
            share: self.share(),
            after,
        };
        self.queue.claim(claim).await
    }

    async fn settle(&self, outcomes: Vec<Outcome>) -> Result<(), Error> {
        let now = self.clock.now();
        self.queue.settle(&outcomes, now).await?;
        let postponed = || outcomes.iter().filter(|outcome| outcome.settlement.state == State::Postponed);
        let Some(Outcome { settlement, .. }) = postponed().next() else { return Ok(()) };
        let postponement = Postponement {
            turns: postponed().map(|outcome| &*outcome.message.turn).collect(),
            kinds: self.kinds,
            now,
            until: settlement.due_at,
            error: settlement.error.as_deref(),
        };
        self.queue.postpone(postponement).await
    }
}

/// The claims that have failed since the last one that succeeded.
#[derive(Default)]
struct Outage {
    failures: u32,
    /// The error that was logged last.
    error: String,
}

impl Outage {
    /// Returns the messages of a claim, none if it failed. Logs the first error and each changed one.
    fn record(
        &mut self,
        claimed: Result<Vec<OutboxMessage>, Error>,
        schema: &'static str,
    ) -> Vec<OutboxMessage> {
        match claimed {
            Ok(claimed) => {
                *self = Self::default();
                claimed
            }
            Err(error) => {
                let error = chain(&error);
                if self.is_new(&error) {
                    tracing::warn!(error, schema, "failed to claim outbox messages");
                }
                Vec::new()
            }
        }
    }

    /// Counts a failed claim, and returns whether its error is not the last one.
    fn is_new(&mut self, error: &str) -> bool {
        self.failures += 1;
        let is_new = self.error != error;
        error.clone_into(&mut self.error);
        is_new
    }

    /// The interval from one claim to the next one without new messages: 1 s, also after the first failure, then 2 s, 4 s and 5 s.
    fn claim_interval(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(3);
        (POLL_INTERVAL * 2_u32.pow(doublings)).min(MAX_CLAIM_BACK_OFF)
    }
}

/// Counts outcomes, and settles them in groups.
struct Settler {
    metrics: RelayMetrics,
    outcomes: Groups<Outcome>,
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_grows_with_each_attempt() {
        let seconds = |policy: RetryPolicy| [1, 2, 3, 4, 5, 900].map(|n| policy.back_off(n).num_seconds());
        assert_eq!(seconds(RetryPolicy::for_minutes(60)), [2, 8, 32, 128, 300, 300]);
        assert_eq!(seconds(RetryPolicy::Unlimited), [2, 8, 30, 30, 30, 30]);
    }

    #[test]
    fn claims_that_fail_become_rare_and_each_error_is_logged_once() {
        let mut outage = Outage::default();
        let mut failed = |error| {
            let is_logged = outage.is_new(error);
            (is_logged, outage.claim_interval().as_secs())
        };
        assert_eq!(
            [failed("password"), failed("password"), failed("name")],
            [(true, 1), (false, 2), (true, 4)]
        );
        assert_eq!([failed("name"), failed("name")], [(false, 5); 2]);
        assert!(outage.record(Ok(Vec::new()), "test").is_empty());
        assert_eq!((outage.claim_interval(), outage.is_new("name")), (POLL_INTERVAL, true));
    }

    #[test]
    fn a_message_that_cannot_be_delivered_is_tried_for_the_given_time() {
        let hour = RetryPolicy::for_minutes(60);
        let attempts = (1..).take_while(|attempts| !hour.is_exhausted(*attempts));
        let minutes = attempts.map(|attempts| hour.back_off(attempts)).sum::<TimeDelta>().num_minutes();
        assert!((60..65).contains(&minutes), "{minutes}");
    }
}
