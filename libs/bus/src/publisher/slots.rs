//! Requests that wait for their answer, by number.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::batch::Batch;
use super::capacity::Permit;
use super::{Ack, PublishError};
use crate::message::Message;

/// A message on its way, with everything that ends with it. Dropped without an outcome, it was not published as far as
/// anybody knows.
pub(super) struct Pending {
    pub(super) message: Message,
    pub(super) deadline: Instant,
    batch: Arc<Batch>,
    index: usize,
    /// Given back before the outcome is told, so that whoever learns it finds the room.
    permit: Option<Permit>,
}

impl Pending {
    pub(super) fn new(
        message: Message,
        permit: Permit,
        deadline: Instant,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Self {
        Self { message, deadline, batch: Arc::clone(batch), index, permit: Some(permit) }
    }

    pub(super) fn settle(mut self, outcome: Result<Ack, PublishError>) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Result<Ack, PublishError>) {
        drop(self.permit.take());
        self.batch.settle(self.index, outcome);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.tell(Err(PublishError::Unavailable));
        }
    }
}

/// The number of a request: its place, and how often the place was used, so that a late answer finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    index: u32,
    generation: u32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (u64::from(self.generation) << 32 | u64::from(self.index)).fmt(f)
    }
}

impl FromStr for Token {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number: u64 = text.parse()?;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
        Ok(Self { index: number as u32, generation: (number >> 32) as u32 })
    }
}

/// The requests of one connection. Closed, it takes no more.
#[derive(Default)]
pub(super) struct Slots(Mutex<State>);

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    free: Vec<u32>,
    closed: bool,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    pending: Option<Pending>,
}

impl Slots {
    /// A number for the request; closed, the request is dropped, which settles it.
    pub(super) fn insert(&self, pending: Pending) -> Option<Token> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let index = state.free.pop().unwrap_or_else(|| {
            state.entries.push(Entry::default());
            // Permits bound how many there are, far below four billion.
            u32::try_from(state.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = state.entries.get_mut(index as usize)?;
        entry.pending = Some(pending);
        Some(Token { index, generation: entry.generation })
    }

    /// The request of this number, unless it has been taken already.
    pub(super) fn take(&self, token: Token) -> Option<Pending> {
        self.lock().take(token)
    }

    /// Whether the request of this number is waited for.
    pub(super) fn holds(&self, token: Token) -> bool {
        let state = self.lock();
        let entry = state.entries.get(token.index as usize);
        entry.is_some_and(|entry| entry.generation == token.generation && entry.pending.is_some())
    }

    /// The requests of these numbers, under one lock.
    pub(super) fn take_each<T>(&self, answers: impl Iterator<Item = (Token, T)>) -> Vec<(Pending, T)> {
        let mut state = self.lock();
        answers.filter_map(|(token, answer)| Some((state.take(token)?, answer))).collect()
    }

    /// Every request whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<Pending> {
        self.lock().take_if(|pending| pending.deadline <= now)
    }

    /// Takes no more requests.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Takes no more requests, and gives up those that wait.
    pub(super) fn close_and_take_all(&self) -> Vec<Pending> {
        let mut state = self.lock();
        state.closed = true;
        state.take_if(|_| true)
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.free.len() == state.entries.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, token: Token) -> Option<Pending> {
        let entry =
            self.entries.get_mut(token.index as usize).filter(|it| it.generation == token.generation)?;
        let pending = entry.pending.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(pending)
    }

    fn take_if(&mut self, wanted: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let matches = |(index, entry): (u32, &Entry)| {
            entry.pending.as_ref().filter(|pending| wanted(pending))?;
            Some(Token { index, generation: entry.generation })
        };
        let tokens: Vec<Token> = (0_u32..).zip(&self.entries).filter_map(matches).collect();
        tokens.into_iter().filter_map(|token| self.take(token)).collect()
    }
}

#[cfg(test)]
mod tests;
