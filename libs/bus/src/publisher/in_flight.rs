//! The messages in flight of one connection: the queue of those to send, and their outcomes after replies, deadlines and the end of
//! the connection. It neither sends nor receives, so that a test simulates every order of these events.

use std::sync::Arc;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::PublishError;
use super::ack::{self, Meaning};
use super::pending_message::PendingMessage;
use super::pending_reply::{self, MAX_BATCH, PendingReply};
use super::reply_table::{ReplyTable, ReplyToken};
use super::target::Target;
use crate::message::Message;
use crate::wire::Reply;

/// The messages in flight, and the queue of those that are not written to the connection yet.
pub(super) struct InFlightMessages {
    pub(super) waiting: ReplyTable,
    outgoing: UnboundedSender<Outgoing>,
}

/// A message with its reply token, before it is written to the connection.
pub(super) struct Outgoing {
    pub(super) token: ReplyToken,
    /// Whether the server replies to this message: to the last one of an atomic batch only.
    pub(super) replied: bool,
    pub(super) message: Message,
    /// Lines in addition to the headers of the message.
    pub(super) batch_headers: Vec<u8>,
}

impl InFlightMessages {
    /// Returns an empty table, and the receiver of the messages to send.
    pub(super) fn new() -> (Self, UnboundedReceiver<Outgoing>) {
        let (queue, outgoing) = mpsc::unbounded_channel();
        (Self { waiting: ReplyTable::default(), outgoing: queue }, outgoing)
    }

    /// Queues the message. Its batch receives the outcome.
    pub(super) fn send(&self, pending: PendingMessage) {
        let message = pending.message.clone();
        if let Some(token) = self.waiting.insert(PendingReply::Single(pending)) {
            self.queue(token, true, message, Vec::new());
        }
    }

    /// Queues messages of one stream as atomic batches.
    pub(super) fn send_atomic(&self, mut messages: Vec<PendingMessage>) {
        while messages.len() > 1 {
            let rest = messages.split_off(messages.len().min(MAX_BATCH));
            self.send_batch(std::mem::replace(&mut messages, rest));
        }
        for pending in messages {
            self.send(pending);
        }
    }

    fn send_batch(&self, batch: Vec<PendingMessage>) {
        let messages: Vec<Message> = batch.iter().map(|pending| pending.message.clone()).collect();
        let headers = pending_reply::batch_headers(&batch);
        let Some(token) = self.waiting.insert(PendingReply::AtomicBatch(batch)) else { return };
        let last = messages.len() - 1;
        for (index, (message, headers)) in messages.into_iter().zip(headers).enumerate() {
            self.queue(token, index == last, message, headers);
        }
    }

    fn queue(&self, token: ReplyToken, replied: bool, message: Message, batch_headers: Vec<u8>) {
        // Fails only after the connection ended, which settles all pending messages.
        let _ = self.outgoing.send(Outgoing { token, replied, message, batch_headers });
    }

    /// Fails the messages of a token, unless they have an outcome.
    pub(super) fn fail(&self, token: ReplyToken, error: &PublishError) {
        if let Some(waiting) = self.waiting.remove(token) {
            waiting.fail(error);
        }
    }

    /// Settles messages by their replies. Messages that must be sent again after a short delay are added to `resend`.
    ///
    /// A reply to messages that have an outcome already proves that the stream, which was slow, processes messages.
    pub(super) fn settle_replied<'a>(
        &self,
        targets: &[Arc<Target>],
        replies: impl IntoIterator<Item = (ReplyToken, Reply<'a>)>,
        resend: &mut Vec<PendingMessage>,
    ) {
        for (token, waiting, reply) in self.waiting.remove_all(replies.into_iter()) {
            let Some(target) = targets.get(token.stream) else { continue };
            target.count_reply();
            match waiting {
                Some(PendingReply::Single(pending)) => match ack::parse(reply, &target.name) {
                    Meaning::Outcome(outcome) => {
                        target.settle(&outcome);
                        pending.settle(outcome);
                    }
                    Meaning::Resend => resend.push(pending),
                },
                Some(PendingReply::AtomicBatch(batch)) => {
                    for pending in pending_reply::settle_batch(batch, reply) {
                        self.send(pending);
                    }
                }
                None => {
                    if let Meaning::Outcome(outcome) = ack::parse(reply, &target.name) {
                        target.settle(&outcome);
                    }
                }
            }
        }
    }

    /// Fails the messages with a passed deadline, and sends the messages of `resend` again.
    pub(super) fn sweep(&self, now: Instant, resend: &mut Vec<PendingMessage>) {
        for waiting in self.waiting.remove_expired(now) {
            waiting.expire(now);
        }
        for pending in std::mem::take(resend) {
            if pending.deadline <= now {
                pending.settle(Err(PublishError::AckTimeout));
            } else {
                self.send(pending);
            }
        }
    }

    /// Fails all messages, because the connection ended.
    pub(super) fn end(&self) {
        for waiting in self.waiting.close_and_remove_all() {
            waiting.fail(&PublishError::Unavailable);
        }
    }
}

#[cfg(test)]
mod simulation;
