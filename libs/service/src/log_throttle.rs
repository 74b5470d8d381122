//! Warnings that a stranger can cause at will are written at most once a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_mins(1);

/// Says when it is time to tell of something again.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Option<Instant>>);

impl LogThrottle {
    /// Whether a minute has passed since it last said so; the first time it has.
    pub fn is_due(&self) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = told.is_none_or(|told| told.elapsed() >= EVERY);
        if due {
            *told = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_is_told() {
        let log_throttle = LogThrottle::default();
        let told = (0..1000).filter(|_| log_throttle.is_due()).count();
        assert_eq!(told, 1);
    }
}
