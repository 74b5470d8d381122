//! Credential cache: stores introspection results, so that most checks need no request to the session service.
//!
//! An entry is valid for five seconds from the start of its lookup. Every revocation therefore takes effect within five
//! seconds, even if NATS or the session service fails. With the invalidation feed it takes effect within milliseconds:
//!
//! - An invalidation increases the epoch and records the new epoch for the credential, user or tenant.
//! - An entry is not used if its lookup started before the recorded epoch. This includes lookups that were in flight when
//!   the invalidation arrived.
//! - A gap in the feed records the epoch for all entries.
//! - While the feed is down, the cache is not read. It is empty when the feed comes up.

mod epochs;
mod feed;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::InvalidationKeys;
use hashing::TokenDigest;
use service::telemetry::Telemetry;
use service::{Clock, Tasks};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::batcher::LOOKUP_TIMEOUT;
use crate::{CredentialVerifier, Introspection, IntrospectionBatcher, Introspector, Unavailable};

pub(crate) use epochs::EpochReceiver;
use epochs::{Dependencies, Epochs};
use metrics::{CacheMetrics, CacheOutcome};

/// Validity of an entry, from the start of its lookup.
const TTL: Duration = Duration::from_secs(5);
/// More than the number of credentials in use within five seconds.
const MAX_ACTIVE: u64 = 131_072;
/// Separate from active credentials, so that guessed tokens do not evict them.
const MAX_NEGATIVE: u64 = 16_384;

/// A [`CredentialVerifier`] that caches the results of another source. Clones share the entries.
#[derive(Clone)]
pub struct CredentialCache(Arc<Shared>);

/// The invalidation feed.
pub struct Feed {
    /// The connection to NATS.
    pub nats: bus::Config,
    /// The keys that authenticate its messages.
    pub keys: InvalidationKeys,
}

struct Shared {
    source: IntrospectionBatcher,
    /// Active credentials, and lookups in flight.
    active: Entries,
    negative: Entries,
    epochs: Epochs,
    feed_is_live: AtomicBool,
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

impl CredentialCache {
    /// Returns a cache for results of `source`, and starts the task that receives the invalidation feed. NATS need not
    /// be reachable yet.
    pub fn start(
        source: impl Introspector + 'static,
        feed: Feed,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
        telemetry: &Telemetry,
    ) -> Self {
        let cache = Self::new(source, tasks, CacheMetrics::new(telemetry.metrics()), MAX_NEGATIVE);
        let measured = Arc::clone(&cache.0);
        telemetry.metrics().at_scrape(move || measured.measure());
        let (listening, stop) = (Arc::clone(&cache.0), tasks.stopping().clone());
        tasks.spawn("invalidation listener", async move {
            let Feed { nats, keys } = feed;
            stop.run_until_cancelled(feed::listen(&listening, nats, keys, &*clock)).await;
        });
        cache
    }

    /// Returns a receiver of invalidations and gaps.
    pub(crate) fn epochs(&self) -> EpochReceiver {
        self.0.epochs.subscribe()
    }

    fn new(
        source: impl Introspector + 'static,
        tasks: &Tasks,
        metrics: CacheMetrics,
        max_negative: u64,
    ) -> Self {
        // The expiry of the library only frees memory. It counts from the insertion; `is_valid` counts from the start of the lookup.
        let entries = |max| Entries::builder().max_capacity(max).time_to_live(TTL).build();
        Self(Arc::new(Shared {
            source: IntrospectionBatcher::new(source, tasks),
            active: entries(MAX_ACTIVE),
            negative: entries(max_negative),
            epochs: Epochs::default(),
            feed_is_live: AtomicBool::new(false),
            metrics,
        }))
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for CredentialCache {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        let cache = &*self.0;
        if !cache.feed_is_live.load(Ordering::Acquire) {
            cache.metrics.count(CacheOutcome::Bypass);
            return cache.source.introspect(digest).await;
        }
        if let Some(introspection) = cache.cached(digest) {
            let active = introspection.is_some();
            cache.metrics.count(if active { CacheOutcome::Hit } else { CacheOutcome::Negative });
            return Ok(introspection);
        }
        cache.metrics.count(CacheOutcome::Miss);
        let lookup = timeout(LOOKUP_TIMEOUT, cache.look_up(digest));
        lookup
            .await
            .unwrap_or_else(|_| Err(Unavailable::because("the session service did not reply in time")))
    }
}

impl Shared {
    fn cached(&self, digest: TokenDigest) -> Option<Introspection> {
        let lookup = self.active.get(&digest).or_else(|| self.negative.get(&digest))?;
        let (introspection, _) = lookup.result.get()?;
        self.is_valid(&lookup).then(|| introspection.clone())
    }

    /// Returns whether the lookup started less than [`TTL`] ago and no invalidation of its result arrived since then.
    fn is_valid(&self, lookup: &Lookup) -> bool {
        let changed = match lookup.result.get() {
            Some((_, dependencies)) => self.epochs.changed_after(lookup.epoch, *dependencies),
            None => false,
        };
        !changed && lookup.started_at.elapsed() < TTL
    }

    /// Queries the source, or joins a lookup in flight. Repeats the lookup if an invalidation of its result arrives
    /// meanwhile.
    async fn look_up(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        loop {
            // Time and epoch are read before the lookup: a change that the result may lack is newer than both.
            let new = || {
                let started_at = Instant::now();
                Arc::new(Lookup { started_at, epoch: self.epochs.current(), result: OnceCell::new() })
            };
            let entry = self.active.entry(digest).or_insert_with_if(new, |lookup| !self.is_valid(lookup));
            let lookup = entry.into_value();
            let (introspection, _) = lookup.result.get_or_try_init(|| self.query(digest, &lookup)).await?;
            if self.is_valid(&lookup) {
                return Ok(introspection.clone());
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
        let dependencies = Dependencies::new(digest, &introspection);
        Ok((introspection, dependencies))
    }

    /// Invalidates all entries, also those of lookups in flight.
    fn drop_all(&self) {
        self.epochs.change_all();
        self.active.invalidate_all();
        self.negative.invalidate_all();
    }

    fn measure(&self) {
        self.metrics.set_entries(self.active.entry_count(), self.negative.entry_count());
    }
}

#[cfg(test)]
mod tests;
