//! The client protocol of NATS, as far as publication needs it: what the server sends, and messages with headers.
//!
//! Source: "Client Protocol" in the reference of NATS, and ADR-4 for headers.

use std::io::Write as _;

use memchr::memchr;

/// Maximum length of a line. The longest one is `INFO` with the addresses of a cluster.
const MAX_LINE: usize = 64 * 1024;
/// Maximum size of a message: the largest `max_payload` that a server accepts.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

const HEADERS: &[u8] = b"NATS/1.0\r\n";
/// The status of a message that no client receives.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503";

pub(crate) const PING: &[u8] = b"PING\r\n";
pub(crate) const PONG: &[u8] = b"PONG\r\n";

/// What a server sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerOperation<'a> {
    /// Settings of the server in JSON.
    Info(&'a [u8]),
    /// A message for the subscription of this connection.
    Message(ServerMessage<'a>),
    Ping,
    Pong,
    Ok,
    /// An error. The server closes the connection after most of them.
    Error(&'a str),
}

/// A message of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerMessage<'a> {
    pub(crate) subject: &'a str,
    /// Subject for a response.
    pub(crate) reply_to: Option<&'a str>,
    /// The encoded headers, as the client sent them; empty without headers.
    pub(crate) headers: &'a [u8],
    pub(crate) reply: Reply<'a>,
}

/// A reply to a published message or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    Payload(&'a [u8]),
    /// No client and no stream receives the message.
    NoResponders,
}

/// The bytes do not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server does not follow the protocol of NATS")]
pub(crate) struct Malformed;

/// Returns the first operation and its length; `None` if it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(ServerOperation<'_>, usize)>, Malformed> {
    let line_end = memchr(b'\r', &bytes[..bytes.len().min(MAX_LINE)]);
    let Some(line_end) = line_end else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(Malformed) };
    };
    match bytes.get(line_end + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(Malformed),
        None => return Ok(None),
    }
    let (line, length) = (&bytes[..line_end], line_end + 2);
    let (name, arguments) = line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line_end));
    let arguments = arguments.trim_ascii();
    let operation = match name {
        b"MSG" => return parse_message(arguments, bytes, length, false),
        b"HMSG" => return parse_message(arguments, bytes, length, true),
        b"PING" => ServerOperation::Ping,
        b"PONG" => ServerOperation::Pong,
        b"INFO" => ServerOperation::Info(arguments),
        b"+OK" => ServerOperation::Ok,
        b"-ERR" => {
            let text = str::from_utf8(arguments).map_err(|_| Malformed)?;
            ServerOperation::Error(text.trim_matches('\''))
        }
        _ => return Err(Malformed),
    };
    Ok(Some((operation, length)))
}

/// Parses a message. `start` is the position after its line. The arguments are subject, subscription, an optional reply
/// subject, the size of the headers if there are any, and the size of headers and payload.
fn parse_message<'a>(
    arguments: &'a [u8],
    bytes: &'a [u8],
    start: usize,
    has_headers: bool,
) -> Result<Option<(ServerOperation<'a>, usize)>, Malformed> {
    let arguments = str::from_utf8(arguments).map_err(|_| Malformed)?;
    let mut words = arguments.split_ascii_whitespace();
    let subject = words.next().ok_or(Malformed)?;
    let mut size = || words.next_back()?.parse().ok().filter(|size| *size <= MAX_MESSAGE);
    let total = size().ok_or(Malformed)?;
    let of_headers = if has_headers { size().ok_or(Malformed)? } else { 0 };
    // After the id of the subscription.
    let reply_to = words.nth(1);
    let Some(content) = bytes.get(start..start + total) else { return Ok(None) };
    let Some(end) = bytes.get(start + total..start + total + 2) else { return Ok(None) };
    let (headers, payload) = content.split_at_checked(of_headers).ok_or(Malformed)?;
    if end != b"\r\n" {
        return Err(Malformed);
    }
    let reply =
        if headers.starts_with(NO_RESPONDERS) { Reply::NoResponders } else { Reply::Payload(payload) };
    let delivery = ServerMessage { subject, reply_to, headers, reply };
    Ok(Some((ServerOperation::Message(delivery), start + total + 2)))
}

/// Appends `SUB`. A queue group can follow the subject, after a space.
pub(crate) fn write_subscription(buffer: &mut Vec<u8>, subject: &str) {
    write(buffer, format_args!("SUB {subject} 1\r\n"));
}

/// Appends `PUB`: a message without headers.
pub(crate) fn write_request(buffer: &mut Vec<u8>, subject: &str, reply: &str, payload: &[u8]) {
    write(buffer, format_args!("PUB {subject} {reply} {}\r\n", payload.len()));
    buffer.extend_from_slice(payload);
    buffer.extend_from_slice(b"\r\n");
}

/// Appends `HPUB`: a message with encoded headers. `reply` is empty or ends with a space.
pub(crate) fn write_message(
    buffer: &mut Vec<u8>,
    subject: &str,
    reply: std::fmt::Arguments<'_>,
    headers: [&[u8]; 3],
    payload: &[u8],
) {
    let of_headers = headers_size(headers);
    write(buffer, format_args!("HPUB {subject} {reply}{of_headers} {}\r\n", of_headers + payload.len()));
    buffer.extend_from_slice(HEADERS);
    for lines in headers {
        buffer.extend_from_slice(lines);
    }
    buffer.extend_from_slice(b"\r\n");
    buffer.extend_from_slice(payload);
    buffer.extend_from_slice(b"\r\n");
}

/// Size of encoded headers in a message.
pub(crate) fn headers_size(headers: [&[u8]; 3]) -> usize {
    HEADERS.len() + headers.iter().map(|lines| lines.len()).sum::<usize>() + 2
}

fn write(buffer: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = buffer.write_fmt(text);
}

/// Checks that no part of an operation is taken for a complete one. Returns the number of complete operations.
#[cfg(fuzzing)]
pub fn fuzzed(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some((_, length))) = parse(bytes) {
        assert!(length <= bytes.len());
        assert!((0..length).rev().take(64).all(|end| parse(&bytes[..end]) == Ok(None)));
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut bytes: &[u8]) -> Result<Vec<ServerOperation<'_>>, Malformed> {
        let mut operations = Vec::new();
        while let Some((operation, length)) = parse(bytes)? {
            operations.push(operation);
            bytes = &bytes[length..];
        }
        Ok(operations)
    }

    fn message<'a>(subject: &'a str, headers: &'a [u8], payload: &'a [u8]) -> ServerOperation<'a> {
        let reply = Reply::Payload(payload);
        ServerOperation::Message(ServerMessage { subject, reply_to: None, headers, reply })
    }

    #[test]
    fn operations_of_the_server_are_parsed() {
        use ServerOperation::{Error, Info, Message, Ok as Accepted, Ping, Pong};
        let no_responders = Message(ServerMessage {
            subject: "_INBOX.a.7",
            reply_to: None,
            headers: b"NATS/1.0 503\r\n\r\n",
            reply: Reply::NoResponders,
        });
        let with_reply_to = Message(ServerMessage {
            subject: "a",
            reply_to: Some("reply"),
            headers: b"",
            reply: Reply::Payload(b""),
        });
        for (bytes, expected) in [
            (&b"INFO {\"port\":1} \r\n"[..], Info(&b"{\"port\":1}"[..])),
            (b"PING\r\n", Ping),
            (b"PONG\r\n", Pong),
            (b"+OK\r\n", Accepted),
            (b"-ERR 'Stale Connection'\r\n", Error("Stale Connection")),
            (b"MSG _INBOX.a.7 1 5\r\na\r\nbc\r\n", message("_INBOX.a.7", b"", b"a\r\nbc")),
            (b"MSG a 1 reply 0\r\n\r\n", with_reply_to),
            (
                b"HMSG a 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n",
                message("a", b"NATS/1.0\r\nA: b\r\n\r\n", b"xy"),
            ),
            (b"HMSG _INBOX.a.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", no_responders),
        ] {
            assert_eq!(all(bytes), Ok(vec![expected]), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn other_bytes_are_malformed() {
        for bytes in [
            &b"HELLO\r\n"[..],
            b"\r\n",
            b"PING\rPONG\r\n",
            b"MSG\r\n",
            b"MSG a 1 -1\r\n",
            b"MSG a 1 67108865\r\n",
            b"MSG a 1 1\r\nabc",
            b"MSG \xff 1 1\r\n",
            b"HMSG a 1 3 2\r\nab\r\n",
            b"-ERR \xff\r\n",
            &vec![b'A'; MAX_LINE],
        ] {
            assert_eq!(all(bytes), Err(Malformed), "{}", bytes[..bytes.len().min(50)].escape_ascii());
        }
        assert_eq!(all(&vec![b'A'; MAX_LINE - 1]), Ok(Vec::new()));
    }

    #[test]
    fn operations_of_the_client_are_written() {
        let mut buffer = Vec::new();
        write_subscription(&mut buffer, "_INBOX.a.*");
        write_request(&mut buffer, "$JS.API.STREAM.INFO.UDM", "_INBOX.a.r1", b"{}");
        let headers: [&[u8]; 3] = [b"Nats-Msg-Id: 1\r\n", b"", b"ce-id: e\r\n"];
        write_message(&mut buffer, "udm.v1", format_args!("_INBOX.a.2 "), headers, b"12345");
        write_message(&mut buffer, "udm.v1", format_args!(""), [b""; 3], b"");
        let expected = "SUB _INBOX.a.* 1\r\nPUB $JS.API.STREAM.INFO.UDM _INBOX.a.r1 2\r\n{}\r\n\
            HPUB udm.v1 _INBOX.a.2 38 43\r\nNATS/1.0\r\nNats-Msg-Id: 1\r\nce-id: e\r\n\r\n12345\r\n\
            HPUB udm.v1 12 12\r\nNATS/1.0\r\n\r\n\r\n";
        assert_eq!(buffer.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
    }

    proptest! {
        #[test]
        fn a_part_of_an_operation_is_incomplete(payload: Vec<u8>, subject in "[a-z.]{1,20}", has_headers: bool) {
            let (name, headers) = if has_headers { ("HMSG", "NATS/1.0\r\nA: b\r\n\r\n") } else { ("MSG", "") };
            let of_headers = if has_headers { format!("{} ", headers.len()) } else { String::new() };
            let total = headers.len() + payload.len();
            let line = format!("{name} {subject} 1 {of_headers}{total}\r\n{headers}");
            let bytes = [line.as_bytes(), &payload, b"\r\n"].concat();
            for end in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..end]), Ok(None));
            }
            prop_assert_eq!(parse(&bytes), Ok(Some((message(&subject, headers.as_bytes(), &payload), bytes.len()))));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = all(&bytes);
        }
    }
}
