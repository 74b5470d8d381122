//! The messages that wait for a reply, by reply token.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::pending_reply::PendingReply;

/// Number of a message in its reply subject, which is never used again, so that a late reply matches no other message; and the number
/// of the stream, which a late reply belongs to as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyToken {
    number: u64,
    pub(super) stream: usize,
}

impl fmt::Display for ReplyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.stream)
    }
}

impl FromStr for ReplyToken {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, stream) = text.split_once('-').unwrap_or_default();
        Ok(Self { number: number.parse()?, stream: stream.parse()? })
    }
}

/// The messages in flight of one connection. After closing it accepts no more.
#[derive(Default)]
pub(super) struct ReplyTable(Mutex<TableState>);

#[derive(Default)]
struct TableState {
    /// By number, in the order in which they were added.
    waiting: BTreeMap<u64, PendingReply>,
    next: u64,
    closed: bool,
}

impl ReplyTable {
    /// Adds messages and returns their token. If the table is closed, drops the messages, which settles them.
    pub(super) fn insert(&self, waiting: PendingReply) -> Option<ReplyToken> {
        let mut state = self.0.lock();
        if state.closed {
            return None;
        }
        let token = ReplyToken { number: state.next, stream: waiting.target()?.number };
        state.next += 1;
        state.waiting.insert(token.number, waiting);
        Some(token)
    }

    /// Removes the messages of a token. Returns `None` if they were removed before.
    pub(super) fn remove(&self, token: ReplyToken) -> Option<PendingReply> {
        self.0.lock().waiting.remove(&token.number)
    }

    /// Returns whether the messages are still in flight. The deadline can have passed: they wait in the queue while the server accepts
    /// nothing.
    pub(super) fn contains(&self, token: ReplyToken) -> bool {
        self.0.lock().waiting.contains_key(&token.number)
    }

    /// Removes the messages of these replies under one lock: `None` if they were removed before.
    pub(super) fn remove_all<T>(
        &self,
        replies: impl Iterator<Item = (ReplyToken, T)>,
    ) -> Vec<(ReplyToken, Option<PendingReply>, T)> {
        let mut state = self.0.lock();
        replies.map(|(token, reply)| (token, state.waiting.remove(&token.number), reply)).collect()
    }

    /// Removes the messages with a passed deadline.
    pub(super) fn remove_expired(&self, now: Instant) -> Vec<PendingReply> {
        let waiting = &mut self.0.lock().waiting;
        let is_expired = |waiting: &PendingReply| waiting.deadline().is_none_or(|deadline| deadline <= now);
        let expired = waiting.iter().filter(|(_, waiting)| is_expired(waiting));
        let expired: Vec<u64> = expired.map(|(number, _)| *number).collect();
        expired.iter().filter_map(|number| waiting.remove(number)).collect()
    }

    /// Closes the table. Messages in flight stay.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Closes the table and removes all messages.
    pub(super) fn close_and_remove_all(&self) -> Vec<PendingReply> {
        let mut state = self.0.lock();
        state.closed = true;
        std::mem::take(&mut state.waiting).into_values().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

#[cfg(test)]
mod tests;
