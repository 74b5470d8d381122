//! Credential cache: stores introspection results, so that most checks need no request to the session service.
//!
//! An entry is valid for five seconds from the start of its lookup. Every revocation therefore takes effect within five
//! seconds, even if NATS or the session service fails. With the invalidation feed it takes effect within milliseconds:
//!
//! - An invalidation increases the epoch and records the new epoch for the credential, user or tenant.
//! - An entry is not used if its lookup started before the recorded epoch. This includes lookups that were in flight when
//!   the invalidation arrived.
//! - A gap in the feed records the epoch for all entries: a missing number, a silent publisher, or a lost connection.

mod epochs;
mod feed;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bus::Connection;
use hashing::TokenDigest;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use service::telemetry::{Metrics, Telemetry};
use service::{Clock, Tasks};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::batcher::LOOKUP_TIMEOUT;
use crate::{CredentialVerifier, Introspection, IntrospectionBatcher, Introspector, Unavailable};

use epochs::{Dependencies, Epochs};
pub use watch::CredentialWatch;

/// Validity of an entry, from the start of its lookup.
const TTL: Duration = Duration::from_secs(5);
/// More than the number of credentials in use within five seconds.
const MAX_ACTIVE: u64 = 131_072;
/// Separate from active credentials, so that guessed tokens do not evict them.
const MAX_NEGATIVE: u64 = 16_384;

/// A [`CredentialVerifier`] that caches the results of another source. Clones share the entries.
#[derive(Clone)]
pub struct CredentialCache(Arc<CacheState>);

struct CacheState {
    source: IntrospectionBatcher,
    /// Active credentials, and lookups in flight.
    active: Entries,
    negative: Entries,
    epochs: Epochs,
    metrics: CacheMetrics,
}

type Entries = moka::sync::Cache<TokenDigest, Arc<Lookup>>;

/// One lookup and its result. Concurrent checks of one credential wait for the same result.
struct Lookup {
    started_at: Instant,
    /// The epoch before the lookup started.
    epoch: u64,
    result: OnceCell<(Introspection, Dependencies)>,
}

impl Lookup {
    fn introspection(&self) -> Introspection {
        self.result.get().and_then(|(introspection, _)| introspection.clone())
    }
}

impl CredentialCache {
    /// Returns a cache for results of `source`, and starts the task that receives the invalidation feed. NATS need not
    /// be reachable yet.
    pub fn start(
        source: impl Introspector + 'static,
        nats: Connection,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
        telemetry: &Telemetry,
    ) -> Self {
        let cache = Self::new(source, tasks, CacheMetrics::new(telemetry.metrics()), MAX_NEGATIVE);
        let (measured, listening) = (Arc::clone(&cache.0), Arc::clone(&cache.0));
        telemetry.metrics().at_scrape(move || measured.measure());
        let stop = tasks.stopping().clone();
        tasks.spawn("invalidation listener", async move {
            stop.run_until_cancelled(feed::listen(&listening, &nats, &*clock)).await;
        });
        cache
    }

    fn new(
        source: impl Introspector + 'static,
        tasks: &Tasks,
        metrics: CacheMetrics,
        max_negative: u64,
    ) -> Self {
        // The expiry of the library only frees memory. It counts from the insertion; `is_valid` counts from the start of the lookup.
        let entries = |max| Entries::builder().max_capacity(max).time_to_live(TTL).build();
        Self(Arc::new(CacheState {
            source: IntrospectionBatcher::new(source, tasks),
            active: entries(MAX_ACTIVE),
            negative: entries(max_negative),
            epochs: Epochs::default(),
            metrics,
        }))
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for CredentialCache {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        Ok(self.verify(digest, TTL).await?.introspection())
    }
}

impl CredentialCache {
    /// Returns a complete lookup that started less than `max_age` ago.
    async fn verify(&self, digest: TokenDigest, max_age: Duration) -> Result<Arc<Lookup>, Unavailable> {
        let CacheMetrics { hit, negative, miss, .. } = &self.0.metrics;
        if let Some(lookup) = self.0.cached(digest, max_age) {
            let outcome = if lookup.introspection().is_some() { hit } else { negative };
            outcome.inc();
            return Ok(lookup);
        }
        miss.inc();
        let timed_out = |_| Err(Unavailable::because("the session service did not reply in time"));
        timeout(LOOKUP_TIMEOUT, self.0.look_up(digest, max_age)).await.unwrap_or_else(timed_out)
    }
}

impl CacheState {
    fn cached(&self, digest: TokenDigest, max_age: Duration) -> Option<Arc<Lookup>> {
        let lookup = self.active.get(&digest).or_else(|| self.negative.get(&digest))?;
        (lookup.result.initialized() && self.is_valid(&lookup, max_age)).then_some(lookup)
    }

    /// Returns whether the lookup started less than `max_age` ago and no invalidation of its result arrived since then.
    fn is_valid(&self, lookup: &Lookup, max_age: Duration) -> bool {
        let changed = |(_, dependencies): &_| self.epochs.changed_after(lookup.epoch, *dependencies);
        !lookup.result.get().is_some_and(changed) && lookup.started_at.elapsed() < max_age
    }

    /// Queries the source, or joins a lookup in flight. Repeats the lookup if an invalidation of its result arrives
    /// meanwhile.
    async fn look_up(&self, digest: TokenDigest, max_age: Duration) -> Result<Arc<Lookup>, Unavailable> {
        loop {
            // Time and epoch are read before the lookup: a change that the result may lack is newer than both.
            let new = || {
                let started_at = Instant::now();
                Arc::new(Lookup { started_at, epoch: self.epochs.current(), result: OnceCell::new() })
            };
            let is_invalid = |lookup: &Arc<Lookup>| !self.is_valid(lookup, max_age);
            let lookup = self.active.entry(digest).or_insert_with_if(new, is_invalid).into_value();
            lookup.result.get_or_try_init(|| self.query(digest, &lookup)).await?;
            if self.is_valid(&lookup, max_age) {
                return Ok(lookup);
            }
        }
    }

    /// Queries the source. Moves the lookup to the negative entries if the credential is not active.
    async fn query(
        &self,
        digest: TokenDigest,
        lookup: &Arc<Lookup>,
    ) -> Result<(Introspection, Dependencies), Unavailable> {
        let introspection = self.source.introspect(digest).await?;
        if introspection.is_none() {
            self.negative.insert(digest, Arc::clone(lookup));
            self.active.invalidate(&digest);
        }
        Ok((introspection.clone(), Dependencies::new(digest, &introspection)))
    }

    fn measure(&self) {
        let CacheMetrics { active_entries, negative_entries, .. } = &self.metrics;
        for (gauge, entries) in [(active_entries, &self.active), (negative_entries, &self.negative)] {
            gauge.set(i64::try_from(entries.entry_count()).unwrap_or(i64::MAX));
        }
    }
}

/// Upper bounds in seconds. A revocation takes effect within 1 s (p99), and never later than 5 s.
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0];

#[derive(Clone, Debug)]
struct CacheMetrics {
    /// Checks that an entry answered: the credential is active.
    hit: Counter,
    /// Checks that an entry answered: the credential is not active.
    negative: Counter,
    /// Checks that needed a lookup.
    miss: Counter,
    active_entries: Gauge,
    negative_entries: Gauge,
    /// In seconds.
    feed_down: Counter<f64, AtomicU64>,
    /// In seconds.
    lag: Histogram,
}

impl CacheMetrics {
    /// Registers the metrics.
    fn new(metrics: &Metrics) -> Self {
        let checks = |outcome| {
            metrics.metric("credential_checks", "Credential checks by outcome", &[("outcome", outcome)])
        };
        let entries = |kind| {
            metrics.metric("credential_cache_entries", "Entries of the credential cache", &[("kind", kind)])
        };
        let feed_down = "Time without invalidations, when a revocation takes up to 5 s";
        let lag = "Time from the commit of a change until its invalidation was applied";
        Self {
            hit: checks("hit"),
            negative: checks("negative"),
            miss: checks("miss"),
            active_entries: entries("active"),
            negative_entries: entries("negative"),
            feed_down: metrics.metric("invalidation_feed_down_seconds", feed_down, &[]),
            lag: metrics.histogram("invalidation_lag_seconds", lag, &[], &BUCKETS),
        }
    }
}

#[cfg(test)]
mod tests;
