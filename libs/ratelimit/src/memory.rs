//! The state of subjects in memory.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use moka::Expiry;
use moka::ops::compute::Op;
use moka::sync::Cache;

use crate::gcra::{delta, lead};
use crate::{Network, Rate, Source};

/// Clients decide how many subjects there are. Beyond this number, those with the fewest requests are forgotten, so new
/// subjects do not displace one that sends many requests.
const CAPACITY: usize = 16_384;
/// Minimum time that a subject is kept: the clock of the cache can run ahead of the injected one.
const MIN_TTL: Duration = Duration::from_mins(1);

/// Name of a limit and a subject.
type Key = (&'static str, String);

/// Theoretical arrival times. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStore(Cache<Key, Arrival>);

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: DateTime<Utc>,
    /// The lead when it was stored. Afterwards, the subject is equal to a new one.
    lead: Duration,
}

struct AfterArrival;

impl Expiry<Key, Arrival> for AfterArrival {
    fn expire_after_create(&self, _: &Key, arrival: &Arrival, _: Instant) -> Option<Duration> {
        Some(arrival.lead.max(MIN_TTL))
    }

    fn expire_after_update(
        &self,
        key: &Key,
        arrival: &Arrival,
        updated_at: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, arrival, updated_at)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(CAPACITY as u64).expire_after(AfterArrival).build())
    }
}

impl MemoryStore {
    /// Checks whether all networks of a source allow a request, without counting it.
    ///
    /// # Errors
    /// The time until the network that rejects it allows the next one.
    pub(crate) fn check(
        &self,
        limit: &'static str,
        rate: &Rate,
        source: &Source,
        now: DateTime<Utc>,
    ) -> Result<(), Duration> {
        for network in source.networks() {
            let arrival = self.0.get(&(limit, network.name.clone()));
            let lead = arrival.map_or(Duration::ZERO, |arrival| lead(arrival.at, now).min(rate.max_lead()));
            network.rule(rate).decide(lead, Duration::ZERO)?;
        }
        Ok(())
    }

    /// Counts a request in one network.
    ///
    /// # Errors
    /// The time until the network allows the next request.
    pub(crate) fn count(
        &self,
        limit: &'static str,
        rate: &Rate,
        network: &Network,
        now: DateTime<Utc>,
    ) -> Result<(), Duration> {
        let mut decision = Ok(());
        self.0.entry((limit, network.name.clone())).and_compute_with(|entry| {
            let lead = entry.map_or(Duration::ZERO, |entry| lead(entry.value().at, now).min(rate.max_lead()));
            match network.rule(rate).decide(lead, network.interval(rate)) {
                Ok(lead) => Op::Put(Arrival { at: now + delta(lead), lead }),
                Err(retry_after) => {
                    decision = Err(retry_after);
                    Op::Nop
                }
            }
        });
        decision
    }

    /// Raises the theoretical arrival time of a network to the one that all replicas share.
    pub(crate) fn raise(
        &self,
        limit: &'static str,
        network: &str,
        shared: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        self.0.entry((limit, network.to_owned())).and_compute_with(|entry| match entry {
            Some(entry) if entry.value().at >= shared => Op::Nop,
            _ => Op::Put(Arrival { at: shared, lead: lead(shared, now) }),
        });
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_number_of_subjects_is_bounded_and_new_ones_do_not_displace_one_that_sends_many_requests() {
        let (store, now, rate) = (MemoryStore::default(), DateTime::UNIX_EPOCH, "1/h".parse().unwrap());
        let network = |name: usize| Network { name: name.to_string(), width: 1 };
        store.count("login", &rate, &network(0), now).unwrap();
        for name in 1..2 * CAPACITY {
            store.count("login", &rate, &network(name), now).unwrap();
            assert!(store.check("login", &rate, &Source::from("0"), now).is_err(), "{name}");
        }
        store.0.run_pending_tasks();
        assert!(store.0.entry_count() <= CAPACITY as u64);
    }

    #[test]
    fn a_shared_time_applies_to_its_limit_and_subject_until_it_has_passed() {
        let (store, now, rate) = (MemoryStore::default(), DateTime::UNIX_EPOCH, "2/h".parse().unwrap());
        let allows = |limit, subject: &str, minutes| {
            store.check(limit, &rate, &Source::from(subject), now + TimeDelta::minutes(minutes))
        };
        store.raise("login", "192.0.2.1", now + TimeDelta::minutes(90), now);
        assert_eq!(allows("login", "192.0.2.1", 0), Err(Duration::from_hours(1)));
        assert_eq!(allows("login", "192.0.2.1", 59), Err(Duration::from_mins(1)));
        assert_eq!(allows("login", "192.0.2.1", 60), Ok(()));
        assert_eq!(allows("login", "192.0.2.2", 0), Ok(()));
        assert_eq!(allows("reset", "192.0.2.1", 0), Ok(()));
        store.raise("login", "192.0.2.1", now, now);
        assert_eq!(allows("login", "192.0.2.1", 59), Err(Duration::from_mins(1)), "it is never lowered");
    }
}
