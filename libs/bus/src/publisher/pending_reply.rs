//! Messages that wait for one reply: a single message, or an atomic batch.
//!
//! The stream stores all messages of an atomic batch or none (nats-server 2.12, ADR-50), and syncs once per batch. It refuses a
//! batch with a duplicate or above its limits: 1,000 messages, and 50 unfinished batches per stream. The messages of a refused
//! batch are then published one by one, so that each has its own outcome. This is safe even if the reply was wrong, because the
//! ids of the messages are the same.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;
use tokio::time::Instant;
use uuid::Uuid;

use super::pending_message::PendingMessage;
use super::target::Target;
use super::{Ack, PublishError};
use crate::wire::Reply;

/// Maximum number of messages in a batch: the default of the server.
pub(super) const MAX_BATCH: usize = 1_000;

const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const COMMIT: &str = "Nats-Batch-Commit: 1\r\n";

/// Messages that wait for one reply.
pub(super) enum PendingReply {
    /// A message with its own acknowledgement.
    Single(PendingMessage),
    /// An atomic batch: two or more messages for one stream, with one deadline. The reply belongs to the last message.
    AtomicBatch(Vec<PendingMessage>),
}

/// Returns what the messages of an atomic batch have in addition to their headers.
pub(super) fn batch_headers(batch: &[PendingMessage]) -> Vec<Vec<u8>> {
    // The server knows at most a thousand batches at a time. Eight bytes distinguish them.
    let id = BASE64URL_NOPAD.encode(&Uuid::now_v7().as_bytes()[8..]);
    let lines = |sequence: usize| {
        let commit = if sequence == batch.len() { COMMIT } else { "" };
        format!("{BATCH_ID}: {id}\r\n{BATCH_SEQUENCE}: {sequence}\r\n{commit}").into_bytes()
    };
    (1..=batch.len()).map(lines).collect()
}

impl PendingReply {
    /// When the messages fail without a reply.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.first().map(|pending| pending.deadline)
    }

    /// The stream.
    pub(super) fn target(&self) -> Option<&Arc<Target>> {
        self.first().map(|pending| &pending.target)
    }

    /// Sets [`PublishError::AckTimeout`] for all messages after their deadline.
    pub(super) fn expire(self, now: Instant) {
        if let Some(first) = self.first().filter(|first| first.is_unanswered(now)) {
            first.target.count_unanswered();
        }
        self.fail(&PublishError::AckTimeout);
    }

    fn first(&self) -> Option<&PendingMessage> {
        match self {
            Self::Single(pending) => Some(pending),
            Self::AtomicBatch(batch) => batch.first(),
        }
    }

    /// Sets the error of all messages.
    pub(super) fn fail(self, error: &PublishError) {
        match self {
            Self::Single(pending) => pending.settle(Err(error.clone())),
            Self::AtomicBatch(batch) => {
                for pending in batch {
                    pending.settle(Err(error.clone()));
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Commit<'a> {
    stream: &'a str,
    /// Sequence number of the last message.
    seq: u64,
    count: u64,
}

/// Settles an atomic batch. Returns the messages that must be published one by one, because the stream refused the batch.
pub(super) fn settle_batch(batch: Vec<PendingMessage>, reply: Reply<'_>) -> Vec<PendingMessage> {
    let Reply::Payload(payload) = reply else {
        PendingReply::AtomicBatch(batch).fail(&PublishError::Unavailable);
        return Vec::new();
    };
    let Some(first) = first_sequence(&batch, payload) else { return batch };
    for (sequence, pending) in (first..).zip(batch) {
        let target = Arc::clone(&pending.target);
        let outcome = Ok(Ack { stream: Arc::clone(&target.name), sequence, duplicate: false });
        target.settle(&outcome);
        pending.settle(outcome);
    }
    Vec::new()
}

/// Returns the sequence number of the first message if the stream stored the complete batch.
fn first_sequence(batch: &[PendingMessage], payload: &[u8]) -> Option<u64> {
    let Commit { stream, seq, count } = serde_json::from_slice(payload).ok()?;
    let is_complete = usize::try_from(count) == Ok(batch.len()) && *stream == *batch.first()?.target.name;
    (is_complete && seq >= count).then(|| seq - count + 1)
}
