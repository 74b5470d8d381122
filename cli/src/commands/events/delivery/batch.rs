//! The batch in the making: when it is full, and when it has waited long enough.

use std::time::Duration;

use tokio::time::Instant;
use transport::OutgoingEvent;

/// A batch is sent at this size, however few events it holds: well inside the service's 10 MiB.
const FULL_BYTES: usize = 4 * 1024 * 1024;
/// A batch of a slow source is sent this long after its first event.
const LINGER: Duration = Duration::from_millis(500);

/// An event and its line.
pub(super) type Numbered = (u64, OutgoingEvent);

/// Events that wait for others to be sent with.
#[derive(Default)]
pub(super) struct Batch {
    events: Vec<Numbered>,
    bytes: usize,
    due: Option<Instant>,
}

impl Batch {
    /// Adds an event.
    pub(super) fn push(&mut self, line: u64, event: OutgoingEvent) {
        self.bytes += event.body().len();
        self.due.get_or_insert_with(|| Instant::now() + LINGER);
        self.events.push((line, event));
    }

    /// Whether it should be sent now.
    pub(super) fn is_full(&self, most_events: usize) -> bool {
        self.events.len() >= most_events || self.bytes >= FULL_BYTES
    }

    /// When it should be sent in any case; never while it is empty.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Its events; it begins anew.
    pub(super) fn take(&mut self) -> Vec<Numbered> {
        std::mem::take(self).events
    }
}
