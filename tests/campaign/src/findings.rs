//! Broken promises, and the numbers of a round.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use testkit::TestResponse;

/// Findings of one kind that are printed.
const MAX_PRINTED: usize = 20;

/// What the tasks of a round have found.
#[derive(Default)]
pub(crate) struct Findings {
    broken: Mutex<Vec<String>>,
    answered: AtomicU64,
    unavailable: AtomicU64,
    repeated_mails: AtomicU64,
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
    /// Records a broken promise.
    pub(crate) fn add(&self, finding: String) {
        let mut broken = self.broken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if broken.len() < MAX_PRINTED {
            eprintln!("BROKEN: {finding}");
        }
        broken.push(finding);
    }

    /// Counts a response. Returns it if it is definite: after a 5xx response or none, the request may or may not have had its effect.
    pub(crate) fn definite(&self, response: Option<TestResponse>) -> Option<TestResponse> {
        match &response {
            Some(response) if response.status == 500 => self.add(format!("an internal error: {response}")),
            _ => {}
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

    /// The broken promises so far.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.broken.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
