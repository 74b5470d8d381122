//! A token bucket: the state of one quota of one tenant. Its caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// Rounding errors, in tokens and in seconds, must not reject an event that arrives exactly after the announced delay.
const TOKEN_ERROR: f64 = 1e-6;
const TIME_ERROR: f64 = 1e-9;

/// Tokens of one rate. It holds the tokens of one second, and at least one token.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    /// Negative after an event that was larger than the number of tokens.
    tokens: f64,
    /// Tokens per second; more than zero.
    rate: f64,
    updated_at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(super) fn full(rate: f64, now: Instant) -> Self {
        Self { tokens: capacity(rate), rate, updated_at: now }
    }

    /// Adds the tokens of the time since the last update. The rate applies from now on.
    pub(super) fn update(&mut self, rate: f64, now: Instant) {
        self.tokens = self.tokens_at(now).min(capacity(rate));
        (self.rate, self.updated_at) = (rate, now);
    }

    /// Returns whether an event is admitted: there is a token. The size of the event has no influence, so that large events
    /// are not starved by small ones. Instead, they take tokens of the future.
    pub(super) fn admits(&self) -> bool {
        self.tokens >= 1.0 - TOKEN_ERROR - self.rate * TIME_ERROR
    }

    /// Takes tokens, also more than there are.
    pub(super) fn take(&mut self, tokens: f64) {
        self.tokens -= tokens;
    }

    /// Returns tokens that were taken.
    pub(super) fn give_back(&mut self, tokens: f64) {
        self.tokens += tokens;
    }

    /// Returns the time until the next event is admitted.
    pub(super) fn delay(&self) -> Duration {
        Duration::try_from_secs_f64((1.0 - self.tokens).max(0.0) / self.rate).unwrap_or(Duration::MAX)
    }

    /// Returns whether the bucket is full, and therefore equal to a new one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.tokens_at(now) >= capacity(self.rate)
    }

    fn tokens_at(&self, now: Instant) -> f64 {
        self.tokens + self.rate * now.saturating_duration_since(self.updated_at).as_secs_f64()
    }
}

fn capacity(rate: f64) -> f64 {
    rate.max(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes a token for each admitted event of this size. Returns the number of events.
    fn admitted(bucket: &mut TokenBucket, size: f64, most: usize) -> usize {
        (0..most).take_while(|_| bucket.admits().then(|| bucket.take(size)).is_some()).count()
    }

    #[test]
    fn a_second_of_burst_is_admitted_then_the_rate() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut bucket = TokenBucket::full(5.0, start);
        assert_eq!(admitted(&mut bucket, 1.0, 100), 5);
        assert_eq!(bucket.delay(), Duration::from_millis(200));
        bucket.update(5.0, at(200));
        assert_eq!(admitted(&mut bucket, 1.0, 100), 1);
        bucket.update(5.0, at(60_000));
        assert_eq!(admitted(&mut bucket, 1.0, 100), 5, "unused tokens of more than a second are lost");
    }

    #[test]
    fn an_event_above_the_rate_is_admitted_and_delays_the_next_one() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(1000.0, start);
        assert_eq!(admitted(&mut bucket, 10_000.0, 100), 1);
        assert_eq!(bucket.delay(), Duration::from_millis(9001));
        bucket.update(1000.0, start + Duration::from_secs(9));
        assert!(!bucket.admits());
        bucket.update(1000.0, start + bucket.delay() + Duration::from_secs(9));
        assert!(bucket.admits());
    }

    #[test]
    fn a_part_of_an_event_per_second_admits_one_event_at_a_time() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(0.25, start);
        assert_eq!(admitted(&mut bucket, 1.0, 100), 1);
        assert_eq!(bucket.delay(), Duration::from_secs(4));
        assert!(!bucket.is_full(start + Duration::from_secs(3)));
        assert!(bucket.is_full(start + Duration::from_secs(4)));
    }

    #[test]
    fn a_changed_rate_applies_at_once() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(1000.0, start);
        bucket.update(2.0, start);
        assert_eq!(admitted(&mut bucket, 1.0, 100), 2);
        bucket.update(1000.0, start);
        bucket.update(1000.0, start + Duration::from_millis(10));
        assert_eq!(admitted(&mut bucket, 1.0, 100), 10);
    }

    #[test]
    fn tokens_that_are_given_back_can_be_taken_again_but_not_saved() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(3.0, start);
        assert_eq!(admitted(&mut bucket, 1.0, 2), 2);
        bucket.give_back(2.0);
        bucket.give_back(2.0);
        bucket.update(3.0, start);
        assert_eq!(admitted(&mut bucket, 1.0, 100), 3);
    }

    proptest! {
        #[test]
        fn the_rate_holds_for_any_sizes_and_times(
            rate in 0.1..10_000.0_f64,
            steps in prop::collection::vec((0..5000_u64, 1..50_000_u32), 1..100),
        ) {
            let start = Instant::now();
            let (mut bucket, mut now, mut taken, mut last) = (TokenBucket::full(rate, start), start, 0.0, 0.0);
            for (milliseconds, size) in steps {
                now += Duration::from_millis(milliseconds);
                bucket.update(rate, now);
                if bucket.admits() {
                    last = f64::from(size);
                    bucket.take(last);
                    taken += last;
                } else {
                    now += bucket.delay();
                    bucket.update(rate, now);
                    prop_assert!(bucket.admits(), "admitted after the announced delay");
                }
            }
            let allowed = rate * (now - start).as_secs_f64() + rate.max(1.0);
            prop_assert!(taken - last <= allowed + 1.0, "{taken} {allowed}");
        }
    }
}
