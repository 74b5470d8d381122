//! Injected time, so that tests control it. Only this module reads the wall clock.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use parking_lot::Mutex;

/// A clock with whole microseconds, the resolution of Postgres.
pub trait Clock: Send + Sync {
    /// Returns the current time in UTC.
    fn now(&self) -> DateTime<Utc>;
}

/// The system clock, for production.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only access to the wall clock")]
    fn now(&self) -> DateTime<Utc> {
        in_microseconds(Utc::now())
    }
}

/// A clock that only [`Self::advance`] changes, for tests.
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// Creates a clock with this time.
    pub fn at(time: DateTime<Utc>) -> Self {
        Self(Mutex::new(in_microseconds(time)))
    }

    /// Moves the clock forward, or backward by a negative step.
    pub fn advance(&self, step: TimeDelta) {
        *self.0.lock() += step;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock()
    }
}

fn in_microseconds(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(time)
}
