//! A stream of a publisher: its name, its metrics, its size, and whether it stores messages.
//!
//! A stream is available while it replies to probes and acknowledges messages. A probe alone is not enough: a stream that could not
//! write to a full volume still replies to probes, and to no message, until its server is restarted. After several messages
//! without a reply, new messages are rejected at once, except for those of one call after each probe: the trial. The
//! stream is available again when it acknowledges one.
//!
//! A load balancer sends no calls while ingest reports that it is not ready. Therefore a stalled stream counts as ready if its
//! trial was not used for a while, until the next call uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use service::telemetry::Metrics;
use tokio::sync::watch;

use super::metrics::StreamMetrics;
use super::{Ack, PublishError, StreamSize};

/// Number of messages without a reply after which a stream is stalled. One alone can be lost with its server.
const MAX_UNANSWERED: u32 = 3;
/// Number of probes without a call after which a stalled stream counts as ready. This takes longer than the publish timeout of
/// ingest, so the previous trial has its outcome.
const UNUSED_TRIALS: u32 = 6;

/// A stream of a publisher.
pub(super) struct Target {
    /// Position among the streams of the publisher.
    pub(super) number: usize,
    pub(super) name: Arc<str>,
    pub(super) metrics: StreamMetrics,
    /// Whether the stream replied to the last probe.
    responsive: AtomicBool,
    /// Number of messages that reached their deadline while the stream replied to probes only.
    unanswered: AtomicU32,
    /// Number of probes that a stalled stream replied to since the last trial. The next call is a trial if there was one.
    unused_trials: AtomicU32,
    /// Number of acknowledgements and errors that the stream returned, also after the deadline of the message.
    replies: AtomicU64,
    /// The size at the last probe, if there was one.
    pub(super) size: watch::Sender<Option<StreamSize>>,
}

impl Target {
    pub(super) fn new(number: usize, name: &str, metrics: &Metrics) -> Self {
        Self {
            number,
            name: name.into(),
            metrics: StreamMetrics::new(metrics, name),
            responsive: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
            unused_trials: AtomicU32::new(0),
            replies: AtomicU64::new(0),
            size: watch::Sender::new(None),
        }
    }

    /// Returns whether the stream replied to the last probe and acknowledges messages.
    pub(super) fn is_available(&self) -> bool {
        self.is_responsive() && !self.is_stalled()
    }

    /// Returns whether the stream is available, or replies to probes and can be available again: no call has tried it for a while.
    pub(super) fn is_ready(&self) -> bool {
        self.is_available() || self.unused_trials.load(Ordering::Relaxed) >= UNUSED_TRIALS
    }

    /// Returns whether the stream replied to the last probe.
    pub(super) fn is_responsive(&self) -> bool {
        self.responsive.load(Ordering::Relaxed)
    }

    /// Returns whether several messages had no reply, and none was acknowledged since.
    pub(super) fn is_stalled(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= MAX_UNANSWERED
    }

    /// Returns whether the messages of a call are published. Call it once per call, because it uses up the trial of a stalled stream.
    pub(super) fn admits(&self) -> bool {
        self.is_responsive() && (!self.is_stalled() || self.unused_trials.swap(0, Ordering::Relaxed) > 0)
    }

    /// Sets the result of a probe. A stalled stream that replied gets a trial.
    pub(super) fn set_responsive(&self, responsive: bool) {
        self.responsive.store(responsive, Ordering::Relaxed);
        if responsive && self.is_stalled() {
            self.unused_trials.fetch_add(1, Ordering::Relaxed);
        } else {
            self.unused_trials.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a message that reached its deadline after the stream had replied to none since the message was sent.
    ///
    /// If the stream does not reply to probes either, the server is the cause, and the next probe ends that.
    pub(super) fn count_unanswered(&self) {
        if self.is_responsive() {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the outcome of a message that has a reply. Any but "not available" proves that the stream processes messages.
    pub(super) fn settle(&self, outcome: &Result<Ack, PublishError>) {
        if *outcome != Err(PublishError::Unavailable) {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }
}
