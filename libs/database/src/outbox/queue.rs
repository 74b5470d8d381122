//! The queue of a relay: the statements that claim and settle messages. The simulation of the relay has another implementation.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use service::telemetry::Metrics;
use sqlx::AssertSqlSafe;
use tokio::sync::watch;
use uuid::Uuid;

use super::OutboxMessage;
use crate::{Database, Error};

/// The messages of the relays of one schema.
pub trait Queue: Send + Sync + 'static {
    /// Leases messages that are due, and counts an attempt of each.
    fn claim(&self, claim: Claim<'_>) -> impl Future<Output = Result<Vec<OutboxMessage>, Error>> + Send;

    /// Writes outcomes. The outcome of a message that another relay has claimed since then has no effect.
    fn settle(
        &self,
        outcomes: &[Outcome],
        now: DateTime<Utc>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Pauses these turns: none of their messages is claimed for a while.
    fn postpone(&self, postponement: Postponement<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts the messages of these kinds, and finds the tenants of which too many wait.
    fn stats(&self, kinds: &[&str], now: DateTime<Utc>) -> impl Future<Output = Result<Stats, Error>> + Send;

    /// Reports new messages of these kinds that this process wrote.
    fn woken(&self, kinds: &'static [&'static str]) -> watch::Receiver<()>;

    /// The name of the schema.
    fn schema(&self) -> &'static str;

    /// Where the relays register their metrics.
    fn metrics(&self) -> &Metrics;
}

/// What a relay claims.
pub struct Claim<'a> {
    pub(super) now: DateTime<Utc>,
    /// When other relays can claim the messages again.
    pub(super) lease_until: DateTime<Utc>,
    pub(super) limit: usize,
    /// The first kind first.
    pub(super) kinds: &'a [&'static str],
    /// How many messages of one turn can be leased at the same time.
    pub(super) share: u16,
    /// Turns after this one are first.
    pub(super) after: &'a str,
}

/// The outcome of a delivery.
pub struct Outcome {
    pub(super) message: OutboxMessage,
    pub(super) settlement: Settlement,
}

/// How a delivered message leaves the outbox, or when the next attempt is due.
pub(super) struct Settlement {
    pub(super) state: State,
    pub(super) due_at: Option<DateTime<Utc>>,
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Delivered,
    Retried,
    Postponed,
    DeadLettered,
}

impl State {
    /// The name in `outbox_settle`.
    fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retried | Self::Postponed => "retried",
            Self::DeadLettered => "dead_lettered",
        }
    }
}

/// What a relay postpones.
pub struct Postponement<'a> {
    pub(super) turns: BTreeSet<&'a str>,
    pub(super) kinds: &'a [&'static str],
    pub(super) now: DateTime<Utc>,
    pub(super) until: Option<DateTime<Utc>>,
    pub(super) error: Option<&'a str>,
}

/// Number and age of messages.
#[derive(Default, sqlx::FromRow)]
pub struct Stats {
    pub(super) oldest_seconds: f64,
    pub(super) pending: i64,
    pub(super) dead_lettered: i64,
}

impl Queue for Database {
    async fn claim(&self, claim: Claim<'_>) -> Result<Vec<OutboxMessage>, Error> {
        let statement = format!("select * from {}.outbox_claim($1, $2, $3, $4, $5, $6, $7)", self.schema());
        let messages = sqlx::query_as(AssertSqlSafe(statement))
            .bind(Uuid::now_v7())
            .bind(claim.now)
            .bind(claim.lease_until)
            .bind(i32::try_from(claim.limit).unwrap_or(i32::MAX))
            .bind(claim.kinds)
            .bind(i32::from(claim.share))
            .bind(claim.after)
            .fetch_all(self.relay_pool())
            .await?;
        Ok(messages)
    }

    async fn settle(&self, outcomes: &[Outcome], now: DateTime<Utc>) -> Result<(), Error> {
        let statement = format!("select {}.outbox_settle($1, $2, $3, $4, $5, $6)", self.schema());
        let messages = outcomes.iter().map(|outcome| &outcome.message);
        let settlements = outcomes.iter().map(|outcome| &outcome.settlement);
        sqlx::query(AssertSqlSafe(statement))
            .bind(messages.clone().map(|message| message.outbox_id).collect::<Vec<_>>())
            .bind(messages.map(|message| message.fence).collect::<Vec<_>>())
            .bind(settlements.clone().map(|settlement| settlement.state.name()).collect::<Vec<_>>())
            .bind(settlements.clone().map(|settlement| settlement.due_at).collect::<Vec<_>>())
            .bind(settlements.map(|settlement| settlement.error.as_deref()).collect::<Vec<_>>())
            .bind(now)
            .execute(self.relay_pool())
            .await?;
        Ok(())
    }

    async fn postpone(&self, postponement: Postponement<'_>) -> Result<(), Error> {
        let statement = format!("select {}.outbox_postpone($1, $2, $3, $4, $5)", self.schema());
        sqlx::query(AssertSqlSafe(statement))
            .bind(postponement.turns.into_iter().collect::<Vec<_>>())
            .bind(postponement.kinds)
            .bind(postponement.now)
            .bind(postponement.until)
            .bind(postponement.error)
            .execute(self.relay_pool())
            .await?;
        Ok(())
    }

    async fn stats(&self, kinds: &[&str], now: DateTime<Utc>) -> Result<Stats, Error> {
        let statement = format!(
            "select oldest_seconds, pending, dead_lettered from {}.outbox_stats($1, $2, $3)",
            self.schema()
        );
        let stats =
            sqlx::query_as(AssertSqlSafe(statement)).bind(now).bind(kinds).bind(self.outbox().max_waiting);
        Ok(stats.fetch_one(self.relay_pool()).await?)
    }

    fn woken(&self, kinds: &'static [&'static str]) -> watch::Receiver<()> {
        self.outbox().woken(kinds)
    }

    fn schema(&self) -> &'static str {
        self.outbox().schema
    }

    fn metrics(&self) -> &Metrics {
        &self.outbox().metrics
    }
}
