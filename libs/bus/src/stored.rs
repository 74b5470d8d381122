//! Single messages of a stream. A request for one needs no consumer, so its permission names only the stream.

use std::num::NonZeroU64;

use async_nats::datetime::{self, DateTime as NatsTime};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Context, ErrorCode};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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

/// Returns the nearest time that the server represents: it counts nanoseconds since 1970 in 64 bits, and wraps times before 1678 and after
/// 2262. No message is older than 1970.
fn representable(time: DateTime<Utc>) -> DateTime<Utc> {
    time.clamp(DateTime::UNIX_EPOCH, DateTime::from_timestamp_nanos(i64::MAX))
}

/// Returns the nearest time that the server represents, as the client library sends it.
pub(crate) fn nats_time(time: DateTime<Utc>) -> NatsTime {
    // Both types have all of these times.
    let nanos = representable(time).timestamp_nanos_opt().unwrap_or_default();
    datetime::from_nanos(nanos.into()).unwrap_or(NatsTime::UNIX_EPOCH)
}

/// Returns a time of the server.
pub(crate) fn utc(time: NatsTime) -> DateTime<Utc> {
    DateTime::from_timestamp(time.unix_timestamp(), time.nanosecond()).unwrap_or_default()
}

/// Response of the broker to a request for a message.
#[derive(Deserialize)]
struct Found {
    message: RawMessage,
}

/// Returns the request for the first message with a subject that matches the filter.
fn next(from: ReadFrom, filter: &str) -> Value {
    match from {
        ReadFrom::Sequence(sequence) => json!({ "seq": sequence.max(1), "next_by_subj": filter }),
        ReadFrom::Time(time) => {
            let time = representable(time).to_rfc3339_opts(SecondsFormat::Nanos, true);
            json!({ "start_time": time, "next_by_subj": filter })
        }
    }
}

/// Returns the policy of a consumer that starts with the first message that was stored at this time or later.
///
/// A consumer of the server with several filter subjects and a start time skips messages: it starts at the first message of a subject
/// that has none before the time, although other subjects have earlier ones (nats-server 2.15.1, `selectStartingSeqNo`).
///
/// # Errors
/// As of [`first_message`].
pub(crate) async fn policy_since(
    context: &Context,
    stream: &str,
    time: DateTime<Utc>,
) -> Result<DeliverPolicy, async_nats::Error> {
    // Read first: a message that is stored between both requests is not skipped.
    let end = next_sequence(context, stream).await?;
    let first = message(context, stream, &next(ReadFrom::Time(time), ">")).await?;
    let start_sequence = first.map_or(end, |first| first.sequence);
    Ok(DeliverPolicy::ByStartSequence { start_sequence })
}

/// Returns the sequence number of the next message of a stream.
///
/// # Errors
/// As of [`first_message`].
pub(crate) async fn next_sequence(context: &Context, stream: &str) -> Result<u64, async_nats::Error> {
    Ok(context.get_stream(stream).await?.cached_info().state.last_sequence + 1)
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
        let Some(message) = message(context, stream, &next(from, filter)).await? else { return Ok(None) };
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

/// Sends a request to the API of `JetStream`. `subject` has no prefix. Returns `None` if the broker rejects it with the code `absent`.
///
/// # Errors
/// The broker did not answer, or rejected the request for another reason.
pub(crate) async fn request_optional<T: DeserializeOwned>(
    context: &Context,
    subject: String,
    body: &Value,
    absent: ErrorCode,
) -> Result<Option<T>, async_nats::Error> {
    match context.request(subject, body).await? {
        Response::Ok(response) => Ok(Some(response)),
        Response::Err { error } if error.error_code() == absent => Ok(None),
        Response::Err { error } => Err(error.into()),
    }
}

/// Returns the message of a request in the form of NATS (ADR-31).
async fn message(
    context: &Context,
    stream: &str,
    request: &Value,
) -> Result<Option<RawMessage>, async_nats::Error> {
    let subject = format!("STREAM.MSG.GET.{stream}");
    let found = request_optional(context, subject, request, ErrorCode::NO_MESSAGE_FOUND).await?;
    Ok(found.map(|Found { message }| message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_the_server_does_not_represent_becomes_the_nearest_one() {
        for (time, nanos) in [
            ("1600-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999999Z", 0),
            ("1970-01-01T00:00:00.000000001Z", 1),
            ("2026-01-31T12:00:00.5Z", 1_769_860_800_500_000_000),
            ("2262-04-11T23:47:16.854775807Z", i64::MAX),
            ("2262-04-11T23:47:16.854775808Z", i64::MAX),
            ("2263-01-01T00:00:00Z", i64::MAX),
        ] {
            let parsed: DateTime<Utc> = time.parse().unwrap();
            assert_eq!(nats_time(parsed).unix_timestamp_nanos(), i128::from(nanos), "{time}");
        }
        assert_eq!(nats_time(DateTime::<Utc>::MIN_UTC), nats_time(DateTime::UNIX_EPOCH));
        assert_eq!(nats_time(DateTime::<Utc>::MAX_UTC), nats_time(DateTime::from_timestamp_nanos(i64::MAX)));
    }
}
