//! Replies of a stream to a published message.

use std::sync::Arc;

use async_nats::{Message, StatusCode};
use serde::Deserialize;

use super::{Ack, PublishError};

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
pub(super) enum Reply {
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
pub(super) fn parse(reply: &Message, stream: &Arc<str>) -> Reply {
    if reply.status == Some(StatusCode::NO_RESPONDERS) {
        return Reply::Outcome(Err(PublishError::Unavailable));
    }
    match serde_json::from_slice(&reply.payload) {
        Ok(Payload { error: Some(error), .. }) => error_reply(error),
        Ok(Payload { stream: Some(name), seq: Some(sequence), duplicate, .. }) => {
            Reply::Outcome(if name == &**stream {
                Ok(Ack { stream: Arc::clone(stream), sequence, duplicate })
            } else {
                let description = format!("the stream {name} stored a message for {stream}");
                Err(PublishError::Misconfigured { code: 0, description })
            })
        }
        // The reply is not from a stream: another client subscribes to these subjects.
        Ok(_) | Err(_) => Reply::Outcome(Err(PublishError::Misconfigured {
            code: 0,
            description: "the reply is not an acknowledgement".to_owned(),
        })),
    }
}

fn error_reply(error: ApiError) -> Reply {
    let ApiError { code, err_code, description } = error;
    Reply::Outcome(Err(match err_code {
        DUPLICATE_IN_PROCESS => return Reply::Resend,
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
pub fn fuzzed(stream: &str, payload: Vec<u8>) -> Option<Result<Ack, PublishError>> {
    let reply = Message {
        subject: "_INBOX.1".into(),
        reply: None,
        length: payload.len(),
        payload: payload.into(),
        headers: None,
        status: None,
        description: None,
    };
    match parse(&reply, &stream.into()) {
        Reply::Outcome(outcome) => Some(outcome),
        Reply::Resend => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn reply(status: Option<StatusCode>, payload: &str) -> Reply {
        let message = Message {
            subject: "inbox.1".into(),
            reply: None,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            headers: None,
            status,
            description: None,
            length: payload.len(),
        };
        parse(&message, &"UDM".into())
    }

    fn error(code: u16, err_code: u64, description: &str) -> Reply {
        reply(
            None,
            &format!(
                r#"{{"type":"x","error":{{"code":{code},"err_code":{err_code},"description":"{description}"}},"stream":"UDM","seq":0}}"#
            ),
        )
    }

    #[test]
    fn acknowledgement_has_stream_sequence_and_duplicate() {
        let ack = |sequence, duplicate| Reply::Outcome(Ok(Ack { stream: "UDM".into(), sequence, duplicate }));
        assert_eq!(reply(None, r#"{"stream":"UDM","seq":7}"#), ack(7, false));
        assert_eq!(reply(None, r#"{"stream":"UDM","domain":"d","seq":7,"duplicate":true}"#), ack(7, true));
    }

    #[test]
    fn error_codes_map_to_publish_errors() {
        use PublishError::{Misconfigured, Overloaded, StreamFull, Unavailable};
        let failed = |error| Reply::Outcome(Err(error));
        assert_eq!(reply(Some(StatusCode::NO_RESPONDERS), ""), failed(Unavailable));
        assert_eq!(error(503, 10_077, "maximum bytes exceeded"), failed(StreamFull));
        assert_eq!(error(503, 10_077, "store closed"), failed(Unavailable));
        assert_eq!(error(500, 10_047, "insufficient storage resources available"), failed(StreamFull));
        assert_eq!(error(400, 10_002, "resource limits exceeded for account"), failed(StreamFull));
        assert_eq!(error(503, 10_008, "temporarily unavailable"), failed(Unavailable));
        assert_eq!(error(503, 0, "raft: not leader"), failed(Unavailable));
        assert_eq!(error(429, 10_167, "too many requests"), failed(Overloaded));
        assert_eq!(error(409, 10_158, "duplicate message id is in process"), Reply::Resend);
        let description = "message size exceeds maximum allowed".to_owned();
        assert_eq!(error(400, 10_054, &description), failed(Misconfigured { code: 10_054, description }));
        let description = "the stream OTHER stored a message for UDM".to_owned();
        assert_eq!(
            reply(None, r#"{"stream":"OTHER","seq":7}"#),
            failed(Misconfigured { code: 0, description })
        );
    }

    #[test]
    fn other_replies_are_not_taken_for_acknowledgements() {
        for payload in ["", "{}", "+ACK", r#"{"stream":"UDM"}"#, r#"{"seq":1}"#, "null"] {
            let Reply::Outcome(Err(PublishError::Misconfigured { code: 0, .. })) = reply(None, payload)
            else {
                panic!("{payload}");
            };
        }
    }
}
