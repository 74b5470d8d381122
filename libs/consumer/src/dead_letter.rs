//! Dead letters: the event or its place, its headers, and why the consumer gave up.

use std::error::Error;
use std::iter::successors;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::Context;
use bytes::Bytes;

use crate::BoxError;
use crate::lanes::Delivery;

/// Longest reason, in characters.
const MAX_REASON: usize = 500;
/// Longest payload of an event that a dead letter contains. For a larger one, ingest reads the event from its stream: the account of a
/// consumer permits messages of 8 KiB.
const MAX_COPY: usize = 4096;

/// Why an event became a dead letter.
#[derive(Debug)]
pub(crate) struct Cause {
    pub(crate) attempts: u32,
    pub(crate) reason: String,
}

/// Returns an error with its sources, in one line. Some errors contain the text of their source.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> String {
    let errors = successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let line = errors.fold(String::new(), |line, error| match error.to_string() {
        text if line.is_empty() => text,
        text if line.ends_with(&text) => line,
        text => format!("{line}: {text}"),
    });
    let line = line.replace(char::is_control, " ");
    line.chars().take(MAX_REASON).collect()
}

/// Stores a message as a dead letter. Storing it again within two minutes has no effect.
pub(crate) async fn store(
    context: &Context,
    consumer: &str,
    delivery: &Delivery,
    cause: &Cause,
) -> Result<(), BoxError> {
    let message = &delivery.message;
    let info = message.info()?;
    let tenant = message.subject.split('.').nth(3).ok_or("the message is not an event")?;
    let mut headers = HeaderMap::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        // Headers of NATS are instructions for the stream.
        if !name.to_string().starts_with("Nats-") {
            for value in values {
                headers.append(name.clone(), value.clone());
            }
        }
    }
    headers.insert(NATS_MESSAGE_ID, format!("{consumer}-{}-{}", info.stream, info.stream_sequence));
    headers.insert("Udm-Dlq-Reason", cause.reason.as_str());
    headers.insert("Udm-Dlq-Attempts", cause.attempts.to_string());
    headers.insert("Udm-Dlq-Stream", info.stream);
    headers.insert("Udm-Dlq-Sequence", info.stream_sequence.to_string());
    let is_copied = message.payload.len() <= MAX_COPY;
    let payload = if is_copied { message.payload.clone() } else { Bytes::new() };
    #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
    let stored = context.publish_with_headers(format!("udm.dlq.v1.{tenant}.{consumer}"), headers, payload);
    stored.await?.await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    #[test]
    fn a_reason_has_the_text_of_each_source_once() {
        let layer = |text, source| Layer { text, source: Some(Box::new(source)) };
        let refused = || Layer { text: "connection\nrefused", source: None };
        assert_eq!(reason(&layer("no database", refused())), "no database: connection refused");
        let repeated = layer("no database: connection\nrefused", refused());
        assert_eq!(reason(&repeated), "no database: connection refused");
    }
}
