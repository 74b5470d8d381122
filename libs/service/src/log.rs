//! Error chains as one log line, and a rate limit for warnings.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two warnings of one [`LogThrottle`].
const INTERVAL: Duration = Duration::from_mins(1);

/// Returns an error and all its sources as one line. The `Display` of an error does not contain its source.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Limits warnings that clients can cause to one per minute.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Option<Instant>>);

impl LogThrottle {
    /// Returns whether a warning can be logged now.
    pub fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_many_warnings_is_due() {
        let throttle = LogThrottle::default();
        assert_eq!((0..1000).filter(|_| throttle.is_due()).count(), 1);
    }
}
