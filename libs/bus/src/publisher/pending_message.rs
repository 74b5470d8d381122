//! Messages in flight: each gets exactly one outcome.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::target::Target;
use super::{Ack, PublishError};
use crate::budget::Reservation;
use crate::message::Message;

type Outcome = Result<Ack, PublishError>;

/// A deadline that passes earlier is no evidence that the stream is stalled.
const MIN_REPLY_TIME: Duration = Duration::from_secs(1);

/// The outcomes of one call of `publish_all`.
pub(super) struct CallOutcomes {
    state: Mutex<CallState>,
    finished: Notify,
    started_at: Instant,
    durations: Histogram,
}

struct CallState {
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
}

impl CallOutcomes {
    pub(super) fn new(count: usize, durations: &Histogram) -> Arc<Self> {
        let state = CallState { outcomes: vec![None; count], missing: count };
        Arc::new(Self {
            state: Mutex::new(state),
            finished: Notify::new(),
            started_at: Instant::now(),
            durations: durations.clone(),
        })
    }

    /// Sets the outcome of one message for the stream. Only the first outcome counts.
    fn settle(&self, index: usize, target: &Target, outcome: Outcome) {
        let mut state = self.state.lock();
        if let Some(slot @ None) = state.outcomes.get_mut(index) {
            target.metrics.messages(&outcome).inc();
            *slot = Some(outcome);
            state.missing -= 1;
            if state.missing == 0 {
                self.durations.observe(self.started_at.elapsed().as_secs_f64());
                self.finished.notify_one();
            }
        }
    }

    /// Waits for the last outcome. Every [`PendingMessage`] sets one, at the latest when it is dropped.
    pub(super) async fn outcomes(&self) -> Vec<Outcome> {
        loop {
            if let Some(outcomes) = self.take_if_finished() {
                return outcomes;
            }
            self.finished.notified().await;
        }
    }

    fn take_if_finished(&self) -> Option<Vec<Outcome>> {
        let mut state = self.state.lock();
        (state.missing == 0).then(|| state.outcomes.drain(..).flatten().collect())
    }
}

/// A message in flight. If it is dropped without an outcome, its outcome is [`PublishError::Unavailable`].
pub(super) struct PendingMessage {
    pub(super) message: Message,
    pub(super) target: Arc<Target>,
    pub(super) deadline: Instant,
    /// Number of replies of the stream before the message.
    replies_before: u64,
    batch: Arc<CallOutcomes>,
    index: usize,
    /// Released before the outcome is visible, so that a caller who has the outcome can use the memory.
    reservation: Option<Reservation>,
}

impl PendingMessage {
    pub(super) fn new(
        message: Message,
        target: Arc<Target>,
        reservation: Reservation,
        deadline: Instant,
        batch: &Arc<CallOutcomes>,
        index: usize,
    ) -> Self {
        let replies_before = target.replies();
        let (batch, reservation) = (Arc::clone(batch), Some(reservation));
        Self { message, target, deadline, replies_before, batch, index, reservation }
    }

    /// Returns whether the stream has replied to no message since this one was submitted, and had enough time for it.
    pub(super) fn is_unanswered(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.batch.started_at) >= MIN_REPLY_TIME
            && self.target.replies() == self.replies_before
    }

    pub(super) fn settle(mut self, outcome: Outcome) {
        self.release_and_settle(outcome);
    }

    fn release_and_settle(&mut self, outcome: Outcome) {
        drop(self.reservation.take());
        self.batch.settle(self.index, &self.target, outcome);
    }
}

impl Drop for PendingMessage {
    fn drop(&mut self) {
        if self.reservation.is_some() {
            self.release_and_settle(Err(PublishError::Unavailable));
        }
    }
}
