//! When a failed request goes again: full jitter above the service's wish, and never so late that the service has forgotten
//! the first attempt.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{TransportError, TransportErrorKind};

/// Upper end of the first random pause; it doubles with each retry.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Where the doubling ends.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What `Retry-After` can ask for at most.
const LONGEST_FLOOR: Duration = Duration::from_mins(1);
/// No attempt starts later than this after the first. The service recognises a repeated event for 120 s.
const LAST_START: Duration = Duration::from_secs(100);

/// Time as the retries see it, so that tests need not live through it.
#[async_trait]
pub(crate) trait Clock: Send + Sync {
    fn now(&self) -> Instant;
    async fn sleep(&self, pause: Duration);
}

/// The machine's own time.
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

/// The attempts at one request, or at the parts that it was split into.
#[derive(Clone)]
pub(super) struct Retries<'a> {
    clock: &'a dyn Clock,
    jitter: &'a Mutex<StdRng>,
    first_start: Instant,
    made: u32,
    allowed: u32,
}

impl<'a> Retries<'a> {
    /// To be called when the first attempt starts.
    pub(super) fn start(clock: &'a dyn Clock, jitter: &'a Mutex<StdRng>, allowed: u32) -> Self {
        Self { clock, jitter, first_start: clock.now(), made: 0, allowed }
    }

    /// Waits until the next attempt may start. Gives the error back when there is to be none.
    pub(super) async fn pause_after(&mut self, error: TransportError) -> Result<(), TransportError> {
        if !error.retryable || self.made == self.allowed {
            return Err(error);
        }
        let pause = self.pause(error.retry_after);
        if self.elapsed() + pause > LAST_START {
            return Err(error);
        }
        self.made += 1;
        tracing::debug!(retry = self.made, ?pause, %error, "sending again after a pause");
        self.clock.sleep(pause).await;
        Ok(())
    }

    /// Whether it is too late for any attempt. Only what was split can find that it is: its parts take their turns.
    pub(super) fn check_time(&self) -> Result<(), TransportError> {
        if self.elapsed() <= LAST_START {
            return Ok(());
        }
        Err(TransportError::new(
            TransportErrorKind::Timeout,
            "the batch took too long; send what failed again",
        ))
    }

    fn elapsed(&self) -> Duration {
        self.clock.now() - self.first_start
    }

    /// Jitter is added to the service's wish, lest all that heard the same wish come back at the same moment.
    fn pause(&self, wish: Option<Duration>) -> Duration {
        let floor = wish.unwrap_or_default().min(LONGEST_FLOOR);
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        floor + jitter.random_range(Duration::ZERO..=longest_jitter(self.made))
    }
}

fn longest_jitter(retries_made: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(retries_made)).min(LONGEST_PAUSE)
}

/// A duration in the unit of the results.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;
    use crate::tests::clock::VirtualClock;

    #[test]
    fn the_jitter_doubles_up_to_thirty_seconds() {
        let seconds: Vec<_> =
            [0, 1, 2, 6, 7, 40, u32::MAX].map(|made| longest_jitter(made).as_secs_f64()).into();
        assert_eq!(seconds, [0.25, 0.5, 1.0, 16.0, 30.0, 30.0, 30.0]);
    }

    fn passing(retry_after: Option<Duration>) -> TransportError {
        TransportError { retry_after, ..TransportError::new(TransportErrorKind::Connection, "gone") }
    }

    #[tokio::test]
    async fn the_pauses_spread_over_the_whole_range() {
        let clock = VirtualClock::default();
        let jitter = Mutex::new(StdRng::seed_from_u64(1));
        for _ in 0..1000 {
            Retries::start(&clock, &jitter, 1).pause_after(passing(None)).await.unwrap();
        }
        let pauses = clock.pauses();
        let below = |limit| pauses.iter().filter(|pause| **pause < limit).count();
        assert!((400..600).contains(&below(FIRST_PAUSE / 2)));
        assert_eq!(below(FIRST_PAUSE + Duration::from_nanos(1)), 1000);
    }

    proptest! {
        #[test]
        fn retries_keep_count_floor_and_deadline(
            seed: u64,
            allowed in 0_u32..50,
            attempts in proptest::collection::vec((0_u64..40_000, proptest::option::of(0_u64..200_000)), 1..60),
        ) {
            let clock = VirtualClock::default();
            let jitter = Mutex::new(StdRng::seed_from_u64(seed));
            let mut retries = Retries::start(&clock, &jitter, allowed);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for (took, wish) in attempts {
                clock.advance(Duration::from_millis(took));
                let wish = wish.map(Duration::from_millis);
                let before = clock.pauses().len();
                if runtime.block_on(retries.pause_after(passing(wish))).is_err() {
                    break;
                }
                let pause = *clock.pauses().last().unwrap();
                prop_assert!(pause >= wish.unwrap_or_default().min(LONGEST_FLOOR));
                prop_assert!(pause <= LONGEST_FLOOR + LONGEST_PAUSE);
                prop_assert_eq!(clock.pauses().len(), before + 1);
                prop_assert!(retries.elapsed() <= LAST_START);
            }
            prop_assert!(clock.pauses().len() <= allowed as usize);
        }
    }
}
