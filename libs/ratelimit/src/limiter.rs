//! Counts requests in the table `limits` of a schema, which all replicas share. Requests of a subject that exceeds a limit
//! need no statement until the limit allows one.

use std::sync::Arc;
use std::time::Duration;

use contract::ProblemKind;
use database::Database;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use service::telemetry::{Labels, Metrics};
use service::{Clock, KeyedLocks, Problem, Tasks, chain};
use sqlx::{PgConnection, PgExecutor};
use tokio::sync::MutexGuard;

use crate::gcra::lead;
use crate::memory::MemoryStore;
use crate::postgres::PostgresStore;
use crate::{Limit, Rate, Source};

/// Interval of the purge of expired rows.
const PURGE_INTERVAL: Duration = Duration::from_mins(1);

/// Rate limiter of one schema. Clones share its state.
#[derive(Clone)]
pub struct Limiter(Arc<LimiterState>);

struct LimiterState {
    table: PostgresStore,
    clock: Arc<dyn Clock>,
    /// The subjects that this replica has rejected.
    rejected: MemoryStore,
    /// Of lookups of tokens and codes, by limit and source.
    lookups: KeyedLocks,
    metrics: LimiterMetrics,
}

/// A request that was not allowed.
#[derive(Debug, thiserror::Error)]
pub enum RateLimitError {
    /// The rate limit is exceeded.
    #[error("rate limit exceeded; retry after {retry_after:?}")]
    Limited {
        /// Time until the next request is allowed.
        retry_after: Duration,
    },
    /// The counter is unavailable.
    #[error("failed to count request")]
    Unavailable(#[source] database::Error),
}

impl From<RateLimitError> for Problem {
    /// Returns 429, or 503 if the request could not be counted.
    fn from(error: RateLimitError) -> Self {
        match error {
            RateLimitError::Limited { retry_after } => {
                Self::new(ProblemKind::RateLimited).retry_after(retry_after)
            }
            RateLimitError::Unavailable(_) => Self::new(ProblemKind::DependencyUnavailable).caused_by(error),
        }
    }
}

/// Decisions of all limits of a process.
#[derive(Clone, Debug)]
pub struct LimiterMetrics(Family<Labels, Counter>);

impl LimiterMetrics {
    /// Returns the counters of a process, and registers them on the first call.
    pub fn new(metrics: &Metrics) -> Self {
        Self(metrics.family("limiter_decisions", "Rate limit decisions"))
    }

    /// Counts an allowed request.
    pub fn allowed(&self, limit: &'static str) {
        self.count(limit, "allowed");
    }

    /// Counts a rejected request.
    pub fn rejected(&self, limit: &'static str) {
        self.count(limit, "rejected");
    }

    /// Counts a request that could not be counted.
    pub fn unavailable(&self, limit: &'static str) {
        self.count(limit, "unavailable");
    }

    fn count(&self, limit: &'static str, decision: &'static str) {
        self.0.get_or_create(&vec![("limit", limit.into()), ("decision", decision.into())]).inc();
    }
}

impl Limiter {
    /// Creates the limiter of a schema.
    pub fn new(schema: &'static str, database: Database, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        Self(Arc::new(LimiterState {
            table: PostgresStore { schema, database },
            clock,
            rejected: MemoryStore::default(),
            lookups: KeyedLocks::default(),
            metrics: LimiterMetrics::new(metrics),
        }))
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock)
    }

    /// Returns the counters of decisions.
    pub fn metrics(&self) -> &LimiterMetrics {
        &self.0.metrics
    }

    /// Counts a request of a [`source`](crate::source), or of another text. A request is allowed if all networks of the source
    /// allow it.
    ///
    /// # Errors
    /// The rate limit is exceeded, or the database is unavailable.
    pub async fn count(&self, limit: &Limit, source: impl Into<Source>) -> Result<(), RateLimitError> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        let source = source.into();
        self.check(limit, &source)?;
        let rejected = Some(&self.0.rejected);
        self.decide(self.0.table.database.pool(), limit.name, rate, &source, rejected).await
    }

    /// Counts a request as [`Self::count`], if the transaction of the connection commits. Transactions that count the same
    /// subject wait for each other.
    ///
    /// # Errors
    /// As for [`Self::count`].
    pub async fn count_in(
        &self,
        connection: &mut PgConnection,
        limit: &Limit,
        source: &Source,
    ) -> Result<(), RateLimitError> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        // The rejection can follow from counts of a transaction that is rolled back.
        self.decide(connection, limit.name, rate, source, None).await
    }

    /// Reverts one [`Self::count_in`].
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn refund_in(
        &self,
        connection: &mut PgConnection,
        limit: &Limit,
        source: &Source,
    ) -> Result<(), database::Error> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        self.0.table.refund(connection, limit.name, rate, source.networks()).await
    }

    /// Counts a request in the table. Remembers a rejection in `rejected`.
    async fn decide(
        &self,
        executor: impl PgExecutor<'_>,
        limit: &'static str,
        rate: &Rate,
        source: &Source,
        rejected: Option<&MemoryStore>,
    ) -> Result<(), RateLimitError> {
        let LimiterState { table, clock, metrics, .. } = &*self.0;
        let now = clock.now();
        let rejection =
            table.count(executor, limit, rate, source.networks(), now).await.map_err(|error| {
                metrics.unavailable(limit);
                RateLimitError::Unavailable(error)
            })?;
        let Some((network, arrival)) = rejection else {
            metrics.allowed(limit);
            return Ok(());
        };
        metrics.rejected(limit);
        if let Some(rejected) = rejected {
            rejected.raise(limit, &network.name, arrival, now);
        }
        let decision = network.rule(rate).decide(lead(arrival, now), Duration::ZERO);
        Err(RateLimitError::Limited { retry_after: decision.err().unwrap_or_default() })
    }

    /// Rejects a request of a source that this replica has rejected, until the limit allows the next one. Needs no statement, and counts no
    /// request of the source.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn check(&self, limit: &Limit, source: impl Into<Source>) -> Result<(), RateLimitError> {
        let LimiterState { clock, rejected, metrics, .. } = &*self.0;
        let Some(rate) = &limit.rate else { return Ok(()) };
        rejected.check(limit.name, rate, &source.into(), clock.now()).map_err(|retry_after| {
            metrics.rejected(limit.name);
            RateLimitError::Limited { retry_after }
        })
    }

    /// Counts a request that presents a secret, only if `lookup` fails with an error that `is_wrong` accepts.
    ///
    /// Counts before the lookup, so that guesses at the same time cannot exceed the limit, and refunds the count unless the secret was
    /// wrong. In a replica, the lookups of one source run one after the other. Otherwise people behind one address who present
    /// valid secrets at the same time would exceed the limit until their counts are refunded.
    ///
    /// # Errors
    /// The error of the lookup, or as for [`Self::count`].
    pub async fn count_wrong<T, E: From<RateLimitError>>(
        &self,
        limit: &Limit,
        source: impl Into<Source>,
        lookup: impl Future<Output = Result<T, E>>,
        is_wrong: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let Some(rate) = &limit.rate else { return lookup.await };
        let source = source.into();
        self.check(limit, &source)?;
        let _lookup = self.lock(limit, &source).await;
        self.count(limit, &source).await?;
        let result = lookup.await;
        if !result.as_ref().is_err_and(is_wrong) {
            // The lookup can have effects, so a failed refund does not change its result.
            let table = &self.0.table;
            let pool = table.database.pool();
            if let Err(error) = table.refund(pool, limit.name, rate, source.networks()).await {
                tracing::warn!(limit = limit.name, error = chain(&error), "failed to refund rate limit");
            }
        }
        result
    }

    /// Waits until no other lookup of the source runs in this replica, so that a client that guesses uses one connection to the database
    /// at a time. The lookup ends when the guard is dropped.
    pub async fn lock(&self, limit: &Limit, source: &Source) -> MutexGuard<'_, ()> {
        self.0.lookups.lock((limit.name, source.to_string())).await
    }

    /// Purges expired rows periodically until the process stops.
    pub fn purge_expired(&self, tasks: &Tasks) {
        let limiter = self.clone();
        tasks.every("limits", PURGE_INTERVAL, move || limiter.clone().try_purge());
    }

    async fn try_purge(self) {
        if let Err(error) = self.purge_once().await {
            let schema = self.0.table.schema;
            tracing::warn!(error = chain(&error), schema, "failed to purge expired rate limits");
        }
    }

    /// Purges expired rows.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn purge_once(&self) -> Result<(), database::Error> {
        self.0.table.delete_before(self.0.clock.now()).await
    }
}
