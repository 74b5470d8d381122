//! Counts requests in memory, where a statement per request would cost more than the request, or without a database. Each process
//! counts by itself.

use std::sync::Arc;
use std::time::Duration;

use service::Clock;

use crate::memory::MemoryStore;
use crate::{Limit, LimiterMetrics, RateLimitError, Source};

/// Rate limiter of one process. Clones share its state.
#[derive(Clone)]
pub struct LocalLimiter {
    limit: Limit,
    clock: Arc<dyn Clock>,
    metrics: LimiterMetrics,
    store: MemoryStore,
}

impl LocalLimiter {
    /// Creates the limiter of a limit.
    pub fn new(limit: Limit, clock: Arc<dyn Clock>, metrics: LimiterMetrics) -> Self {
        Self { limit, clock, metrics, store: MemoryStore::default() }
    }

    /// Checks whether the networks of a source allow a request, without counting it.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn check(&self, source: &Source) -> Result<(), RateLimitError> {
        let Some(rate) = &self.limit.rate else { return Ok(()) };
        let checked = self.store.check(self.limit.name, rate, source, self.clock.now());
        checked.map_err(|retry_after| self.rejected(retry_after))
    }

    /// Counts a request after [`Self::check`]. Requests above the limit of a network do not count.
    pub fn count(&self, source: &Source) {
        let (Some(rate), now) = (&self.limit.rate, self.clock.now()) else { return };
        self.metrics.allowed(self.limit.name);
        for network in source.networks() {
            let _ = self.store.count(self.limit.name, rate, network, now);
        }
    }

    /// Checks and counts a request in one step, narrowest network first: a network counts the requests that the narrower ones allow.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn check_and_count(&self, source: &Source) -> Result<(), RateLimitError> {
        let (Some(rate), now) = (&self.limit.rate, self.clock.now()) else { return Ok(()) };
        for network in source.networks() {
            let decision = self.store.count(self.limit.name, rate, network, now);
            decision.map_err(|retry_after| self.rejected(retry_after))?;
        }
        self.metrics.allowed(self.limit.name);
        Ok(())
    }

    fn rejected(&self, retry_after: Duration) -> RateLimitError {
        self.metrics.rejected(self.limit.name);
        RateLimitError::Limited { retry_after }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use chrono::{DateTime, TimeDelta};
    use service::clock::ManualClock;
    use service::telemetry::Metrics;

    use super::*;
    use crate::source;

    fn limiter(rate: Option<&str>) -> (LocalLimiter, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(DateTime::UNIX_EPOCH));
        let limit = Limit { name: "test", rate: rate.map(|rate| rate.parse().unwrap()) };
        (LocalLimiter::new(limit, clock.clone(), LimiterMetrics::new(&Metrics::new("test"))), clock)
    }

    /// Sends failing requests until one is rejected. Returns their number and the delay of the rejection.
    fn fail(limiter: &LocalLimiter, address: &str) -> (usize, Duration) {
        let source = source(address.parse::<IpAddr>().unwrap());
        for count in 0..1000 {
            match limiter.check(&source) {
                Ok(()) => limiter.count(&source),
                Err(RateLimitError::Limited { retry_after }) => return (count, retry_after),
                Err(error) => panic!("{error}"),
            }
        }
        (1000, Duration::ZERO)
    }

    #[test]
    fn a_source_is_rejected_after_its_burst_until_the_announced_delay() {
        let (limiter, clock) = limiter(Some("30/min"));
        assert_eq!(fail(&limiter, "192.0.2.1"), (30, Duration::from_secs(2)));
        assert_eq!(fail(&limiter, "192.0.2.2").0, 30);
        clock.advance(TimeDelta::seconds(2));
        assert_eq!(fail(&limiter, "192.0.2.1"), (1, Duration::from_secs(2)));
        clock.advance(TimeDelta::minutes(2));
        assert_eq!(fail(&limiter, "192.0.2.1").0, 30);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_limit_and_larger_networks_have_wider_ones() {
        let (limiter, _) = limiter(Some("10/min"));
        assert_eq!(fail(&limiter, "2001:db8::1").0, 10);
        assert_eq!(fail(&limiter, "2001:db8::2").0, 0);
        let others = (1..=4).map(|network| fail(&limiter, &format!("2001:db8:0:{network}::1")).0);
        assert_eq!(others.collect::<Vec<_>>(), [10, 10, 10, 0], "a /56 has four times the limit");
    }

    #[test]
    fn a_check_alone_counts_nothing_and_off_disables_the_limit() {
        let (limiter, _) = limiter(Some("1/h"));
        let source = source("192.0.2.1".parse().unwrap());
        assert!((0..10).all(|_| limiter.check(&source).is_ok()));
        limiter.count(&source);
        assert!(limiter.check(&source).is_err());
        assert_eq!(fail(&self::limiter(None).0, "192.0.2.1").0, 1000);
    }
}
