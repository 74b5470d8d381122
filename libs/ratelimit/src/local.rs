//! Counts requests in memory, for a service without a database. Each process counts by itself.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use moka::ops::compute::Op;
use moka::sync::Cache;
use service::Clock;

use crate::limiter::delta;
use crate::{Limit, LimiterMetrics, Network, Rate, RateLimitError, Source};

/// Clients decide how many networks there are. Beyond this number, those with the fewest requests are forgotten.
pub(crate) const CAPACITY: usize = 16_384;

/// Rate limiter of one process. Clones share its state.
#[derive(Clone)]
pub struct LocalLimiter {
    limit: Limit,
    clock: Arc<dyn Clock>,
    metrics: LimiterMetrics,
    /// The theoretical arrival time (GCRA) of each network.
    arrivals: Cache<String, DateTime<Utc>>,
}

impl LocalLimiter {
    /// Creates the limiter of a limit.
    pub fn new(limit: Limit, clock: Arc<dyn Clock>, metrics: LimiterMetrics) -> Self {
        let mut arrivals = Cache::builder().max_capacity(CAPACITY as u64);
        if let Some(rate) = &limit.rate {
            // Later, the network has no influence.
            arrivals = arrivals.time_to_live(rate.burst_tolerance() * 2);
        }
        Self { limit, clock, metrics, arrivals: arrivals.build() }
    }

    /// Checks whether the networks of a source allow a request, without counting it.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub fn check(&self, source: &Source) -> Result<(), RateLimitError> {
        let (Some(rate), now) = (&self.limit.rate, self.clock.now()) else { return Ok(()) };
        for network in source.networks() {
            let arrival = self.arrivals.get(&network.name);
            if let Err(allowed_at) = next_arrival(rate, network, arrival, now) {
                self.metrics.rejected(self.limit.name);
                let retry_after = (allowed_at - now).to_std().unwrap_or_default();
                return Err(RateLimitError::Limited { retry_after });
            }
        }
        Ok(())
    }

    /// Counts a request after [`Self::check`]. Requests above the limit of a network do not count.
    pub fn count(&self, source: &Source) {
        let (Some(rate), now) = (&self.limit.rate, self.clock.now()) else { return };
        self.metrics.allowed(self.limit.name);
        for network in source.networks() {
            let _ = self.count_in(network, rate, now);
        }
    }

    /// Checks and counts a request in one step, narrowest network first: a network counts the requests that the narrower ones allow.
    /// Calls `counted` with each network that counted the request, and the interval of its rate.
    ///
    /// # Errors
    /// The rate limit is exceeded.
    pub(crate) fn allow(
        &self,
        source: &Source,
        counted: impl Fn(&Network, TimeDelta),
    ) -> Result<(), RateLimitError> {
        let (Some(rate), now) = (&self.limit.rate, self.clock.now()) else { return Ok(()) };
        for network in source.networks() {
            if let Err(allowed_at) = self.count_in(network, rate, now) {
                self.metrics.rejected(self.limit.name);
                let retry_after = (allowed_at - now).to_std().unwrap_or_default();
                return Err(RateLimitError::Limited { retry_after });
            }
            counted(network, network.interval(rate));
        }
        self.metrics.allowed(self.limit.name);
        Ok(())
    }

    /// Counts a request in one network, or returns the time of the next allowed request.
    fn count_in(&self, network: &Network, rate: &Rate, now: DateTime<Utc>) -> Result<(), DateTime<Utc>> {
        let mut decision = Ok(());
        self.arrivals.entry_by_ref(&network.name).and_compute_with(|entry| {
            match next_arrival(rate, network, entry.map(moka::Entry::into_value), now) {
                Ok(arrival) => Op::Put(arrival),
                Err(allowed_at) => {
                    decision = Err(allowed_at);
                    Op::Nop
                }
            }
        });
        decision
    }

    /// Raises the theoretical arrival time of a network to the one that all replicas share.
    pub(crate) fn raise(&self, network: &str, shared: DateTime<Utc>) {
        self.arrivals.entry_by_ref(network).and_compute_with(|entry| match entry {
            Some(entry) if *entry.value() >= shared => Op::Nop,
            _ => Op::Put(shared),
        });
    }
}

/// Returns the theoretical arrival time after a request of this network, or the time of the next allowed request.
fn next_arrival(
    rate: &Rate,
    network: &Network,
    arrival: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<DateTime<Utc>, DateTime<Utc>> {
    let tolerance = delta(rate.burst_tolerance());
    let next = arrival.map_or(now, |arrival| arrival.max(now)) + network.interval(rate);
    if next <= now + tolerance { Ok(next) } else { Err(next - tolerance) }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use service::clock::ManualClock;
    use service::telemetry::Metrics;

    use super::*;
    use crate::source;

    fn limiter(rate: Option<&str>) -> (LocalLimiter, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(DateTime::UNIX_EPOCH));
        let limit = Limit { name: "test", rate: rate.map(|rate| rate.parse().unwrap()) };
        (LocalLimiter::new(limit, clock.clone(), LimiterMetrics::of(&Metrics::new("test"))), clock)
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
    fn counts_of_other_replicas_raise_the_own_one_and_never_lower_it() {
        let (limiter, clock) = limiter(Some("30/min"));
        let network = source("192.0.2.1".parse().unwrap()).to_string();
        assert_eq!(fail(&limiter, "192.0.2.1").0, 30);
        limiter.raise(&network, clock.now());
        assert_eq!(fail(&limiter, "192.0.2.1").0, 0);
        limiter.raise(&network, clock.now() + TimeDelta::minutes(2));
        clock.advance(TimeDelta::minutes(1));
        assert_eq!(fail(&limiter, "192.0.2.1").0, 0);
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
