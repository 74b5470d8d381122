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
        /// Time in which a request body must be complete. It starts again each time that `SVC_BODY_GRACE` × `SVC_BODY_MIN_RATE` bytes
        /// have arrived. A body takes at most 90 s.
        grace: Duration = Variable::new("SVC_BODY_GRACE", "duration, 1s to 30s")
            .default("5s")
            .duration(Duration::from_secs(1), Duration::from_secs(30)),
        /// Minimum rate of a request body that takes longer than `SVC_BODY_GRACE`.
        min_rate: usize = Variable::new("SVC_BODY_MIN_RATE", "bytes per second, 1KiB to 1MiB")
            .default("8KiB")
            .required_with(parse_rate),
    }
}

fn parse_rate(text: &str) -> Result<usize, String> {
    let rate = usize::try_from(parse_bytes(text)?).unwrap_or(usize::MAX);
    if (1024..=1024 * 1024).contains(&rate) { Ok(rate) } else { Err("must be 1KiB to 1MiB".to_owned()) }
}

/// The time at which a body is too slow. It moves on while the client keeps the minimum rate.
pub(super) struct Deadline {
    pace: BodyPace,
    pub(super) started: Instant,
    pub(super) at: Instant,
    /// Number of received bytes that moves it on.
    moves_at: usize,
}

impl Deadline {
    pub(super) fn new(pace: BodyPace) -> Self {
        let started = Instant::now();
        Self { pace, started, at: started + pace.grace, moves_at: pace.bytes() }
    }

    /// Records how many bytes have arrived. Returns whether the deadline has moved.
    pub(super) fn record(&mut self, total: usize) -> bool {
        let moves = total >= self.moves_at;
        if moves {
            self.at = (Instant::now() + self.pace.grace).min(self.started + MAX_BODY_TIME);
            self.moves_at = total + self.pace.bytes();
        }
        moves
    }

    pub(super) fn is_slow(&self) -> bool {
        self.started.elapsed() > self.pace.grace
    }

    /// The problem of a body that is not complete at the deadline.
    pub(super) fn problem(&self) -> Problem {
        let BodyPace { grace, min_rate } = self.pace;
        let (grace, kib, max) = (grace.as_secs_f32(), self.pace.bytes() / 1024, MAX_BODY_TIME.as_secs());
        let detail = if self.started.elapsed() < MAX_BODY_TIME {
            format!(
                "The body was not complete, and less than {kib} KiB of it arrived in {grace} s. Send it without pauses, at least {} KiB \
                 per second, or send a smaller one.",
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

    /// Number of bytes that must arrive in the grace time.
    fn bytes(self) -> usize {
        usize::try_from(self.grace.as_millis()).unwrap_or(usize::MAX).saturating_mul(self.min_rate) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Variables as _};

    #[test]
    fn the_pace_of_internal_listeners_is_that_of_unset_variables() {
        assert_eq!(BodyPace::load(&Environment::default()), Ok(BodyPace::DEFAULT));
        for invalid in ["0B", "1023B", "2MiB", "8", "fast"] {
            let environment = Environment::from_pairs([("SVC_BODY_MIN_RATE", invalid)]);
            assert!(BodyPace::load(&environment).is_err(), "{invalid}");
        }
    }
}
