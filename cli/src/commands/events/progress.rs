//! How far a long send has come, painted over itself on a terminal.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use crate::output::Output;

/// Often enough to look alive, rarely enough to cost nothing.
const EVERY: Duration = Duration::from_millis(200);

/// A line that is painted over itself. It leaves nothing behind.
pub(super) struct Progress {
    started: Instant,
    painted: Option<Instant>,
    paints: bool,
}

impl Progress {
    /// Progress of what begins now.
    pub(super) fn new(out: &Output) -> Self {
        Self { started: Instant::now(), painted: None, paints: out.paints_progress() }
    }

    /// Time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Paints, if it is time to.
    pub(super) fn tell(&mut self, accepted: u64, rejected: u64) {
        let due = self.painted.unwrap_or(self.started) + EVERY;
        if !self.paints || Instant::now() < due {
            return;
        }
        self.painted = Some(Instant::now());
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = accepted as f64 / self.elapsed().as_secs_f64();
        paint(&format!("{accepted} accepted, {rejected} rejected, {rate:.0}/s"));
    }

    /// Clears the line, so that others can write.
    pub(super) fn clear(&mut self) {
        if self.painted.take().is_some() {
            paint("");
        }
    }
}

/// Where painting fails, there is nobody left to look.
fn paint(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
}
