//! Logs when an outage begins and when it ends: once for each transport, and not for each request.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time from the begin of a logged outage to the next one. Otherwise a service of which one instance fails could fill the log.
const MIN_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct OutageLog(Mutex<Outage>);

#[derive(Debug, Default)]
struct Outage {
    /// Begin of the last logged outage.
    began: Option<Instant>,
    is_over: bool,
}

impl OutageLog {
    /// Records the result of a request: the failure, or that the service has answered.
    pub(super) fn record(&self, now: Instant, failure: Option<&str>) {
        let mut outage = self.0.lock();
        let running = outage.began.filter(|_| !outage.is_over);
        match (failure, running) {
            (Some(error), None) if outage.began.is_none_or(|began| now - began >= MIN_INTERVAL) => {
                *outage = Outage { began: Some(now), is_over: false };
                tracing::warn!(error, "the service is not available");
            }
            (None, Some(began)) => {
                outage.is_over = true;
                tracing::info!(seconds = (now - began).as_secs(), "the service is available again");
            }
            _ => {}
        }
    }
}
