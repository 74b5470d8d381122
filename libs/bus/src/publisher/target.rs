//! A stream of a publisher: its name, its metrics, its size, and whether it replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use service::telemetry::Metrics;
use tokio::sync::watch;

use super::StreamSize;
use super::metrics::StreamMetrics;

/// A stream of a publisher.
pub(super) struct Target {
    pub(super) name: Arc<str>,
    pub(super) metrics: StreamMetrics,
    available: AtomicBool,
    /// Number of acknowledgements and errors that the stream returned.
    replies: AtomicU64,
    size: watch::Sender<Option<StreamSize>>,
}

impl Target {
    pub(super) fn new(name: &str, metrics: &Metrics) -> Self {
        Self {
            name: name.into(),
            metrics: StreamMetrics::new(metrics, name),
            available: AtomicBool::new(false),
            replies: AtomicU64::new(0),
            size: watch::Sender::new(None),
        }
    }

    /// Returns whether the stream replied to the last probe.
    pub(super) fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    /// Sets whether the stream is available. Returns whether this is a change.
    pub(super) fn set_available(&self, available: bool) -> bool {
        self.available.swap(available, Ordering::Relaxed) != available
    }

    /// Returns the size at the last probe, if there was one.
    pub(super) fn size(&self) -> watch::Receiver<Option<StreamSize>> {
        self.size.subscribe()
    }

    pub(super) fn set_size(&self, size: StreamSize) {
        self.size.send_replace(Some(size));
    }

    pub(super) fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }
}
