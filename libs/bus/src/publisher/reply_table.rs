//! The messages that wait for a reply, by reply token.

use std::fmt;
use std::str::FromStr;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pending_reply::PendingReply;

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
pub(super) struct ReplyTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    slots: Vec<Slot>,
    free: Vec<u32>,
    closed: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    waiting: Option<PendingReply>,
}

impl Slot {
    /// Returns the token of the messages, if there are any.
    fn token(&self, index: u32) -> Option<ReplyToken> {
        let stream = self.waiting.as_ref()?.target()?.number;
        Some(ReplyToken { index, generation: self.generation, stream })
    }
}

impl ReplyTable {
    /// Adds messages and returns their token. If the table is closed, drops the messages, which settles them.
    pub(super) fn insert(&self, waiting: PendingReply) -> Option<ReplyToken> {
        let mut state = self.0.lock();
        if state.closed {
            return None;
        }
        let index = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            // The memory budget bounds the number of slots far below four billion.
            u32::try_from(state.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = state.slots.get_mut(index as usize)?;
        slot.waiting = Some(waiting);
        slot.token(index)
    }

    /// Removes the messages of a token. Returns `None` if they were removed before.
    pub(super) fn remove(&self, token: ReplyToken) -> Option<PendingReply> {
        self.0.lock().remove(token)
    }

    /// Returns whether the messages are still in flight.
    pub(super) fn contains(&self, token: ReplyToken) -> bool {
        let state = self.0.lock();
        let slot = state.slots.get(token.index as usize);
        slot.is_some_and(|slot| slot.generation == token.generation && slot.waiting.is_some())
    }

    /// Removes the messages of these replies under one lock: `None` if they were removed before.
    pub(super) fn remove_all<T>(
        &self,
        replies: impl Iterator<Item = (ReplyToken, T)>,
    ) -> Vec<(ReplyToken, Option<PendingReply>, T)> {
        let mut state = self.0.lock();
        replies.map(|(token, reply)| (token, state.remove(token), reply)).collect()
    }

    /// Removes the messages with a passed deadline.
    pub(super) fn remove_expired(&self, now: Instant) -> Vec<PendingReply> {
        self.0.lock().remove_if(|waiting| waiting.deadline().is_none_or(|deadline| deadline <= now))
    }

    /// Closes the table. Messages in flight stay.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Closes the table and removes all messages.
    pub(super) fn close_and_remove_all(&self) -> Vec<PendingReply> {
        let mut state = self.0.lock();
        state.closed = true;
        state.remove_if(|_| true)
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.free.len() == state.slots.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl TableState {
    fn remove(&mut self, token: ReplyToken) -> Option<PendingReply> {
        let slot = self.slots.get_mut(token.index as usize).filter(|it| it.generation == token.generation)?;
        let waiting = slot.waiting.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(waiting)
    }

    fn remove_if(&mut self, condition: impl Fn(&PendingReply) -> bool) -> Vec<PendingReply> {
        let matches = |(index, slot): (u32, &Slot)| {
            slot.waiting.as_ref().filter(|waiting| condition(waiting))?;
            slot.token(index)
        };
        let tokens: Vec<ReplyToken> = (0_u32..).zip(&self.slots).filter_map(matches).collect();
        tokens.into_iter().filter_map(|token| self.remove(token)).collect()
    }
}

#[cfg(test)]
mod tests;
