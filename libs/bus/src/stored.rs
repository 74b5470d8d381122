//! Single messages of a stream. A request for one needs no consumer, so its permission names only the stream.

use std::num::NonZeroU64;

use async_nats::datetime::DateTime as NatsTime;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Context, ErrorCode};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

/// Where to look for the next message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// At this number.
    Sequence(u64),
    /// At the first message that was stored at this time or later.
    Time(DateTime<Utc>),
}

/// A message of a stream: its number, and a mark from the time at which it was stored. A copy of the stream that continued differently,
/// for example after a restore, has another message at this number, which has another mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) sequence: u64,
    /// The low 32 bits of the time in nanoseconds since 1970; 0 if it is not known.
    pub(crate) mark: u32,
}

impl Place {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 12;

    pub(crate) fn new(sequence: u64, time: NatsTime) -> Self {
        let [.., a, b, c, d] = time.unix_timestamp_nanos().to_be_bytes();
        Self { sequence, mark: u32::from_be_bytes([a, b, c, d]) }
    }

    pub(crate) fn without_time(sequence: u64) -> Self {
        Self { sequence, mark: 0 }
    }

    /// Returns the later one.
    pub(crate) fn max(self, other: Self) -> Self {
        if other.sequence > self.sequence { other } else { self }
    }

    /// The number in the stream.
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// Returns the number and the mark, in big endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.mark.to_be_bytes());
        bytes
    }

    /// Returns the place of these bytes.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, mark @ ..] = *bytes;
        let sequence = u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        Self { sequence, mark: u32::from_be_bytes(mark) }
    }

    /// Returns whether the stream is an earlier copy of that of the place: it has another message at this number, or ends before it.
    /// A message that was removed is not known to be another.
    pub(crate) async fn is_replaced(
        self,
        context: &Context,
        stream: &str,
    ) -> Result<bool, async_nats::Error> {
        if self.sequence == 0 || self.mark == 0 {
            return Ok(false);
        }
        let next = json!({ "seq": self.sequence, "next_by_subj": ">" });
        if let Some(stored) = message(context, stream, &next).await? {
            return Ok(stored.sequence == self.sequence && Self::new(stored.sequence, stored.time) != self);
        }
        let last = message(context, stream, &json!({ "last_by_subj": ">" })).await?;
        Ok(last.is_some_and(|last| last.sequence < self.sequence))
    }
}

/// Response of the broker to a request for a message.
#[derive(Deserialize)]
struct Found {
    message: RawMessage,
}

/// Returns the first message of a stream with a subject that matches the filter.
///
/// # Errors
/// The broker did not answer, or rejected the request, for example because the stream does not exist.
pub(crate) async fn first_message(
    context: &Context,
    stream: &str,
    filter: &str,
    mut from: ReadFrom,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    loop {
        let next = match from {
            ReadFrom::Sequence(sequence) => json!({ "seq": sequence.max(1), "next_by_subj": filter }),
            ReadFrom::Time(time) => {
                let time = time.to_rfc3339_opts(SecondsFormat::Nanos, true);
                json!({ "start_time": time, "next_by_subj": filter })
            }
        };
        let Some(message) = message(context, stream, &next).await? else { return Ok(None) };
        // Skips a message that no library can read.
        from = ReadFrom::Sequence(message.sequence + 1);
        if let Ok(message) = StreamMessage::try_from(message) {
            return Ok(Some(message));
        }
    }
}

/// Returns the message of a stream with this number. `None` also if no library can read it.
///
/// # Errors
/// As of [`first_message`].
pub(crate) async fn message_at(
    context: &Context,
    stream: &str,
    sequence: NonZeroU64,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    let found = message(context, stream, &json!({ "seq": sequence })).await?;
    Ok(found.and_then(|message| StreamMessage::try_from(message).ok()))
}

/// Returns the message of a request in the form of NATS (ADR-31).
async fn message(
    context: &Context,
    stream: &str,
    request: &Value,
) -> Result<Option<RawMessage>, async_nats::Error> {
    match context.request(format!("STREAM.MSG.GET.{stream}"), request).await? {
        Response::Ok(Found { message }) => Ok(Some(message)),
        Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Response::Err { error } => Err(error.into()),
    }
}
