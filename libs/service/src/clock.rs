//! Time is injected, so that tests can move it; this is its one home.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};

/// Tells the time, in whole microseconds: what Postgres keeps.
pub trait Clock: Send + Sync {
    /// Now, UTC.
    fn now(&self) -> DateTime<Utc>;
}

/// The machine's clock; what every process runs with.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the wall clock")]
    fn now(&self) -> DateTime<Utc> {
        in_microseconds(Utc::now())
    }
}

/// A clock that stands still until it is moved, for tests.
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// Starts at the given time.
    pub fn at(time: DateTime<Utc>) -> Self {
        Self(Mutex::new(in_microseconds(time)))
    }

    /// Moves the clock forward, or back with a negative step.
    pub fn advance(&self, step: TimeDelta) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += step;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_microseconds(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(time)
}
