//! Time that passes only when somebody sleeps, and then at once.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::http::Clock;

/// Starts at the moment of its making; remembers every pause.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    passed: Mutex<Passed>,
}

#[derive(Debug, Default)]
struct Passed {
    time: Duration,
    pauses: Vec<Duration>,
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self { start: Instant::now(), passed: Mutex::default() }
    }
}

impl VirtualClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.passed.lock().unwrap().time += time;
    }

    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.passed.lock().unwrap().pauses.clone()
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.start + self.passed.lock().unwrap().time
    }

    async fn sleep(&self, pause: Duration) {
        let mut passed = self.passed.lock().unwrap();
        passed.time += pause;
        passed.pauses.push(pause);
    }
}
