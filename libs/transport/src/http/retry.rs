//! Retry policy: full jitter on top of `Retry-After`, and no attempt after the service's deduplication window.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{TransportError, TransportErrorKind};

/// Maximum jitter of the first retry; doubles with each retry.
const INITIAL_JITTER: Duration = Duration::from_millis(250);
/// Upper limit of the jitter.
const MAX_JITTER: Duration = Duration::from_secs(30);
/// Upper limit of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// Latest start of an attempt after the first. The service deduplicates events for 120 s.
const RETRY_DEADLINE: Duration = Duration::from_secs(100);

/// Time source of retries, which tests replace by virtual time.
#[async_trait]
pub(crate) trait Clock: Send + Sync {
    fn now(&self) -> Instant;
    async fn sleep(&self, pause: Duration);
}

/// System time.
pub(super) struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn sleep(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

/// Retries of one request, or of the chunks that it was split into.
#[derive(Clone)]
pub(super) struct RetryState<'a> {
    clock: &'a dyn Clock,
    jitter: &'a Mutex<StdRng>,
    started: Instant,
    /// Time of the last attempt that delivered an event, or of the start.
    last_progress: Instant,
    retries: u32,
    max_retries: u32,
    total_timeout: Option<Duration>,
}

impl<'a> RetryState<'a> {
    /// Starts the deadline. Call before the first attempt.
    pub(super) fn new(clock: &'a dyn Clock, jitter: &'a Mutex<StdRng>, max_retries: u32) -> Self {
        let started = clock.now();
        Self { clock, jitter, started, last_progress: started, retries: 0, max_retries, total_timeout: None }
    }

    /// Limits the time from the start, or from the last attempt that delivered an event, to the end of the last attempt.
    pub(super) fn with_total_timeout(self, total_timeout: Option<Duration>) -> Self {
        Self { total_timeout, ..self }
    }

    /// Time limit of the next attempt, if there is one in addition to that of every attempt.
    pub(super) fn time_left(&self) -> Option<Duration> {
        Some(self.total_timeout?.saturating_sub(self.clock.now() - self.last_progress))
    }

    /// Pause before the next attempt. Returns the error if no attempt is left.
    pub(super) fn next_pause(&mut self, error: TransportError) -> Result<Duration, TransportError> {
        if !error.retryable || self.retries == self.max_retries {
            return Err(error);
        }
        let pause = self.pause(error.retry_after);
        if self.elapsed() + pause > RETRY_DEADLINE || self.time_left().is_some_and(|left| pause >= left) {
            return Err(error);
        }
        self.retries += 1;
        tracing::debug!(retry = self.retries, ?pause, %error, "request failed; retrying");
        Ok(pause)
    }

    /// Waits until the next attempt. Returns the error if no attempt is left.
    pub(super) async fn pause_or_fail(&mut self, error: TransportError) -> Result<(), TransportError> {
        let pause = self.next_pause(error)?;
        self.clock.sleep(pause).await;
        Ok(())
    }

    /// Counts the retries from here, because the last attempt delivered a part of the batch. A service sends such responses
    /// while a tenant is above its quota. The deadline remains.
    pub(super) fn record_progress(&mut self) {
        self.retries = 0;
        self.last_progress = self.clock.now();
    }

    /// Returns an error after the deadline. Only chunks of a split request can miss it, because they are sent in turn.
    pub(super) fn check_deadline(&self) -> Result<(), TransportError> {
        if self.elapsed() <= RETRY_DEADLINE {
            return Ok(());
        }
        Err(TransportError::new(
            TransportErrorKind::Timeout,
            "the batch took too long; send the failed events again",
        ))
    }

    fn elapsed(&self) -> Duration {
        self.clock.now() - self.started
    }

    /// Pause before the next attempt: `Retry-After` plus jitter, so that clients do not retry at the same time.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let floor = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        floor + jitter.random_range(Duration::ZERO..=max_jitter(self.retries))
    }
}

fn max_jitter(retries: u32) -> Duration {
    INITIAL_JITTER.saturating_mul(2_u32.saturating_pow(retries)).min(MAX_JITTER)
}

/// Duration in milliseconds.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;
    use crate::tests::server::VirtualClock;

    #[test]
    fn jitter_doubles_up_to_thirty_seconds() {
        let seconds: Vec<_> =
            [0, 1, 2, 6, 7, 40, u32::MAX].map(|retries| max_jitter(retries).as_secs_f64()).into();
        assert_eq!(seconds, [0.25, 0.5, 1.0, 16.0, 30.0, 30.0, 30.0]);
    }

    fn retryable_error(retry_after: Option<Duration>) -> TransportError {
        TransportError {
            retry_after,
            ..TransportError::new(TransportErrorKind::Connection, "connection closed")
        }
    }

    #[tokio::test]
    async fn pauses_spread_over_the_whole_range() {
        let clock = VirtualClock::default();
        let jitter = Mutex::new(StdRng::seed_from_u64(1));
        for _ in 0..1000 {
            RetryState::new(&clock, &jitter, 1).pause_or_fail(retryable_error(None)).await.unwrap();
        }
        let pauses = clock.pauses();
        let below = |limit| pauses.iter().filter(|pause| **pause < limit).count();
        assert!((400..600).contains(&below(INITIAL_JITTER / 2)));
        assert_eq!(below(INITIAL_JITTER + Duration::from_nanos(1)), 1000);
    }

    proptest! {
        #[test]
        fn retries_respect_count_retry_after_and_deadline(
            seed: u64,
            max_retries in 0_u32..50,
            attempts in proptest::collection::vec((0_u64..40_000, proptest::option::of(0_u64..200_000)), 1..60),
        ) {
            let clock = VirtualClock::default();
            let jitter = Mutex::new(StdRng::seed_from_u64(seed));
            let mut retries = RetryState::new(&clock, &jitter, max_retries);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for (duration, retry_after) in attempts {
                clock.advance(Duration::from_millis(duration));
                let retry_after = retry_after.map(Duration::from_millis);
                let before = clock.pauses().len();
                if runtime.block_on(retries.pause_or_fail(retryable_error(retry_after))).is_err() {
                    break;
                }
                let pause = *clock.pauses().last().unwrap();
                prop_assert!(pause >= retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
                prop_assert!(pause <= MAX_RETRY_AFTER + MAX_JITTER);
                prop_assert_eq!(clock.pauses().len(), before + 1);
                prop_assert!(retries.elapsed() <= RETRY_DEADLINE);
            }
            prop_assert!(clock.pauses().len() <= max_retries as usize);
        }
    }
}
