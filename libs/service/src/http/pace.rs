//! The slowest rate at which a client can send the body of a request.

use std::time::Duration;

use contract::ProblemKind;
use tokio::time::Instant;

use super::problem::Problem;
use crate::config::{Variable, parse_bytes};

/// Time in which a body must be complete at any rate. Together with the time of a response, it is less than the two minutes in which
/// the streams detect a repeated event, so that a client can repeat a request without a response at once.
const MAX_BODY_TIME: Duration = Duration::from_secs(90);

crate::variables! {
    /// The slowest rate at which a client can send the body of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct BodyPace {
        /// Time that a request body can pause or be late, compared with `SVC_BODY_MIN_RATE`. A body takes at most 90 s.
        grace: Duration = Variable::new("SVC_BODY_GRACE", "duration, 1s to 30s")
            .default("5s")
            .duration(Duration::from_secs(1), Duration::from_secs(30)),
        /// Minimum rate of a request body, on average.
        min_rate: usize = Variable::new("SVC_BODY_MIN_RATE", "bytes per second, 1KiB to 1MiB")
            .default("8KiB")
            .required_with(parse_rate),
    }
}

fn parse_rate(text: &str) -> Result<usize, String> {
    let rate = usize::try_from(parse_bytes(text)?).unwrap_or(usize::MAX);
    if (1024..=1024 * 1024).contains(&rate) { Ok(rate) } else { Err("must be 1KiB to 1MiB".to_owned()) }
}

/// The time at which a body is too slow: the grace time after the minimum rate would have brought its bytes, and after the last byte.
pub(super) struct Deadline {
    pace: BodyPace,
    pub(super) started: Instant,
    pub(super) at: Instant,
}

impl Deadline {
    pub(super) fn new(pace: BodyPace) -> Self {
        let started = Instant::now();
        Self { pace, started, at: started + pace.grace }
    }

    /// Records how many bytes have arrived. Returns whether the client keeps the minimum rate.
    pub(super) fn record(&mut self, total: usize) -> bool {
        let BodyPace { grace, min_rate } = self.pace;
        let (now, bytes) = (Instant::now(), u32::try_from(total).unwrap_or(u32::MAX));
        let due = self.started + Duration::from_secs(1) * bytes / u32::try_from(min_rate).unwrap_or(u32::MAX);
        self.at = (due.min(now) + grace).min(self.started + MAX_BODY_TIME);
        due >= now
    }

    pub(super) fn is_slow(&self) -> bool {
        self.started.elapsed() > self.pace.grace
    }

    /// The problem of a body that is not complete at the deadline.
    pub(super) fn problem(&self) -> Problem {
        let BodyPace { grace, min_rate } = self.pace;
        let (grace, max) = (grace.as_secs_f32(), MAX_BODY_TIME.as_secs());
        let detail = if self.started.elapsed() < MAX_BODY_TIME {
            format!(
                "The body was not complete, and it paused or was late for {grace} s. Send it without pauses, at least {} KiB per second, \
                 or send a smaller one.",
                min_rate / 1024
            )
        } else {
            format!("The body was not complete after {max} s. Send a smaller one.")
        };
        Problem::new(ProblemKind::BodyTimeout).detail(detail)
    }
}

impl BodyPace {
    /// The values of unset variables.
    pub(super) const DEFAULT: Self = Self { grace: Duration::from_secs(5), min_rate: 8 * 1024 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Variables as _};

    /// Sends parts of a body with pauses between them. Returns the seconds after which it is too slow, if it ever is.
    async fn too_slow_after(parts: impl IntoIterator<Item = (usize, u64)>) -> Option<u64> {
        let mut deadline = Deadline::new(BodyPace::DEFAULT);
        let (mut total, mut milliseconds) = (0, 0);
        for (bytes, pause) in parts {
            tokio::time::advance(Duration::from_millis(pause)).await;
            milliseconds += pause;
            if Instant::now() > deadline.at {
                return Some(milliseconds / 1000);
            }
            total += bytes;
            deadline.record(total);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_the_rate_is_never_too_slow_whatever_its_parts_are() {
        const KIB: usize = 1024;
        for (bytes, pause) in
            [(9 * KIB, 1000), (8 * KIB, 1000), (39 * KIB, 2600), (41 * KIB, 4900), (830, 100)]
        {
            let seconds = 80_000 / pause;
            assert_eq!(too_slow_after((0..seconds).map(|_| (bytes, pause))).await, None, "{bytes} {pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slower_body_and_a_pause_are_too_slow_after_the_grace_time() {
        assert_eq!(too_slow_after((0..80).map(|_| (6 * 1024, 1000))).await, Some(18));
        assert_eq!(too_slow_after((0..80).map(|_| (1, 1000))).await, Some(6));
        assert_eq!(too_slow_after([(5_000_000, 1), (1, 4999), (1, 5001)]).await, Some(10));
        assert_eq!(too_slow_after((0..100).map(|_| (100_000, 1000))).await, Some(91));
    }

    #[test]
    fn the_pace_of_internal_listeners_is_that_of_unset_variables() {
        assert_eq!(BodyPace::load(&Environment::default()), Ok(BodyPace::DEFAULT));
        for invalid in ["0B", "1023B", "2MiB", "8", "fast"] {
            let environment = Environment::from_pairs([("SVC_BODY_MIN_RATE", invalid)]);
            assert!(BodyPace::load(&environment).is_err(), "{invalid}");
        }
    }
}
