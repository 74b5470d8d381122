//! Counts requests in memory, and exchanges the counts with the other replicas every second: for routes where a statement per
//! request would cost more than the request.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use service::{LogThrottle, Tasks, chain};

use crate::memory::CAPACITY;
use crate::postgres::Counts;
use crate::{Limit, Limiter, LocalLimiter, RateLimitError, Source};

/// Time between two exchanges. Within it, each replica allows a whole burst.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limiter of requests that verify no password and no single-use token. Clones share its state.
#[derive(Clone)]
pub struct BufferedLimiter(Arc<BufferedState>);

struct BufferedState {
    limiter: Limiter,
    limit: Limit,
    local: LocalLimiter,
    counts: Mutex<Counts>,
    log_throttle: LogThrottle,
}

impl BufferedLimiter {
    /// Creates the limiter of a limit. Its counts are in the table of `limiter`.
    pub fn new(limiter: Limiter, limit: Limit) -> Self {
        let local = LocalLimiter::new(limit, limiter.clock(), limiter.metrics().clone());
        let (counts, log_throttle) = Default::default();
        Self(Arc::new(BufferedState { limiter, limit, local, counts, log_throttle }))
    }

    /// Counts a request. A request is allowed if all networks of the source allow it.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn count(&self, source: &Source) -> Result<(), RateLimitError> {
        self.0.local.allow(source, |network, interval| {
            let mut counts = self.0.counts.lock();
            if counts.intervals.is_empty() {
                counts.since = self.0.limiter.clock().now();
            }
            // Clients decide how many networks there are. Beyond this number, only this replica counts them.
            if counts.intervals.len() < CAPACITY || counts.intervals.contains_key(&network.name) {
                *counts.intervals.entry(network.name.clone()).or_default() += interval;
            }
        })
    }

    /// Adds the counts since the last exchange to the table, and reads those of all replicas for the same networks.
    ///
    /// # Errors
    /// The database is unavailable. The replica continues to count by itself, and the other replicas do not learn of these counts.
    pub async fn exchange(&self) -> Result<(), database::Error> {
        let BufferedState { limiter, limit, local, counts, .. } = &*self.0;
        let counts = std::mem::take(&mut *counts.lock());
        let Some(rate) = limit.rate.as_ref().filter(|_| !counts.intervals.is_empty()) else { return Ok(()) };
        for (network, arrival) in limiter.table().add(limit.name, rate, counts).await? {
            local.raise(&network, arrival);
        }
        Ok(())
    }

    /// Exchanges the counts every second until the process stops.
    pub(crate) fn exchange_periodically(&self, tasks: &Tasks) {
        let limiter = self.clone();
        tasks.every("limits_exchange", EXCHANGE_INTERVAL, move || limiter.clone().try_exchange());
    }

    async fn try_exchange(self) {
        let Err(error) = self.exchange().await else { return };
        self.0.limiter.metrics().unavailable(self.0.limit.name);
        if self.0.log_throttle.is_due() {
            let (limit, error) = (self.0.limit.name, chain(&error));
            tracing::warn!(limit, error, "failed to share rate limits; each replica counts by itself");
        }
    }
}
