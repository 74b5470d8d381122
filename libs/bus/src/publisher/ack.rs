//! Replies of a stream to a published message.

use std::sync::Arc;

use serde::Deserialize;

use super::{Ack, PublishError};
use crate::wire::Reply;

// Error codes of JetStream.
const CLUSTER_NOT_AVAILABLE: u64 = 10_008;
const STORAGE_EXCEEDED: u64 = 10_047;
const ACCOUNT_EXCEEDED: u64 = 10_002;
const INSUFFICIENT_RESOURCES: u64 = 10_023;
const STORE_FAILED: u64 = 10_077;
/// A message with the same id is proposed but not stored, so the stream cannot confirm a duplicate yet.
const DUPLICATE_IN_PROCESS: u64 = 10_158;
const TOO_MANY_REQUESTS: u64 = 10_167;

/// Meaning of a reply.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// The outcome of the message.
    Outcome(Result<Ack, PublishError>),
    /// The message must be sent again after a short delay.
    Resend,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    stream: Option<&'a str>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Parses a reply to a message for `stream`. The acknowledgement of another stream is an error: its settings are not verified.
pub(super) fn parse(reply: Reply<'_>, stream: &Arc<str>) -> Meaning {
    let Reply::Payload(payload) = reply else {
        return Meaning::Outcome(Err(PublishError::Unavailable));
    };
    match serde_json::from_slice(payload) {
        Ok(Payload { error: Some(error), .. }) => error_reply(error),
        Ok(Payload { stream: Some(name), seq: Some(sequence), duplicate, .. }) => {
            Meaning::Outcome(if name == &**stream {
                Ok(Ack { stream: Arc::clone(stream), sequence, duplicate })
            } else {
                let description = format!("the stream {name} stored a message for {stream}");
                Err(PublishError::Misconfigured { code: 0, description })
            })
        }
        // The reply is not from a stream: another client subscribes to these subjects.
        Ok(_) | Err(_) => Meaning::Outcome(Err(PublishError::Misconfigured {
            code: 0,
            description: "the reply is not an acknowledgement".to_owned(),
        })),
    }
}

fn error_reply(error: ApiError) -> Meaning {
    let ApiError { code, err_code, description } = error;
    Meaning::Outcome(Err(match err_code {
        DUPLICATE_IN_PROCESS => return Meaning::Resend,
        STORAGE_EXCEEDED | ACCOUNT_EXCEEDED | INSUFFICIENT_RESOURCES => PublishError::StreamFull,
        STORE_FAILED if description.starts_with("maximum ") => PublishError::StreamFull,
        TOO_MANY_REQUESTS => PublishError::Overloaded,
        STORE_FAILED | CLUSTER_NOT_AVAILABLE => PublishError::Unavailable,
        // A RAFT leader that stepped down replies 503 without an error code.
        _ if code == 503 => PublishError::Unavailable,
        _ => PublishError::Misconfigured { code: err_code, description },
    }))
}

/// The outcome of a message for `stream` with this reply; `None` if it is sent again.
#[cfg(fuzzing)]
pub fn fuzzed(stream: &str, payload: &[u8]) -> Option<Result<Ack, PublishError>> {
    match parse(Reply::Payload(payload), &stream.into()) {
        Meaning::Outcome(outcome) => Some(outcome),
        Meaning::Resend => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(payload: &str) -> Meaning {
        parse(Reply::Payload(payload.as_bytes()), &"UDM".into())
    }

    fn error(code: u16, err_code: u64, description: &str) -> Meaning {
        reply(&format!(
            r#"{{"type":"x","error":{{"code":{code},"err_code":{err_code},"description":"{description}"}},"stream":"UDM","seq":0}}"#
        ))
    }

    #[test]
    fn acknowledgement_has_stream_sequence_and_duplicate() {
        let ack =
            |sequence, duplicate| Meaning::Outcome(Ok(Ack { stream: "UDM".into(), sequence, duplicate }));
        assert_eq!(reply(r#"{"stream":"UDM","seq":7}"#), ack(7, false));
        assert_eq!(reply(r#"{"stream":"UDM","domain":"d","seq":7,"duplicate":true}"#), ack(7, true));
    }

    #[test]
    fn error_codes_map_to_publish_errors() {
        use PublishError::{Misconfigured, Overloaded, StreamFull, Unavailable};
        let failed = |error| Meaning::Outcome(Err(error));
        assert_eq!(parse(Reply::NoResponders, &"UDM".into()), failed(Unavailable));
        assert_eq!(error(503, 10_077, "maximum bytes exceeded"), failed(StreamFull));
        assert_eq!(error(503, 10_077, "store closed"), failed(Unavailable));
        assert_eq!(error(500, 10_047, "insufficient storage resources available"), failed(StreamFull));
        assert_eq!(error(400, 10_002, "resource limits exceeded for account"), failed(StreamFull));
        assert_eq!(error(503, 10_008, "temporarily unavailable"), failed(Unavailable));
        assert_eq!(error(503, 0, "raft: not leader"), failed(Unavailable));
        assert_eq!(error(429, 10_167, "too many requests"), failed(Overloaded));
        assert_eq!(error(409, 10_158, "duplicate message id is in process"), Meaning::Resend);
        let description = "message size exceeds maximum allowed".to_owned();
        assert_eq!(error(400, 10_054, &description), failed(Misconfigured { code: 10_054, description }));
        let description = "the stream OTHER stored a message for UDM".to_owned();
        assert_eq!(reply(r#"{"stream":"OTHER","seq":7}"#), failed(Misconfigured { code: 0, description }));
    }

    #[test]
    fn other_replies_are_not_taken_for_acknowledgements() {
        for payload in ["", "{}", "+ACK", r#"{"stream":"UDM"}"#, r#"{"seq":1}"#, "null"] {
            let Meaning::Outcome(Err(PublishError::Misconfigured { code: 0, .. })) = reply(payload) else {
                panic!("{payload}");
            };
        }
    }
}
