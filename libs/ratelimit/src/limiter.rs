//! Counts requests in the table `limits` of a schema, which all replicas share. Requests of a subject that exceeds a limit
//! need no statement until its rejection expires.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use contract::ProblemKind;
use database::Database;
use moka::Expiry;
use moka::sync::Cache;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use service::telemetry::{Labels, Metrics};
use service::{Clock, Problem, Tasks, chain};
use tokio::sync::{Mutex, MutexGuard};

use crate::buffered::Counts;
use crate::{Limit, Network, Rate, Source};

/// Interval of the purge of expired rows.
const PURGE_INTERVAL: Duration = Duration::from_mins(1);
/// Small, so that the locks of a purge are short.
const PURGE_BATCH: i32 = 1000;

/// Rate limiter of one schema. Clones share its state.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    schema: &'static str,
    database: Database,
    clock: Arc<dyn Clock>,
    rejections: Rejections,
    guesses: Guesses,
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
    pub fn of(metrics: &Metrics) -> Self {
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

    /// Counts a request that could not be counted, or an exchange of counts that failed.
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
        Self(Arc::new(Shared {
            schema,
            database,
            clock,
            rejections: Rejections::default(),
            guesses: Guesses::default(),
            metrics: LimiterMetrics::of(metrics),
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
        let Shared { clock, rejections, metrics, .. } = &*self.0;
        let now = clock.now();
        match self.store(limit.name, rate, source.networks(), now).await {
            Ok(None) => {
                metrics.allowed(limit.name);
                Ok(())
            }
            Ok(Some((network, until))) => {
                rejections.insert(limit.name, &network.name, until, now);
                metrics.rejected(limit.name);
                Err(limited(until, now))
            }
            Err(error) => {
                metrics.unavailable(limit.name);
                Err(RateLimitError::Unavailable(error))
            }
        }
    }

    /// Rejects a request of a source that this replica has rejected, until the limit allows the next one. Needs no statement, and counts no
    /// request of the source.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn check(&self, limit: &Limit, source: impl Into<Source>) -> Result<(), RateLimitError> {
        let Shared { clock, rejections, metrics, .. } = &*self.0;
        let (source, now) = (source.into(), clock.now());
        let mut networks = source.networks().iter();
        match networks.find_map(|network| rejections.find(limit.name, &network.name, now)) {
            None => Ok(()),
            Some(until) => {
                metrics.rejected(limit.name);
                Err(limited(until, now))
            }
        }
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
        if limit.rate.is_none() {
            return lookup.await;
        }
        let source = source.into();
        self.check(limit, &source)?;
        let _turn = self.0.guesses.turn(limit.name, &source).await;
        self.count(limit, &source).await?;
        let result = lookup.await;
        if !result.as_ref().is_err_and(is_wrong) {
            // The lookup can have effects, so a failed refund does not change its result.
            if let Err(error) = self.refund(limit, &source).await {
                tracing::warn!(limit = limit.name, error = chain(&error), "failed to refund rate limit");
            }
        }
        result
    }

    /// Counts a request in the database. Returns the network that rejects it, with the time of the next allowed request.
    async fn store<'a>(
        &self,
        limit: &'static str,
        rate: &Rate,
        networks: &'a [Network],
        now: DateTime<Utc>,
    ) -> Result<Option<(&'a Network, DateTime<Utc>)>, database::Error> {
        let tolerance = delta(rate.burst_tolerance());
        let count = sqlx::AssertSqlSafe(count_statement(self.0.schema, networks.len()));
        let mut query = sqlx::query_as(count).bind(limit).bind(now).bind(tolerance);
        for network in networks {
            query = query.bind(&network.name).bind(network.interval(rate));
        }
        let rejection: Option<(i32, DateTime<Utc>)> = query.fetch_optional(self.0.database.pool()).await?;
        Ok(rejection
            .and_then(|(index, next_at)| Some((networks.get(usize::try_from(index).ok()?)?, next_at))))
    }

    /// Reverts one [`Self::count`].
    async fn refund(&self, limit: &Limit, source: impl Into<Source>) -> Result<(), database::Error> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        let refund = format!(
            "-- limit.refund
            update {}.limits
            set theoretical_arrival_at = theoretical_arrival_at - refunded.interval
            from unnest($2::text[], $3::interval[]) as refunded (subject, interval)
            where limit_name = $1 and limits.subject = refunded.subject",
            self.0.schema
        );
        let source = source.into();
        let of_network = |network: &Network| (network.name.clone(), network.interval(rate));
        let (subjects, intervals): (Vec<_>, Vec<_>) = source.networks().iter().map(of_network).unzip();
        sqlx::query(sqlx::AssertSqlSafe(refund))
            .bind(limit.name)
            .bind(subjects)
            .bind(intervals)
            .execute(self.0.database.pool())
            .await?;
        Ok(())
    }

    /// Adds requests that were counted in memory. Returns the resulting theoretical arrival time of each network.
    pub(crate) async fn add(
        &self,
        limit: &'static str,
        counts: Counts,
    ) -> Result<Vec<(String, DateTime<Utc>)>, database::Error> {
        // The order prevents deadlocks between replicas.
        let add = format!(
            "-- limit.add
            insert into {}.limits as stored (limit_name, subject, theoretical_arrival_at, allowed)
            select $1, added.subject, $2 + added.intervals, true
            from unnest($3::text[], $4::interval[]) as added (subject, intervals)
            order by added.subject
            on conflict (limit_name, subject) do update
            set theoretical_arrival_at =
                greatest(stored.theoretical_arrival_at, $2) + (excluded.theoretical_arrival_at - $2)
            returning subject, theoretical_arrival_at",
            self.0.schema
        );
        let (subjects, intervals): (Vec<_>, Vec<_>) = counts.intervals.into_iter().unzip();
        sqlx::query_as(sqlx::AssertSqlSafe(add))
            .bind(limit)
            .bind(counts.since)
            .bind(subjects)
            .bind(intervals)
            .fetch_all(self.0.database.pool())
            .await
            .map_err(Into::into)
    }

    /// Purges expired rows periodically until the process stops.
    pub fn purge_expired(&self, tasks: &Tasks) {
        let limiter = self.clone();
        tasks.every("limits", PURGE_INTERVAL, move || limiter.clone().try_purge());
    }

    async fn try_purge(self) {
        if let Err(error) = self.purge_once().await {
            let schema = self.0.schema;
            tracing::warn!(error = chain(&error), schema, "failed to purge expired rate limits");
        }
    }

    /// Purges expired rows: a theoretical arrival time in the past restricts no request.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn purge_once(&self) -> Result<(), database::Error> {
        // Replicas can purge at the same time; each skips the rows that another one has locked.
        let purge = format!(
            "-- limit.delete_before
            delete from {schema}.limits where ctid = any(array(
                select ctid
                from {schema}.limits
                where theoretical_arrival_at <= $1
                limit $2
                for update skip locked
            ))",
            schema = self.0.schema
        );
        loop {
            let purged = sqlx::query(sqlx::AssertSqlSafe(purge.clone()))
                .bind(self.0.clock.now())
                .bind(PURGE_BATCH)
                .execute(self.0.database.pool())
                .await?;
            if purged.rows_affected() < u64::from(PURGE_BATCH.unsigned_abs()) {
                return Ok(());
            }
        }
    }
}

/// The rejection of a request until a time.
fn limited(until: DateTime<Utc>, now: DateTime<Utc>) -> RateLimitError {
    RateLimitError::Limited { retry_after: (until - now).to_std().unwrap_or_default() }
}

/// The statement that counts a request in nested networks, narrowest first. A network counts the requests that the narrower
/// ones allow, so that a source above its limit does not use up the limit of its neighbours. Returns the network that rejects
/// the request. A rejection rewrites the existing values, so that one statement can return the decision. All statements lock
/// the rows in this order.
fn count_statement(schema: &str, networks: usize) -> String {
    let counted = (0..networks).map(|index| {
        let (subject, interval) = (2 * index + 4, 2 * index + 5);
        let allowed =
            if index == 0 { String::new() } else { format!("from network_{} where allowed", index - 1) };
        format!(
            "network_{index} as (
                insert into {schema}.limits as stored (limit_name, subject, theoretical_arrival_at, allowed)
                select $1, ${subject}, $2 + ${interval}, true {allowed}
                on conflict (limit_name, subject) do update
                set allowed = greatest(stored.theoretical_arrival_at, $2) + ${interval} <= $2 + $3,
                    theoretical_arrival_at = case
                        when greatest(stored.theoretical_arrival_at, $2) + ${interval} <= $2 + $3
                            then greatest(stored.theoretical_arrival_at, $2) + ${interval}
                        else stored.theoretical_arrival_at
                    end
                returning {index} as index, allowed, theoretical_arrival_at + ${interval} - $3 as next_at
            )"
        )
    });
    let rejections =
        (0..networks).map(|index| format!("select index, next_at from network_{index} where not allowed"));
    let (counted, rejections): (Vec<_>, Vec<_>) = (counted.collect(), rejections.collect());
    format!("-- limit.count\nwith {} {}", counted.join(", "), rejections.join(" union all "))
}

/// Returns whole microseconds, the resolution of Postgres.
pub(crate) fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::microseconds(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// Clients decide how many subjects there are, so the cache is bounded. It keeps the subjects that are rejected most often;
/// others are counted in the database.
const CAPACITY: u64 = 16_384;

/// Name of a limit and a subject.
type Key = (&'static str, String);

/// End of a rejection, and the time until then.
#[derive(Clone, Copy, Debug)]
struct Rejection {
    until: DateTime<Utc>,
    remaining: Duration,
}

/// Removes a rejection when it ends.
struct AtItsEnd;

impl Expiry<Key, Rejection> for AtItsEnd {
    fn expire_after_create(&self, _: &Key, rejection: &Rejection, _: Instant) -> Option<Duration> {
        Some(rejection.remaining)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        rejection: &Rejection,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(rejection.remaining)
    }
}

/// Subjects that exceed a limit.
#[derive(Debug)]
struct Rejections(Cache<Key, Rejection>);

impl Default for Rejections {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(CAPACITY).expire_after(AtItsEnd).build())
    }
}

impl Rejections {
    /// Returns the end of a rejection that has not expired.
    fn find(&self, limit: &'static str, subject: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let rejection = self.0.get(&(limit, subject.to_owned()))?;
        Some(rejection.until).filter(|until| *until > now)
    }

    fn insert(&self, limit: &'static str, subject: &str, until: DateTime<Utc>, now: DateTime<Utc>) {
        let remaining = (until - now).to_std().unwrap_or_default();
        self.0.insert((limit, subject.to_owned()), Rejection { until, remaining });
    }
}

/// Number of locks of [`Guesses`]. Sources with the same lock wait for each other, which costs the time of a lookup.
const TURNS: usize = 256;

/// Locks of the lookups of [`Limiter::count_wrong`], by limit and source.
struct Guesses {
    hasher: RandomState,
    turns: Vec<Mutex<()>>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self { hasher: RandomState::new(), turns: (0..TURNS).map(|_| Mutex::default()).collect() }
    }
}

impl Guesses {
    /// Waits until no other lookup of the source runs in this replica.
    async fn turn(&self, limit: &'static str, source: &Source) -> Option<MutexGuard<'_, ()>> {
        let hash = self.hasher.hash_one((limit, source.to_string()));
        let turn = self.turns.get(usize::try_from(hash).unwrap_or_default() % TURNS)?;
        Some(turn.lock().await)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_rejection_lasts_until_it_expires() {
        let (rejections, now) = (Rejections::default(), DateTime::UNIX_EPOCH);
        let until = now + TimeDelta::hours(1);
        rejections.insert("login", "192.0.2.1", until, now);
        assert_eq!(rejections.find("login", "192.0.2.1", now), Some(until));
        assert_eq!(rejections.find("login", "192.0.2.2", now), None);
        assert_eq!(rejections.find("reset", "192.0.2.1", now), None);
        assert_eq!(rejections.find("login", "192.0.2.1", until), None);
    }

    #[test]
    fn a_later_rejection_replaces_the_time_of_expiry() {
        let (rejections, now) = (Rejections::default(), DateTime::UNIX_EPOCH);
        let is_cached = || rejections.0.contains_key(&("login", "192.0.2.1".to_owned()));
        for hours in [1, 2] {
            rejections.insert("login", "192.0.2.1", now + TimeDelta::hours(hours), now);
            assert!(is_cached());
        }
        rejections.insert("login", "192.0.2.1", now, now);
        assert!(!is_cached());
    }

    #[test]
    fn the_number_of_rejections_is_bounded_and_expired_ones_are_not_returned() {
        let (rejections, now) = (Rejections::default(), DateTime::UNIX_EPOCH);
        for n in 0..2 * CAPACITY {
            rejections.insert("login", &n.to_string(), now + TimeDelta::hours(1), now);
        }
        rejections.0.run_pending_tasks();
        assert!(rejections.0.entry_count() <= CAPACITY);
        let rejections = Rejections::default();
        rejections.insert("login", "192.0.2.1", now, now);
        assert!(!rejections.0.contains_key(&("login", "192.0.2.1".to_owned())));
    }
}
