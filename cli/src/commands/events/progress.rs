//! Progress of a delivery on a terminal: one line, with a bar if the size of the input is known.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::pending;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::ProblemKind;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use transport::BatchProgress;

use super::checkpoint::Counts;
use crate::framework::output::{Output, fitted_to_stderr};

/// Time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
/// Number of characters of the bar.
const BAR_WIDTH: usize = 16;

/// Pauses of batches in flight. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Waits(Arc<Mutex<BTreeMap<u64, Wait>>>);

/// A pause before a retry.
#[derive(Clone, Copy)]
struct Wait {
    until: Instant,
    events: usize,
    cause: Option<ProblemKind>,
}

impl Waits {
    /// Sets or removes the pause of a batch.
    pub(super) fn set(&self, batch: u64, progress: &BatchProgress) {
        let mut waits = self.0.lock();
        match progress.retry_delay {
            Some(delay) => {
                let (events, cause) = (progress.waiting_for_retry, progress.retry_cause);
                waits.insert(batch, Wait { until: Instant::now() + delay, events, cause });
            }
            None => drop(waits.remove(&batch)),
        }
    }

    /// Describes the pause that ends first, and the number of events that wait.
    fn describe(&self) -> Option<String> {
        let waits = self.0.lock();
        let events: usize = waits.values().map(|wait| wait.events).sum();
        let now = Instant::now();
        let next = waits.values().filter(|wait| wait.until > now).min_by_key(|wait| wait.until)?;
        let seconds = next.until.duration_since(now).as_secs_f64().ceil();
        let cause = next.cause.map_or("no response", ProblemKind::title).to_lowercase();
        Some(format!("waiting {seconds:.0} s with {events} events: {cause}"))
    }
}

/// A line that is overwritten by each update, and cleared at the end. It is cut to the width of the terminal, because only one line
/// can be overwritten.
pub(super) struct Progress {
    started: Instant,
    last_update: Option<Instant>,
    enabled: bool,
    out: Output,
    /// Size of the input, if known.
    total_bytes: Option<u64>,
    bytes_read: Arc<AtomicU64>,
    /// Events that were accepted in earlier runs.
    accepted_before: u64,
}

impl Progress {
    /// Starts measuring time.
    pub(super) fn new(out: &Output, total_bytes: Option<u64>, before: Counts) -> Self {
        Self {
            started: Instant::now(),
            last_update: None,
            enabled: out.shows_progress(),
            out: out.clone(),
            total_bytes,
            bytes_read: Arc::default(),
            accepted_before: before.accepted,
        }
    }

    /// Number of bytes that were read so far.
    pub(super) fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the next update is due.
    pub(super) async fn due(&self) {
        if !self.enabled {
            pending::<()>().await;
        }
        sleep_until(self.last_update.unwrap_or(self.started) + UPDATE_INTERVAL).await;
    }

    pub(super) fn update(&mut self, counts: Counts, waits: &Waits) {
        self.last_update = Some(Instant::now());
        let accepted = counts.accepted - self.accepted_before;
        let mut line = self.bar();
        // A failure to write to a string is not possible.
        let _ = write!(line, "{} accepted", counts.accepted);
        if counts.quarantined > 0 {
            let _ = write!(line, ", {} quarantined", counts.quarantined);
        }
        if counts.rejected > 0 {
            let _ = write!(line, ", {} rejected", counts.rejected);
        }
        if let Some(wait) = waits.describe() {
            let _ = write!(line, ", {wait}");
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = accepted as f64 / self.elapsed().as_secs_f64();
            let _ = write!(line, ", {rate:.0}/s");
        }
        overwrite_line(&fitted_to_stderr(&line));
    }

    /// `[=====>          ]  34% `, if the size of the input is known.
    fn bar(&self) -> String {
        let Some(total) = self.total_bytes.filter(|total| *total > 0) else { return String::new() };
        let read = self.bytes_read.load(Ordering::Relaxed).min(total);
        let percent = usize::try_from(u128::from(read) * 100 / u128::from(total)).unwrap_or(100);
        let filled = percent * BAR_WIDTH / 100;
        let (done, left) = ("=".repeat(filled), " ".repeat(BAR_WIDTH - filled));
        format!("[{done}{left}] {percent:>3}% ")
    }

    /// Explains why the command does not end at once after a signal.
    pub(super) fn explain_wait(&mut self, requests: usize) {
        if self.enabled && requests > 0 {
            self.clear();
            let what = if requests == 1 { "request" } else { "requests" };
            self.out.notice(&format!("waiting for {requests} {what}; press Ctrl-C again to end at once"));
        }
    }

    /// Clears the line before other output.
    pub(super) fn clear(&mut self) {
        if self.last_update.take().is_some() {
            overwrite_line("");
        }
    }
}

/// A failure to write to standard error cannot be reported anywhere else.
fn overwrite_line(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}
