//! Messages in flight: each belongs to a reply token and gets exactly one outcome.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::exchange::Exchange;
use super::metrics::PublisherMetrics;
use super::target::Target;
use super::{Ack, PublishError};
use crate::budget::Reservation;
use crate::message::Message;

type Outcome = Result<Ack, PublishError>;

/// A deadline that passes earlier is no evidence that the stream is stalled.
const MIN_REPLY_TIME: Duration = Duration::from_secs(1);

/// The outcomes of one call of `publish_all`.
pub(super) struct Batch {
    state: Mutex<BatchState>,
    finished: Notify,
    started_at: Instant,
    metrics: Arc<PublisherMetrics>,
}

struct BatchState {
    outcomes: Vec<Option<Outcome>>,
    missing: usize,
}

impl Batch {
    pub(super) fn new(count: usize, metrics: &Arc<PublisherMetrics>) -> Arc<Self> {
        let state = BatchState { outcomes: vec![None; count], missing: count };
        Arc::new(Self {
            state: Mutex::new(state),
            finished: Notify::new(),
            started_at: Instant::now(),
            metrics: Arc::clone(metrics),
        })
    }

    /// Sets the outcome of one message for the stream. Only the first outcome counts.
    fn settle(&self, index: usize, target: &Target, outcome: Outcome) {
        let mut state = self.lock();
        if let Some(slot @ None) = state.outcomes.get_mut(index) {
            target.metrics.messages(&outcome).inc();
            *slot = Some(outcome);
            state.missing -= 1;
            if state.missing == 0 {
                self.metrics.seconds.observe(self.started_at.elapsed().as_secs_f64());
                self.finished.notify_one();
            }
        }
    }

    /// Waits for the last outcome. Every [`Pending`] message sets one, at the latest when it is dropped.
    pub(super) async fn outcomes(&self) -> Vec<Outcome> {
        loop {
            if let Some(outcomes) = self.take_if_finished() {
                return outcomes;
            }
            self.finished.notified().await;
        }
    }

    fn take_if_finished(&self) -> Option<Vec<Outcome>> {
        let mut state = self.lock();
        (state.missing == 0).then(|| state.outcomes.drain(..).flatten().collect())
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message in flight. If it is dropped without an outcome, its outcome is [`PublishError::Unavailable`].
pub(super) struct Pending {
    pub(super) message: Message,
    pub(super) target: Arc<Target>,
    pub(super) deadline: Instant,
    /// Number of replies of the stream before the message.
    replies_before: u64,
    batch: Arc<Batch>,
    index: usize,
    /// Released before the outcome is visible, so that a caller who has the outcome can use the memory.
    reservation: Option<Reservation>,
}

impl Pending {
    pub(super) fn new(
        message: Message,
        target: Arc<Target>,
        reservation: Reservation,
        deadline: Instant,
        batch: &Arc<Batch>,
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

impl Drop for Pending {
    fn drop(&mut self) {
        if self.reservation.is_some() {
            self.release_and_settle(Err(PublishError::Unavailable));
        }
    }
}

/// Number of a message in its reply subject: a slot and its generation, so that a late reply does not match the next
/// message in the slot, and the number of the stream, which a late reply belongs to as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyToken {
    index: u32,
    generation: u32,
    pub(super) stream: usize,
}

impl fmt::Display for ReplyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, generation, stream } = self;
        write!(f, "{}-{stream}", u64::from(*generation) << 32 | u64::from(*index))
    }
}

impl FromStr for ReplyToken {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, stream) = text.split_once('-').unwrap_or_default();
        let number: u64 = number.parse()?;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
        Ok(Self { index: number as u32, generation: (number >> 32) as u32, stream: stream.parse()? })
    }
}

/// The messages in flight of one connection. After closing it accepts no more.
#[derive(Default)]
pub(super) struct PendingTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    slots: Vec<Slot>,
    free: Vec<u32>,
    closed: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    exchange: Option<Exchange>,
}

impl Slot {
    /// Returns the token of the messages, if there are any.
    fn token(&self, index: u32) -> Option<ReplyToken> {
        let stream = self.exchange.as_ref()?.target()?.number;
        Some(ReplyToken { index, generation: self.generation, stream })
    }
}

impl PendingTable {
    /// Adds messages and returns their token. If the table is closed, drops the messages, which settles them.
    pub(super) fn insert(&self, exchange: Exchange) -> Option<ReplyToken> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let index = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            // The memory budget bounds the number of slots far below four billion.
            u32::try_from(state.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = state.slots.get_mut(index as usize)?;
        slot.exchange = Some(exchange);
        slot.token(index)
    }

    /// Removes the messages of a token. Returns `None` if they were removed before.
    pub(super) fn remove(&self, token: ReplyToken) -> Option<Exchange> {
        self.lock().remove(token)
    }

    /// Returns whether the messages are still in flight.
    pub(super) fn contains(&self, token: ReplyToken) -> bool {
        let state = self.lock();
        let slot = state.slots.get(token.index as usize);
        slot.is_some_and(|slot| slot.generation == token.generation && slot.exchange.is_some())
    }

    /// Removes the messages of these replies under one lock: `None` if they were removed before.
    pub(super) fn remove_all<T>(
        &self,
        replies: impl Iterator<Item = (ReplyToken, T)>,
    ) -> Vec<(ReplyToken, Option<Exchange>, T)> {
        let mut state = self.lock();
        replies.map(|(token, reply)| (token, state.remove(token), reply)).collect()
    }

    /// Removes the messages with a passed deadline.
    pub(super) fn remove_expired(&self, now: Instant) -> Vec<Exchange> {
        self.lock().remove_if(|exchange| exchange.deadline().is_none_or(|deadline| deadline <= now))
    }

    /// Closes the table. Messages in flight stay.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Closes the table and removes all messages.
    pub(super) fn close_and_remove_all(&self) -> Vec<Exchange> {
        let mut state = self.lock();
        state.closed = true;
        state.remove_if(|_| true)
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.free.len() == state.slots.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    fn remove(&mut self, token: ReplyToken) -> Option<Exchange> {
        let slot = self.slots.get_mut(token.index as usize).filter(|it| it.generation == token.generation)?;
        let exchange = slot.exchange.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(exchange)
    }

    fn remove_if(&mut self, condition: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        let matches = |(index, slot): (u32, &Slot)| {
            slot.exchange.as_ref().filter(|exchange| condition(exchange))?;
            slot.token(index)
        };
        let tokens: Vec<ReplyToken> = (0_u32..).zip(&self.slots).filter_map(matches).collect();
        tokens.into_iter().filter_map(|token| self.remove(token)).collect()
    }
}

#[cfg(test)]
mod tests;
