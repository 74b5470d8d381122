//! The rule of every rate limit and quota: the generic cell rate algorithm (GCRA).
//!
//! The state of a subject is its theoretical arrival time: the time of its next request at an even rate. Its *lead* is the time from
//! now until then. An allowed request adds its cost to the lead. The stores are a table of Postgres and memory. They keep the
//! state and decide nothing: the table compares and adds the values that are computed here.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// The rule of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    max_lead: Duration,
}

impl Gcra {
    /// Allows a burst of `tolerance`, at a cost of `interval` per request. A burst contains at least one request.
    pub fn new(tolerance: Duration, interval: Duration) -> Self {
        Self { max_lead: tolerance.saturating_sub(interval) }
    }

    /// Returns the lead after a request at this lead. The cost has no influence on the decision, so that an expensive request is not
    /// starved by cheap ones. Instead, it delays the next one.
    ///
    /// # Errors
    /// The request is rejected; the time until the next one is allowed.
    pub fn decide(self, lead: Duration, cost: Duration) -> Result<Duration, Duration> {
        let retry_after = lead.saturating_sub(self.max_lead);
        if retry_after.is_zero() { Ok(lead.saturating_add(cost)) } else { Err(retry_after) }
    }

    /// Returns the latest theoretical arrival time with which a request is allowed now.
    pub(crate) fn latest_arrival(self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + delta(self.max_lead)
    }
}

/// Returns the lead of a theoretical arrival time.
pub(crate) fn lead(arrival: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (arrival - now).to_std().unwrap_or_default()
}

/// Returns whole microseconds, the resolution of Postgres.
pub(crate) fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::microseconds(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Requests of one cost until one is rejected. Returns their number and the time until the next one is allowed.
    fn exhaust(rule: Gcra, mut lead: Duration, cost: Duration) -> (usize, Duration) {
        for count in 0.. {
            match rule.decide(lead, cost) {
                Ok(next) => lead = next,
                Err(retry_after) => return (count, retry_after),
            }
        }
        unreachable!("the loop ends only with a rejection")
    }

    #[test]
    fn allows_a_burst_then_one_request_per_interval() {
        let (rule, cost) = (Gcra::new(SECOND, SECOND / 5), SECOND / 5);
        assert_eq!(exhaust(rule, Duration::ZERO, cost), (5, SECOND / 5));
        assert_eq!(exhaust(rule, SECOND / 5 * 4, cost), (1, SECOND / 5));
    }

    #[test]
    fn a_burst_below_one_request_allows_one() {
        assert_eq!(exhaust(Gcra::new(SECOND, 4 * SECOND), Duration::ZERO, 4 * SECOND), (1, 4 * SECOND));
    }

    #[test]
    fn an_expensive_request_is_allowed_and_delays_the_next_one() {
        let rule = Gcra::new(SECOND, SECOND / 1000);
        assert_eq!(exhaust(rule, Duration::ZERO, 10 * SECOND), (1, 9 * SECOND + SECOND / 1000));
    }

    proptest! {
        #[test]
        fn the_rate_holds_for_any_costs_and_times(
            interval in 1..10_000_000_u64,
            steps in prop::collection::vec((0..5_000_000_u64, 1..50_000_u64), 1..100),
        ) {
            let (interval, tolerance) = (Duration::from_micros(interval), SECOND);
            let rule = Gcra::new(tolerance, interval);
            let (mut lead, mut elapsed, mut spent, mut last) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
            for (pause, cost) in steps {
                let pause = Duration::from_micros(pause);
                (lead, elapsed) = (lead.saturating_sub(pause), elapsed + pause);
                match rule.decide(lead, Duration::from_micros(cost)) {
                    Ok(next) => {
                        last = next.saturating_sub(lead);
                        spent += last;
                        lead = next;
                    }
                    Err(retry_after) => {
                        (lead, elapsed) = (lead.saturating_sub(retry_after), elapsed + retry_after);
                        prop_assert!(rule.decide(lead, interval).is_ok(), "allowed after the announced time");
                        prop_assert!(rule.decide(lead + Duration::from_nanos(1), interval).is_err());
                    }
                }
            }
            prop_assert!(spent.saturating_sub(last) <= elapsed + tolerance);
        }
    }
}
