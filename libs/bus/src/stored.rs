//! Single messages of a stream. A request for one needs no consumer, so its permission names only the stream.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Context, ErrorCode};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Deserialize;
use serde_json::json;

/// Where to look for the next message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// At this number.
    Sequence(u64),
    /// At the first message that was stored at this time or later.
    Time(DateTime<Utc>),
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
        let response = context.request(format!("STREAM.MSG.GET.{stream}"), &next).await?;
        let message = match response {
            Response::Ok(Found { message }) => message,
            Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => return Ok(None),
            Response::Err { error } => return Err(error.into()),
        };
        // Skips a message that no library can read.
        from = ReadFrom::Sequence(message.sequence + 1);
        if let Ok(message) = StreamMessage::try_from(message) {
            return Ok(Some(message));
        }
    }
}
