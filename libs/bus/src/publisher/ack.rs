//! Reads what the stream answers.

use std::sync::Arc;

use async_nats::{Message, StatusCode};
use serde::Deserialize;

use super::{Ack, PublishError};

/// `JetStream` is there but not ready to answer for the stream.
const CLUSTER_NOT_AVAILABLE: u64 = 10_008;
const STORAGE_EXCEEDED: u64 = 10_047;
const ACCOUNT_EXCEEDED: u64 = 10_002;
const INSUFFICIENT_RESOURCES: u64 = 10_023;
const STORE_FAILED: u64 = 10_077;
/// A message of the same id was proposed and is not yet stored, so the stream cannot say "duplicate" yet.
const DUPLICATE_IN_PROCESS: u64 = 10_158;
const TOO_MANY_REQUESTS: u64 = 10_167;

/// What an answer means for the request.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is settled.
    Settled(Result<Ack, PublishError>),
    /// The same message must be sent again in a moment.
    Again,
}

#[derive(Deserialize)]
struct Reply<'a> {
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

/// Reads the answer of the stream that is expected.
pub(super) fn read(answer: &Message, stream: &Arc<str>) -> Verdict {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Verdict::Settled(Err(PublishError::Unavailable));
    }
    match serde_json::from_slice(&answer.payload) {
        Ok(Reply { error: Some(error), .. }) => refused(error),
        Ok(Reply { stream: Some(name), seq: Some(sequence), duplicate, .. }) => {
            let stream = if name == &**stream { Arc::clone(stream) } else { name.into() };
            Verdict::Settled(Ok(Ack { stream, sequence, duplicate }))
        }
        // Whoever answered is no stream; somebody else listens on our subjects.
        Ok(_) | Err(_) => Verdict::Settled(Err(PublishError::Misconfigured {
            code: 0,
            description: "the answer is no acknowledgement".to_owned(),
        })),
    }
}

fn refused(error: ApiError) -> Verdict {
    let ApiError { code, err_code, description } = error;
    Verdict::Settled(Err(match err_code {
        DUPLICATE_IN_PROCESS => return Verdict::Again,
        STORAGE_EXCEEDED | ACCOUNT_EXCEEDED | INSUFFICIENT_RESOURCES => PublishError::StreamFull,
        STORE_FAILED if description.starts_with("maximum ") => PublishError::StreamFull,
        TOO_MANY_REQUESTS => PublishError::Overloaded,
        STORE_FAILED | CLUSTER_NOT_AVAILABLE => PublishError::Unavailable,
        // A leader that has just lost its office says so with this status and no code of its own.
        _ if code == 503 => PublishError::Unavailable,
        _ => PublishError::Misconfigured { code: err_code, description },
    }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn verdict(status: Option<StatusCode>, payload: &str) -> Verdict {
        let answer = Message {
            subject: "inbox.1".into(),
            reply: None,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            headers: None,
            status,
            description: None,
            length: payload.len(),
        };
        read(&answer, &"UDM".into())
    }

    fn error(code: u16, err_code: u64, description: &str) -> Verdict {
        verdict(
            None,
            &format!(
                r#"{{"type":"x","error":{{"code":{code},"err_code":{err_code},"description":"{description}"}},"stream":"UDM","seq":0}}"#
            ),
        )
    }

    #[test]
    fn an_acknowledgement_tells_stream_number_and_duplicate() {
        let ack =
            |sequence, duplicate| Verdict::Settled(Ok(Ack { stream: "UDM".into(), sequence, duplicate }));
        assert_eq!(verdict(None, r#"{"stream":"UDM","seq":7}"#), ack(7, false));
        assert_eq!(verdict(None, r#"{"stream":"UDM","domain":"d","seq":7,"duplicate":true}"#), ack(7, true));
    }

    #[test]
    fn each_refusal_means_what_the_caller_can_do() {
        use PublishError::{Misconfigured, Overloaded, StreamFull, Unavailable};
        let settled = |error| Verdict::Settled(Err(error));
        assert_eq!(verdict(Some(StatusCode::NO_RESPONDERS), ""), settled(Unavailable));
        assert_eq!(error(503, 10_077, "maximum bytes exceeded"), settled(StreamFull));
        assert_eq!(error(503, 10_077, "store closed"), settled(Unavailable));
        assert_eq!(error(500, 10_047, "insufficient storage resources available"), settled(StreamFull));
        assert_eq!(error(400, 10_002, "resource limits exceeded for account"), settled(StreamFull));
        assert_eq!(error(503, 10_008, "temporarily unavailable"), settled(Unavailable));
        assert_eq!(error(503, 0, "raft: not leader"), settled(Unavailable));
        assert_eq!(error(429, 10_167, "too many requests"), settled(Overloaded));
        assert_eq!(error(409, 10_158, "duplicate message id is in process"), Verdict::Again);
        let description = "expected stream does not match".to_owned();
        assert_eq!(error(400, 10_060, &description), settled(Misconfigured { code: 10_060, description }));
    }

    #[test]
    fn what_is_no_answer_of_a_stream_is_not_taken_for_one() {
        for payload in ["", "{}", "+ACK", r#"{"stream":"UDM"}"#, r#"{"seq":1}"#, "null"] {
            let Verdict::Settled(Err(PublishError::Misconfigured { code: 0, .. })) = verdict(None, payload)
            else {
                panic!("{payload}");
            };
        }
    }
}
