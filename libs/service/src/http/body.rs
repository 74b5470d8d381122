//! JSON bodies with limits. Malformed JSON is 400, JSON of the wrong shape is 422. A body that is too large or too slow is
//! rejected early.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use contract::{FieldError, Object, ProblemKind};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::connections::Connection;
use super::pace::{BodyPace, Deadline};
use super::problem::Problem;
use super::shape::{field_error, unknown_field};

/// Number of bytes of a body that are received in one poll. Then other tasks of the thread run.
const BYTES_PER_POLL: usize = 64 * 1024;

/// Largest number of unknown fields in a problem.
const MAX_UNKNOWN_FIELDS: usize = 10;

/// A JSON body of at most `MAX` bytes. The default of 8 KiB suffices for all routes except events. An unknown field is an error: a
/// misspelled one would be taken as absent.
pub struct JsonBody<T, const MAX: usize = 8192>(pub T);

/// A JSON body from another part of the system, which can be of a newer release: unknown fields are ignored.
pub struct InternalJson<T, const MAX: usize = 8192>(pub T);

impl<T: DeserializeOwned, S: Sync, const MAX: usize> FromRequest<S> for JsonBody<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_json(request, MAX, parse_known).await.map(Self)
    }
}

impl<T: DeserializeOwned, S: Sync, const MAX: usize> FromRequest<S> for InternalJson<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_json(request, MAX, parse).await.map(Self)
    }
}

/// An absent body is an object without fields.
async fn read_json<T>(
    request: Request,
    max: usize,
    parse: fn(&[u8]) -> Result<T, Problem>,
) -> Result<T, Problem> {
    if is_json(request.headers()) {
        return parse(&read(request, max).await?);
    }
    let is_absent = !request.headers().contains_key(CONTENT_TYPE) && request.body().is_end_stream();
    let empty = is_absent.then(|| parse(b"{}").ok()).flatten();
    empty.ok_or_else(|| Problem::new(ProblemKind::MediaType).detail("Send Content-Type: application/json."))
}

/// Returns whether `Content-Type` is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

/// Returns `Content-Type` without its parameters, or `None` if the header is missing or repeated.
pub fn media_type(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let text = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

/// Reads a complete body without compression, within a size and a time limit.
///
/// # Errors
/// 413 `body_too_large`, 415 `content_encoding`, 408 `body_timeout`, or 400 if the connection failed.
pub async fn read(request: Request, max: usize) -> Result<Bytes, Problem> {
    let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
    if !encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let detail = "This route accepts no compression. Send the body without Content-Encoding.";
        return Err(Problem::new(ProblemKind::ContentEncoding).detail(detail));
    }
    read_into(request, max, |_, _| Ok(())).await
}

/// Reads a body like [`read`], and calls `reserve` before each chunk is stored: with the new total size, and with whether the body takes
/// longer than the grace time.
///
/// # Errors
/// Those of [`read`], and the error of `reserve`.
pub async fn read_into(
    request: Request,
    max: usize,
    reserve: impl FnMut(usize, bool) -> Result<(), Problem>,
) -> Result<Bytes, Problem> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let body = request.into_body();
    // The declared length. The client gets no `100 Continue`, because the body is not read.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    if let Some(connection) = &connection {
        connection.body_started();
    }
    let mut deadline =
        Deadline::new(connection.as_ref().map_or(BodyPace::DEFAULT, |connection| connection.pace()));
    let read = receive(body, max, &mut deadline, connection.as_deref(), reserve).await;
    if let Some(connection) = connection {
        connection.body_ended(deadline.started.elapsed());
    }
    read
}

async fn receive(
    mut body: Body,
    max: usize,
    deadline: &mut Deadline,
    connection: Option<&Connection>,
    mut reserve: impl FnMut(usize, bool) -> Result<(), Problem>,
) -> Result<Bytes, Problem> {
    let declared = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let mut received = Received::new(declared, max);
    let mut yield_at = BYTES_PER_POLL;
    let mut timer = pin!(sleep_until(deadline.at));
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = &mut timer => {
                if deadline.at <= timer.deadline() {
                    return Err(deadline.problem());
                }
                timer.as_mut().reset(deadline.at);
                continue;
            }
        };
        let Some(frame) = frame else { return Ok(received.bytes().await) };
        if let Ok(data) = frame.map_err(|_| incomplete())?.into_data() {
            let total = received.total + data.len();
            if total > max {
                return Err(too_large(max));
            }
            if deadline.record(total)
                && let Some(connection) = connection
            {
                connection.body_progressed();
            }
            reserve(total, deadline.is_slow())?;
            received.push(data);
            if total >= yield_at {
                yield_now().await;
                yield_at = total + BYTES_PER_POLL;
            }
        }
    }
}

fn too_large(max: usize) -> Problem {
    Problem::new(ProblemKind::BodyTooLarge).detail(format!("Send at most {max} bytes."))
}

fn incomplete() -> Problem {
    Problem::new(ProblemKind::MalformedJson).detail("The body was not received completely.")
}

/// Capacity of a block. The first block has the declared length instead.
const BLOCK: usize = 64 * 1024;
/// Maximum capacity of the first block. A client that declares a length and does not send the body can take this memory.
const MAX_FIRST_BLOCK: usize = 256 * 1024;

/// Received data. Chunks are joined to blocks at once, because a client can send chunks of one byte. One growing buffer would take
/// twice the memory of a large body whenever it grows.
struct Received {
    /// Capacity of the first block.
    first_block: usize,
    total: usize,
    /// The first chunk, if it is the only one. Most bodies are one chunk, which is not copied.
    only: Option<Bytes>,
    blocks: Vec<BytesMut>,
}

impl Received {
    /// `declared` is the length of the body, if the client has declared it.
    fn new(declared: Option<usize>, max: usize) -> Self {
        let first_block = declared.map_or(BLOCK.min(max), |length| length.min(MAX_FIRST_BLOCK));
        Self { first_block, total: 0, only: None, blocks: Vec::new() }
    }

    fn push(&mut self, data: Bytes) {
        let first = self.total == 0;
        self.total += data.len();
        if first {
            self.only = Some(data);
        } else {
            let only = self.only.take();
            for chunk in only.into_iter().chain([data]) {
                self.append(&chunk);
            }
        }
    }

    fn append(&mut self, mut chunk: &[u8]) {
        if let Some(block) = self.blocks.last_mut() {
            let room = block.capacity() - block.len();
            let (fits, rest) = chunk.split_at(room.min(chunk.len()));
            block.extend_from_slice(fits);
            chunk = rest;
        }
        if !chunk.is_empty() {
            let capacity = if self.blocks.is_empty() { self.first_block } else { BLOCK };
            let mut block = BytesMut::with_capacity(capacity.max(chunk.len()));
            block.extend_from_slice(chunk);
            self.blocks.push(block);
        }
    }

    async fn bytes(mut self) -> Bytes {
        if let Some(only) = self.only {
            return only;
        }
        if self.blocks.len() == 1 {
            return self.blocks.pop().unwrap_or_default().freeze();
        }
        let mut joined = BytesMut::with_capacity(self.total);
        for block in self.blocks {
            joined.extend_from_slice(&block);
            yield_now().await;
        }
        joined.freeze()
    }
}

/// Returns a JSON text without the byte order mark, which a parser may ignore (RFC 8259, section 8.1).
pub fn without_byte_order_mark(json: &[u8]) -> &[u8] {
    json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json)
}

/// Parses a JSON object. The error names the field with the wrong type.
///
/// # Errors
/// 400 `malformed_json` or 422 `validation_failed`.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parse_with(body, |_| ())
}

/// Like [`parse`], but an unknown field is an error too.
fn parse_known<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut unknown = Vec::new();
    let value = parse_with(body, |field| {
        if !is_open(&field.pointer) && unknown.len() < MAX_UNKNOWN_FIELDS {
            unknown.push(field);
        }
    })?;
    if unknown.is_empty() {
        Ok(value)
    } else {
        Err(Problem::new(ProblemKind::ValidationFailed).fields(unknown))
    }
}

/// Browsers fill these objects, and newer ones with more members (WebAuthn Level 3, section 5.1).
fn is_open(pointer: &str) -> bool {
    pointer.starts_with("/assertion/") || pointer.starts_with("/credential/")
}

fn parse_with<T: DeserializeOwned>(body: &[u8], mut ignored: impl FnMut(FieldError)) -> Result<T, Problem> {
    let body = without_byte_order_mark(body);
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut ignored = |path: serde_ignored::Path<'_>| ignored(unknown_field(&path));
    let known = serde_ignored::Deserializer::new(&mut json, &mut ignored);
    let Object(value) = serde_path_to_error::deserialize(known).map_err(|error| {
        // The deserializer reports some values of the wrong type as errors of syntax, such as `null` for an enumeration.
        if error.inner().is_data() || is_json_text(body) {
            let field = field_error(error.path(), &error.inner().to_string());
            return Problem::new(ProblemKind::ValidationFailed).fields([field]);
        }
        malformed(error.inner())
    })?;
    json.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

/// Returns whether the bytes match the grammar of JSON.
fn is_json_text(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(ProblemKind::MalformedJson).detail(format!("The body is not JSON in UTF-8: {error}."))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::body::Body;
    use futures::stream;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Color {
        Red,
        Green,
    }

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only the types matter")]
    struct Shape {
        name: Vec<u32>,
        color: Option<Color>,
        tenant: Option<tenancy::TenantId>,
        flag: Option<bool>,
        text: Option<String>,
    }

    async fn extract(content_type: &str, body: Body) -> Problem {
        let request = Request::builder().header(CONTENT_TYPE, content_type).body(body).unwrap();
        let result = JsonBody::<Shape, 64>::from_request(request, &()).await;
        result.map(|_| ()).unwrap_err()
    }

    #[tokio::test]
    async fn each_error_of_a_body_has_its_own_code() {
        let json = "application/json; charset=utf-8";
        let big = format!("{{\"name\":[{}1]}}", "1,".repeat(40));
        for (content_type, body, code) in [
            ("text/plain", "{\"name\":[1]}", "media_type"),
            (json, "{", "malformed_json"),
            (json, "", "malformed_json"),
            (json, "{\"name\":[1]} x", "malformed_json"),
            (json, "[]", "validation_failed"),
            (json, "{}", "validation_failed"),
            (json, &big, "body_too_large"),
        ] {
            assert_eq!(extract(content_type, body.to_owned().into()).await.kind().code(), code, "{body}");
        }
    }

    #[test]
    fn a_repeated_content_type_is_no_json() {
        let json = (CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        assert!(is_json(&HeaderMap::from_iter([json.clone()])));
        let mut repeated = HeaderMap::from_iter([json.clone()]);
        repeated.append(json.0, json.1);
        assert!(!is_json(&repeated));
    }

    #[test]
    fn errors_of_fields_have_a_pointer_a_code_and_a_text_of_the_api() {
        let tenant =
            "a tenant id has 1 to 63 characters of a-z, 0-9 and '-', without a leading or trailing hyphen";
        for (body, pointer, code, message) in [
            ("[]", "", "invalid_type", "must be an object"),
            ("{}", "/name", "required", "is required"),
            (r#"{"name":[],"name":[]}"#, "/name", "duplicate_field", "must occur only once"),
            (r#"{"name":null}"#, "/name", "invalid_type", "must be a list"),
            (r#"{"name":[1,"x"]}"#, "/name/1", "invalid_type", "must be a non-negative integer"),
            (r#"{"name":[-1]}"#, "/name/0", "invalid_value", "must be a non-negative integer"),
            (r#"{"name":[1e999]}"#, "/name/0", "invalid_value", "exceeds the range of a 64-bit float"),
            (r#"{"color":"blue, expected `x`"}"#, "/color", "invalid_value", "must be one of: red, green"),
            (r#"{"color":5}"#, "/color", "invalid_type", "has the wrong type"),
            (r#"{"tenant":"-"}"#, "/tenant", "invalid_value", tenant),
            (r#"{"flag":"yes"}"#, "/flag", "invalid_type", "must be true or false"),
            (r#"{"text":{}}"#, "/text", "invalid_type", "must be a string"),
            (
                r#"{"text":"\ud800"}"#,
                "/text",
                "invalid_value",
                "contains an escape sequence of an unpaired surrogate",
            ),
        ] {
            let problem = parse::<Shape>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.kind(), ProblemKind::ValidationFailed, "{body}");
            let error = &problem.errors[0];
            assert_eq!((&*error.pointer, &*error.code, &*error.message), (pointer, code, message), "{body}");
        }
    }

    #[test]
    fn an_unknown_field_of_a_client_is_an_error_and_one_of_another_part_of_the_system_is_not() {
        let body = br#"{"name":[1],"color":null,"colour":{"a":1},"assertion":{"x":1}}"#;
        assert!(parse::<Shape>(body).is_ok());
        let errors = parse_known::<Shape>(body).unwrap_err().errors;
        let pointers: Vec<_> = errors.iter().map(|error| (&*error.pointer, &*error.code)).collect();
        assert_eq!(pointers, [("/colour", "unknown_field"), ("/assertion", "unknown_field")]);
        let many = format!(
            "{{\"name\":[1],{}}}",
            (0..100).map(|n| format!("\"a/{n}\":1")).collect::<Vec<_>>().join(",")
        );
        let errors = parse_known::<Shape>(many.as_bytes()).unwrap_err().errors;
        assert_eq!((errors.len(), &*errors[0].pointer), (MAX_UNKNOWN_FIELDS, "/a~10"));
    }

    #[test]
    fn a_byte_order_mark_is_ignored() {
        assert!(parse::<Shape>(b"\xef\xbb\xbf{\"name\":[1]}").is_ok());
    }

    #[tokio::test]
    async fn an_absent_body_is_accepted_if_no_field_is_required() {
        #[derive(serde::Deserialize)]
        struct Optional {
            name: Option<String>,
        }
        let JsonBody(body): JsonBody<Optional> =
            JsonBody::from_request(Request::new(Body::empty()), &()).await.unwrap();
        assert_eq!(body.name, None);
        let required = JsonBody::<Shape>::from_request(Request::new(Body::empty()), &()).await;
        assert_eq!(required.map(drop).unwrap_err().kind(), ProblemKind::MediaType);
        let untyped = JsonBody::<Optional>::from_request(Request::new("{}".into()), &()).await;
        assert_eq!(untyped.map(drop).unwrap_err().kind(), ProblemKind::MediaType);
    }

    #[tokio::test]
    async fn a_compressed_body_is_rejected() {
        for (encoding, expected) in [
            ("gzip", Some(ProblemKind::ContentEncoding)),
            ("Identity", None),
            ("", Some(ProblemKind::ContentEncoding)),
        ] {
            let request = Request::builder().header(CONTENT_ENCODING, encoding).body("{}".into()).unwrap();
            assert_eq!(read(request, 64).await.err().map(|problem| problem.kind()), expected, "{encoding}");
        }
    }

    #[tokio::test]
    async fn joins_chunks_up_to_the_limit() {
        let pieces = |text: &'static str, count: usize| {
            let chunks =
                (0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from_static(text.as_bytes())));
            Request::new(Body::from_stream(stream::iter(chunks)))
        };
        assert_eq!(read(pieces("ab", 3), 6).await.unwrap(), "ababab");
        assert_eq!(read(pieces("", 2), 6).await.unwrap(), "");
        assert_eq!(read(pieces("ab", 4), 6).await.unwrap_err().kind(), ProblemKind::BodyTooLarge);
        let numbers: Vec<_> = (0..u8::MAX).map(|number| Bytes::from(vec![number; BLOCK / 3])).collect();
        let chunks = numbers.clone().into_iter().map(Ok::<_, std::io::Error>);
        let body = Request::new(Body::from_stream(stream::iter(chunks)));
        assert_eq!(read(body, numbers.len() * BLOCK).await.unwrap(), numbers.concat());
    }

    #[tokio::test]
    async fn other_tasks_run_while_a_large_body_is_received() {
        let chunks = (0..16).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; BYTES_PER_POLL / 4])));
        let body = Request::new(Body::from_stream(stream::iter(chunks)));
        let mut reading = pin!(read(body, 16 * BYTES_PER_POLL));
        let mut yields = 0;
        while futures::poll!(&mut reading).is_pending() {
            yields += 1;
        }
        // After each part, and after each block that is joined.
        assert_eq!(yields, 4 + 4);
    }

    #[tokio::test]
    async fn received_chunks_are_joined_for_each_declared_length() {
        let chunks: Vec<_> = (1..9_u8).map(|n| vec![n; usize::from(n) * BLOCK / 16]).collect();
        let total = chunks.concat().len();
        for declared in [None, Some(1), Some(total), Some(MAX_FIRST_BLOCK + 1)] {
            let mut received = Received::new(declared, usize::MAX);
            for chunk in &chunks {
                received.push(chunk.clone().into());
            }
            assert_eq!(received.blocks.len() == 1, declared >= Some(total), "{declared:?}");
            assert_eq!(received.bytes().await, chunks.concat(), "{declared:?}");
        }
    }

    #[tokio::test]
    async fn a_declared_length_above_the_limit_is_rejected_before_the_body_is_read() {
        let never = |_, _| -> Result<(), Problem> { panic!("the body is read") };
        let error = read_into(Request::new("abcdefg".into()), 6, never).await.unwrap_err();
        assert_eq!(error.kind(), ProblemKind::BodyTooLarge);
    }

    #[tokio::test]
    async fn reserves_memory_for_each_chunk_up_to_the_limit() {
        let pieces = |count| {
            let chunks = (0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"ab")));
            Request::new(Body::from_stream(stream::iter(chunks)))
        };
        let mut reserved = Vec::new();
        let read = async |count, reserved: &mut Vec<usize>, limit| {
            let reserve = |total, _| {
                reserved.push(total);
                if total <= limit { Ok(()) } else { Err(ProblemKind::Overloaded.into()) }
            };
            read_into(pieces(count), 6, reserve).await.map_err(|problem| problem.kind())
        };
        assert_eq!(read(3, &mut reserved, 6).await.unwrap(), "ababab");
        assert_eq!(read(9, &mut reserved, 6).await, Err(ProblemKind::BodyTooLarge));
        assert_eq!(read(3, &mut reserved, 3).await, Err(ProblemKind::Overloaded));
        assert_eq!(reserved, [2, 4, 6, 2, 4, 6, 2, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_times_out() {
        let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(extract("application/json", endless).await.kind(), ProblemKind::BodyTimeout);
    }
}
