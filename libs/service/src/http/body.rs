//! JSON bodies with limits. Malformed JSON is 400, JSON of the wrong shape is 422. A body that is too large or too slow is
//! rejected early.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use contract::{Object, ProblemKind};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Timeout for receiving a body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A JSON body of at most `MAX` bytes. The default of 8 KiB suffices for all routes except events.
pub struct JsonBody<T, const MAX: usize = 8192>(pub T);

impl<T: DeserializeOwned, S: Sync, const MAX: usize> FromRequest<S> for JsonBody<T, MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(ProblemKind::MediaType).detail("Send Content-Type: application/json."));
        }
        parse(&read(request, MAX).await?).map(Self)
    }
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

/// Reads a complete body within a size and a time limit.
///
/// # Errors
/// 413 `body_too_large`, 408 `body_timeout`, or 400 if the connection failed.
pub async fn read(request: Request, max: usize) -> Result<Bytes, Problem> {
    read_into(request, max, |_| Ok(())).await
}

/// Reads a body like [`read`], and calls `reserve` with the new total size before each chunk is stored.
///
/// # Errors
/// Those of [`read`], and the error of `reserve`.
pub async fn read_into(
    request: Request,
    max: usize,
    mut reserve: impl FnMut(usize) -> Result<(), Problem>,
) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let too_large = || Problem::new(ProblemKind::BodyTooLarge).detail(format!("Send at most {max} bytes."));
    // The declared length. The client gets no `100 Continue`, because the body is not read.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let reading = async {
        let mut received = Received::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| incomplete())?;
            if let Ok(data) = frame.into_data() {
                let total = received.total + data.len();
                if total > max {
                    return Err(too_large());
                }
                reserve(total)?;
                received.push(data);
            }
        }
        Ok(received.bytes())
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    read.unwrap_or_else(|_| Err(Problem::new(ProblemKind::BodyTimeout)))
}

fn incomplete() -> Problem {
    Problem::new(ProblemKind::MalformedJson).detail("The body was not received completely.")
}

/// Received data. Chunks are joined at once, because a client can send chunks of
/// one byte.
#[derive(Default)]
struct Received {
    total: usize,
    /// The first chunk, if it is the only one. Most bodies are one chunk, which is not copied.
    only: Option<Bytes>,
    joined: BytesMut,
}

impl Received {
    fn push(&mut self, data: Bytes) {
        let first = self.total == 0;
        self.total += data.len();
        if first {
            self.only = Some(data);
        } else {
            self.joined.extend(self.only.take());
            self.joined.extend_from_slice(&data);
        }
    }

    fn bytes(self) -> Bytes {
        self.only.unwrap_or_else(|| self.joined.freeze())
    }
}

/// Parses a JSON object. The error names the field with the wrong type.
///
/// # Errors
/// 400 `malformed_json` or 422 `validation_failed`.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let pointer = pointer(error.path());
        shape_error(&error.into_inner(), pointer)
    })?;
    json.end().map_err(|error| shape_error(&error, String::new()))?;
    Ok(value)
}

fn shape_error(error: &serde_json::Error, pointer: String) -> Problem {
    match error.classify() {
        serde_json::error::Category::Data => Problem::new(ProblemKind::ValidationFailed).field(
            pointer,
            "invalid",
            without_position(&error.to_string()),
        ),
        _ => Problem::new(ProblemKind::MalformedJson).detail(format!("The body is not JSON: {error}.")),
    }
}

/// Removes line and column, which do not help clients that serialize with a library.
fn without_position(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}

/// A JSON Pointer (RFC 6901) to the place at fault.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        let token = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => contract::escape_pointer_token(key),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&token);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::stream;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Shape {
        #[expect(dead_code, reason = "only its type matters")]
        name: Vec<u32>,
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

    #[tokio::test]
    async fn reports_the_pointer_of_a_wrong_field() {
        let problem = extract("application/json", "{\"name\":[1,\"x\"]}".into()).await;
        assert_eq!(problem.errors[0].pointer, "/name/1");
        assert_eq!(problem.errors[0].message, "invalid type: string \"x\", expected u32");
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
    }

    #[tokio::test]
    async fn a_declared_length_above_the_limit_is_rejected_before_the_body_is_read() {
        let never = |_| -> Result<(), Problem> { panic!("the body is read") };
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
            let reserve = |total| {
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
