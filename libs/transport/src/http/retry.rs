//! Retry policy: longer pauses while the service does not answer, jitter on top of `Retry-After`, and no attempt after the
//! service's deduplication window.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use contract::ProblemKind;
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;

use super::client::AttemptLimits;
use crate::{TransportError, TransportErrorKind};

/// Maximum jitter of the first retry; doubles with each retry.
const INITIAL_JITTER: Duration = Duration::from_millis(250);
/// Upper limit of the jitter.
const MAX_JITTER: Duration = Duration::from_secs(30);
/// The same, while the service names the time of the next attempt: sending continues soon after the end of an outage of its broker.
const MAX_WAIT_JITTER: Duration = Duration::from_secs(4);
/// First pause while the service does not answer; doubles with each retry.
const FIRST_OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// Upper limit of the doubled pause.
const MAX_OUTAGE_PAUSE: Duration = Duration::from_secs(30);
/// Minimum of the last pauses, in reverse order, so that two or more retries last longer than a restart of the service.
const LAST_OUTAGE_PAUSES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];
/// Upper limit of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// Latest start of an attempt after the first. The service deduplicates events for 120 s.
const RETRY_DEADLINE: Duration = Duration::from_secs(100);
/// Latest end of a repeated attempt after the first. The service responds within 10 s after it has received a request, so a
/// request that is received earlier is inside the 120 s.
const LAST_RESPONSE: Duration = Duration::from_secs(110);

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
    /// Time of the last attempt that delivered an event, or of the start, without the time in which bodies were sent since then.
    last_progress: Instant,
    /// Retries that count.
    retries: u32,
    /// Retries that the service asked for. They do not count.
    waits: u32,
    max_retries: u32,
    total_timeout: Option<Duration>,
    /// Whether an earlier attempt possibly stored events.
    is_repeated: bool,
}

impl<'a> RetryState<'a> {
    /// Starts the deadline. Call before the first attempt.
    pub(super) fn new(clock: &'a dyn Clock, jitter: &'a Mutex<StdRng>, max_retries: u32) -> Self {
        let started = clock.now();
        Self {
            clock,
            jitter,
            started,
            last_progress: started,
            retries: 0,
            waits: 0,
            max_retries,
            total_timeout: None,
            is_repeated: false,
        }
    }

    /// Limits the time from the start, or from the last attempt that delivered an event, to the end of the last attempt.
    pub(super) fn with_total_timeout(self, total_timeout: Option<Duration>) -> Self {
        Self { total_timeout, ..self }
    }

    /// Time limits of the next attempt, in addition to that of every attempt.
    pub(super) fn attempt_limits(&self) -> AttemptLimits {
        let total = self.is_repeated.then(|| LAST_RESPONSE.saturating_sub(self.elapsed()));
        AttemptLimits {
            idle: self.total_time_left().unwrap_or(Duration::MAX),
            total: total.unwrap_or(Duration::MAX),
        }
    }

    /// Excludes the time in which the body of an attempt was sent from the total time.
    pub(super) fn record_upload(&mut self, duration: Duration) {
        self.last_progress += duration;
    }

    /// Starts the deadline again, because none of the events was sent so far. Otherwise changes nothing.
    pub(super) fn restart_if_unsent(&mut self) {
        if !self.is_repeated {
            self.started = self.clock.now();
            self.last_progress = self.started;
        }
    }

    /// Waits until the next attempt can start, inside the deadline.
    pub(super) async fn wait_for<T>(&self, start: impl Future<Output = T>) -> Result<T, TransportError> {
        let waited = tokio::time::timeout(self.time_to_start(), start).await;
        waited.map_err(|_| {
            let message = "earlier requests of this transport took too long; send the event again, or raise \
                `with_max_concurrent_requests`";
            TransportError::new(TransportErrorKind::Timeout, message)
        })
    }

    /// Pause before the next attempt. Returns the error if no attempt is left.
    pub(super) fn next_pause(&mut self, error: TransportError) -> Result<Duration, TransportError> {
        // Limited by time only: a tenant above its quota waits for its turn, also behind its other requests, and a broker that
        // restarts costs no retries.
        let counts = !names_next_attempt(&error) || self.max_retries == 0;
        if !error.retryable || counts && self.retries == self.max_retries {
            return Err(error);
        }
        // Not before `Retry-After`: a pause that is cut would be followed by another rejection.
        if error.retry_after.is_some_and(|requested| requested > MAX_RETRY_AFTER) {
            return Err(error);
        }
        let pause = self.pause(&error);
        if self.elapsed() + pause > RETRY_DEADLINE || self.total_time_left().is_some_and(|left| pause >= left)
        {
            return Err(error);
        }
        *if counts { &mut self.retries } else { &mut self.waits } += 1;
        self.is_repeated |= is_possibly_stored(&error);
        tracing::debug!(retry = self.retries + self.waits, ?pause, %error, "request failed; retrying");
        Ok(pause)
    }

    /// Waits until the next attempt. Returns the error if no attempt is left.
    pub(super) async fn pause_or_fail(&mut self, error: TransportError) -> Result<(), TransportError> {
        let pause = self.next_pause(error.clone())?;
        self.sleep(pause, error).await
    }

    /// Waits for a pause. Returns the error if the deadline has passed meanwhile, for example because the process was stopped.
    pub(super) async fn sleep(&self, pause: Duration, error: TransportError) -> Result<(), TransportError> {
        self.clock.sleep(pause).await;
        if self.elapsed() > RETRY_DEADLINE { Err(error) } else { Ok(()) }
    }

    /// Counts the retries from here, because the last attempt delivered a part of the batch. A service sends such responses
    /// while a tenant is above its quota. The deadline remains.
    pub(super) fn record_progress(&mut self) {
        (self.retries, self.waits) = (0, 0);
        self.last_progress = self.clock.now();
    }

    /// Returns an error after the deadline. Call it immediately before each attempt: any earlier await can have taken longer than
    /// it should.
    pub(super) fn check_deadline(&self) -> Result<(), TransportError> {
        if self.elapsed() <= RETRY_DEADLINE {
            return Ok(());
        }
        Err(TransportError::new(
            TransportErrorKind::Timeout,
            "sending took too long; send the events without a result again",
        ))
    }

    fn elapsed(&self) -> Duration {
        self.clock.now() - self.started
    }

    fn total_time_left(&self) -> Option<Duration> {
        Some(self.total_timeout?.saturating_sub(self.clock.now() - self.last_progress))
    }

    /// Time until the latest start of an attempt.
    fn time_to_start(&self) -> Duration {
        let left = RETRY_DEADLINE.saturating_sub(self.elapsed());
        self.total_time_left().map_or(left, |total| total.min(left))
    }

    /// Pause before the next attempt: `Retry-After` plus jitter, so that clients do not retry at the same time. While the service
    /// does not answer, and after a 429 without `Retry-After`, at least the pause of an outage, but at most half of the time that is
    /// left.
    fn pause(&self, error: &TransportError) -> Duration {
        let floor = error.retry_after.unwrap_or_default();
        let mut jitter = self.jitter.lock();
        if is_outage(error) || error.status == Some(429) && floor.is_zero() {
            let outage = outage_pause(self.retries, self.max_retries);
            let outage = outage + jitter.random_range(Duration::ZERO..=outage / 2);
            let outage = outage.min(self.time_to_start() / 2);
            if outage > floor {
                return outage;
            }
        }
        let max_jitter = if names_next_attempt(error) {
            max_jitter(self.waits).min(MAX_WAIT_JITTER)
        } else {
            max_jitter(self.retries)
        };
        floor + jitter.random_range(Duration::ZERO..=max_jitter)
    }
}

/// Returns whether a request with this error can have stored events. The service has not received the complete body of one that is too
/// slow or too large, and rejects one above a limit as a whole.
fn is_possibly_stored(error: &TransportError) -> bool {
    !matches!(error.status, Some(408 | 413 | 429))
}

/// Returns whether the service does not answer, which typically takes as long as a restart.
fn is_outage(error: &TransportError) -> bool {
    let overloaded = Some(ProblemKind::Overloaded.code());
    matches!(error.status, None | Some(502..=504))
        && error.code.as_deref() != overloaded
        && !names_next_attempt(error)
}

/// Returns whether the service itself answers that the tenant is above a limit, or that its broker accepts no events, and names the
/// time of the next attempt. A proxy has no such codes.
fn names_next_attempt(error: &TransportError) -> bool {
    use ProblemKind::{AckTimeout, DependencyUnavailable, QuotaExceeded, RateLimited, StreamFull};
    let kind = error.code.as_deref().and_then(ProblemKind::from_code);
    let waits =
        matches!(kind, Some(AckTimeout | DependencyUnavailable | QuotaExceeded | RateLimited | StreamFull));
    waits && error.retry_after.is_some()
}

/// Minimum pause after this number of retries while the service does not answer: 1, 10 and 30 s for three retries.
fn outage_pause(retries: u32, max_retries: u32) -> Duration {
    let doubled = FIRST_OUTAGE_PAUSE.saturating_mul(2_u32.saturating_pow(retries)).min(MAX_OUTAGE_PAUSE);
    let left = max_retries.saturating_sub(retries + 1) as usize;
    match LAST_OUTAGE_PAUSES.get(left) {
        // Most broken connections can be replaced at once.
        Some(last) if retries > 0 => doubled.max(*last),
        _ => doubled,
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

    #[test]
    fn pauses_of_an_outage_last_longer_than_a_restart_for_two_or_more_retries() {
        let seconds = |max_retries| -> Vec<_> {
            (0..max_retries).map(|retries| outage_pause(retries, max_retries).as_secs()).collect()
        };
        assert_eq!(seconds(3), [1, 10, 30]);
        assert_eq!((seconds(1), seconds(2)), (vec![1], vec![1, 30]));
        assert_eq!(seconds(5), [1, 2, 4, 10, 30]);
        assert_eq!(seconds(8), [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(outage_pause(u32::MAX - 1, u32::MAX).as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_other_requests_ends_at_the_deadline_or_the_total_timeout() {
        let (clock, jitter) = (VirtualClock::default(), Mutex::new(StdRng::seed_from_u64(1)));
        for (total, expected) in [(None, 100), (Some(7), 7), (Some(200), 100)] {
            let total = total.map(Duration::from_secs);
            let retries = RetryState::new(&clock, &jitter, 3).with_total_timeout(total);
            let started = tokio::time::Instant::now();
            let error = retries.wait_for(std::future::pending::<()>()).await.unwrap_err();
            assert_eq!((error.kind, error.retryable), (TransportErrorKind::Timeout, true));
            assert_eq!(started.elapsed().as_secs(), expected);
        }
    }

    #[tokio::test]
    async fn a_repeated_attempt_ends_before_the_service_could_store_its_events_twice() {
        let (clock, jitter) = (VirtualClock::default(), Mutex::new(StdRng::seed_from_u64(1)));
        let mut retries = RetryState::new(&clock, &jitter, 3);
        let too_slow = TransportError { status: Some(408), ..retryable_error(None) };
        retries.pause_or_fail(too_slow).await.unwrap();
        assert_eq!(retries.attempt_limits().total, Duration::MAX);
        clock.advance(Duration::from_secs(94));
        retries.pause_or_fail(retryable_error(None)).await.unwrap();
        assert_eq!(retries.attempt_limits().total, LAST_RESPONSE.saturating_sub(clock.elapsed()));
        assert!(retries.attempt_limits().total < Duration::from_secs(16));
        retries.restart_if_unsent();
        assert!(retries.attempt_limits().total < Duration::from_secs(16));
    }

    /// An error of an overloaded service.
    fn retryable_error(retry_after: Option<Duration>) -> TransportError {
        TransportError {
            status: Some(503),
            code: Some("overloaded".to_owned()),
            retryable: true,
            retry_after,
            ..TransportError::new(TransportErrorKind::Status, "overloaded")
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
