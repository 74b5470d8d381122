//! Violations, and the numbers of a round.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use testkit::TestResponse;

/// Maximum number of findings that a round prints. All are in `rounds.json`.
const MAX_PRINTED: usize = 20;

/// What the tasks of a round have found.
#[derive(Default)]
pub(crate) struct Findings {
    violations: Mutex<Vec<String>>,
    answered: AtomicU64,
    unavailable: AtomicU64,
    repeated_mails: AtomicU64,
    times: Mutex<HashMap<String, Vec<Duration>>>,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Requests {
    /// With a definite response.
    pub(crate) answered: u64,
    /// With a 5xx response or none.
    pub(crate) unavailable: u64,
}

impl Findings {
    /// Records a violation.
    pub(crate) fn add(&self, finding: String) {
        let mut violations = self.violations.lock();
        if violations.len() < MAX_PRINTED {
            eprintln!("VIOLATED: {finding}");
        }
        violations.push(finding);
    }

    /// Counts a response. Returns it if it is definite: after a 5xx response or none, the request may or may not have had its effect.
    pub(crate) fn definite(&self, response: Option<TestResponse>) -> Option<TestResponse> {
        if let Some(response) = response.as_ref().filter(|response| response.status == 500) {
            self.add(format!("an internal error: {response}"));
        }
        let response = response.filter(|response| response.status < 500);
        let counter = if response.is_some() { &self.answered } else { &self.unavailable };
        counter.fetch_add(1, Relaxed);
        response
    }

    /// Counts a mail that was delivered again after a fault.
    pub(crate) fn count_repeated_mail(&self) {
        self.repeated_mails.fetch_add(1, Relaxed);
    }

    pub(crate) fn repeated_mails(&self) -> u64 {
        self.repeated_mails.load(Relaxed)
    }

    pub(crate) fn requests(&self) -> Requests {
        Requests { answered: self.answered.load(Relaxed), unavailable: self.unavailable.load(Relaxed) }
    }

    /// Records the duration of a request of this kind, also of one without a response.
    pub(crate) fn record_time(&self, kind: &str, time: Duration) {
        let mut times = self.times.lock();
        times.entry(kind.to_owned()).or_default().push(time);
    }

    /// Takes the times of all kinds of requests.
    pub(crate) fn take_times(&self) -> HashMap<String, Vec<Duration>> {
        std::mem::take(&mut *self.times.lock())
    }

    /// The violations so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }
}
