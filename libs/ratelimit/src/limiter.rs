//! Counts in the table `limits` of a schema, which all replicas share.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use contract::ProblemKind;
use database::Database;
use service::telemetry::Metrics;
use service::{Clock, LogThrottle, Problem, Tasks, chain};

use crate::refused::Refused;
use crate::{Decisions, Limit, Rate};

/// How often rows that say nothing any more are removed.
const PURGE_EVERY: Duration = Duration::from_mins(1);
/// Small, so that nobody waits behind a purge.
const PURGE_BATCH: i32 = 1000;

/// The limits of one schema. Clones are handles to the same.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    schema: &'static str,
    database: Database,
    clock: Arc<dyn Clock>,
    refused: Refused,
    decisions: Decisions,
    uncounted: LogThrottle,
}

/// Why a request was not let in.
#[derive(Debug, thiserror::Error)]
pub enum RateLimitError {
    /// The limit is used up.
    #[error("too many requests; the next one is let in after {retry_after:?}")]
    Limited {
        /// From now.
        retry_after: Duration,
    },
    /// Nobody knows.
    #[error("requests cannot be counted")]
    Unavailable(#[source] database::Error),
}

impl From<RateLimitError> for Problem {
    /// 429, or 503: what a route answers that proves credentials. Others let the request pass when it cannot be counted.
    fn from(refusal: RateLimitError) -> Self {
        match refusal {
            RateLimitError::Limited { retry_after } => {
                Self::new(ProblemKind::RateLimited).retry_after(retry_after)
            }
            RateLimitError::Unavailable(_) => {
                Self::new(ProblemKind::DependencyUnavailable).caused_by(refusal)
            }
        }
    }
}

impl Limiter {
    /// The limiter of a schema.
    pub fn new(schema: &'static str, database: Database, clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        let decisions = Decisions::of(metrics);
        let (refused, uncounted) = (Refused::default(), LogThrottle::default());
        Self(Arc::new(Shared { schema, database, clock, refused, decisions, uncounted }))
    }

    pub(crate) fn tell_uncounted(&self, error: &database::Error) {
        if self.0.uncounted.is_due() {
            tracing::warn!(schema = self.0.schema, error = chain(error), "requests pass uncounted");
        }
    }

    /// What its limits decided so far.
    pub fn decisions(&self) -> &Decisions {
        &self.0.decisions
    }

    /// Counts a request of a subject: a [`source`](crate::source), or whatever else a limit is about.
    ///
    /// # Errors
    /// The limit is used up, or the database is not available.
    pub async fn count(&self, limit: &Limit, subject: &str) -> Result<(), RateLimitError> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        let decisions = &self.0.decisions;
        let decided = self.decide(limit.name, rate, subject).await;
        match &decided {
            Ok(()) => decisions.admitted(limit.name),
            Err(RateLimitError::Limited { .. }) => decisions.refused(limit.name),
            Err(RateLimitError::Unavailable(_)) => decisions.unavailable(limit.name),
        }
        decided
    }

    async fn decide(&self, limit: &'static str, rate: &Rate, subject: &str) -> Result<(), RateLimitError> {
        let Shared { clock, refused, .. } = &*self.0;
        let now = clock.now();
        let until = match refused.until(limit, subject, now) {
            Some(until) => until,
            None => match self.admit(limit, rate, subject, now).await.map_err(RateLimitError::Unavailable)? {
                None => return Ok(()),
                Some(until) => {
                    refused.remember(limit, subject, until, now);
                    until
                }
            },
        };
        Err(RateLimitError::Limited { retry_after: (until - now).to_std().unwrap_or_default() })
    }

    /// Counts in the database; `Some` with the time from which the next one is let in when this one is not.
    async fn admit(
        &self,
        limit: &'static str,
        rate: &Rate,
        subject: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<DateTime<Utc>>, database::Error> {
        // A refusal writes too, what was there already: only so does one statement know what it decided.
        let count = format!(
            "-- limit.count
            insert into {}.limits as known (limit_name, subject, even_until, admitted)
            values ($1, $2, $3 + $4, true)
            on conflict (limit_name, subject) do update
            set admitted = greatest(known.even_until, $3) + $4 <= $3 + $5,
                even_until = case
                    when greatest(known.even_until, $3) + $4 <= $3 + $5 then greatest(known.even_until, $3) + $4
                    else known.even_until
                end
            returning admitted, even_until",
            self.0.schema
        );
        let (interval, ahead) = (delta(rate.interval()), delta(rate.ahead()));
        let (admitted, even_until): (bool, DateTime<Utc>) = sqlx::query_as(sqlx::AssertSqlSafe(count))
            .bind(limit)
            .bind(subject)
            .bind(now)
            .bind(interval)
            .bind(ahead)
            .fetch_one(self.0.database.pool())
            .await?;
        Ok((!admitted).then_some(even_until + interval - ahead))
    }

    /// Takes back what [`Self::count`] has counted: for what turned out to be nothing that the limit is about.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn refund(&self, limit: &Limit, subject: &str) -> Result<(), database::Error> {
        let Some(rate) = &limit.rate else { return Ok(()) };
        let refund = format!(
            "-- limit.refund
            update {}.limits set even_until = even_until - $3 where limit_name = $1 and subject = $2",
            self.0.schema
        );
        sqlx::query(sqlx::AssertSqlSafe(refund))
            .bind(limit.name)
            .bind(subject)
            .bind(delta(rate.interval()))
            .execute(self.0.database.pool())
            .await?;
        Ok(())
    }

    /// Removes rows that say nothing any more, until the tasks are told to stop.
    pub async fn purge(self, tasks: Tasks) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PURGE_EVERY) => {}
                () = tasks.stopping().cancelled() => return,
            }
            if let Err(error) = self.purge_once().await {
                tracing::warn!(%error, schema = self.0.schema, "limits that nobody needs any more cannot be purged now");
            }
        }
    }

    /// Removes them once.
    ///
    /// # Errors
    /// The database is not available.
    pub async fn purge_once(&self) -> Result<(), database::Error> {
        // Several replicas may purge at once; each skips what another one holds.
        let purge = format!(
            "-- limit.delete_before
            delete from {schema}.limits where ctid = any(array(
                select ctid from {schema}.limits where even_until <= $1 limit $2 for update skip locked
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

/// In whole microseconds, which is what Postgres keeps.
fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::microseconds(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}
