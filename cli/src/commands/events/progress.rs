//! Progress line of a delivery on a terminal.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use crate::output::Output;

/// Time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// A line that is overwritten by each update, and cleared at the end.
pub(super) struct Progress {
    started: Instant,
    last_update: Option<Instant>,
    enabled: bool,
}

impl Progress {
    /// Starts measuring time.
    pub(super) fn new(out: &Output) -> Self {
        Self { started: Instant::now(), last_update: None, enabled: out.shows_progress() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Updates the line, unless the last update is too recent.
    pub(super) fn update(&mut self, accepted: u64, rejected: u64) {
        let due = self.last_update.unwrap_or(self.started) + UPDATE_INTERVAL;
        if !self.enabled || Instant::now() < due {
            return;
        }
        self.last_update = Some(Instant::now());
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = accepted as f64 / self.elapsed().as_secs_f64();
        overwrite_line(&format!("{accepted} accepted, {rejected} rejected, {rate:.0}/s"));
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
