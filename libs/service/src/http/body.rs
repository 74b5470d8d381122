//! Bounded JSON bodies. What is not JSON is 400, JSON of the wrong shape 422; a body that is too large or too slow is
//! given up before it costs anything.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use contract::{Object, ProblemKind};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// How long a body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A JSON body of at most `MAX` bytes; 8 KiB unless told, which is plenty for anything but events.
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

/// Whether a request says that its body is JSON in UTF-8.
pub fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

/// The `Content-Type` without its parameters.
pub fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

/// How much of a body that is too large is still taken off the wire. A connection that is closed under a client which is
/// still sending loses the answer on its way; one that sends more than this is not worth waiting for.
const DRAINED: usize = 32 * 1024 * 1024;

/// Reads a body whole, within a size and a time.
///
/// # Errors
/// 413 `body_too_large`, 408 `body_timeout`, or 400 when the connection broke.
pub async fn read(request: Request, most: usize) -> Result<Bytes, Problem> {
    read_into(request, most, |_| Ok(())).await
}

/// The same into room that is made as the body arrives: `make_room` is told how much there will be, before that is kept.
///
/// # Errors
/// The same, or why there is no room.
pub async fn read_into(
    request: Request,
    most: usize,
    mut make_room: impl FnMut(usize) -> Result<(), Problem>,
) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let reading = async {
        let mut read = Taken::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| broken())?;
            if let Ok(data) = frame.into_data() {
                let arrived = read.total + data.len();
                if arrived <= most {
                    make_room(arrived)?;
                }
                read.take(data, most);
                if read.total > most + DRAINED {
                    break;
                }
            }
        }
        Ok(read)
    };
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(read)) if read.total <= most => Ok(read.bytes()),
        Ok(Ok(_)) => {
            Err(Problem::new(ProblemKind::BodyTooLarge).detail(format!("Send at most {most} bytes.")))
        }
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(Problem::new(ProblemKind::BodyTimeout)),
    }
}

fn broken() -> Problem {
    Problem::new(ProblemKind::MalformedJson).detail("The body did not arrive whole.")
}

/// What has arrived so far: kept up to the limit, counted beyond it. Chunks are joined as they come, since a client may
/// send a body in chunks of one byte.
#[derive(Default)]
struct Taken {
    total: usize,
    /// The only chunk so far, which is what most bodies are: it is not copied.
    only: Option<Bytes>,
    joined: BytesMut,
}

impl Taken {
    fn take(&mut self, data: Bytes, most: usize) {
        let first = self.total == 0;
        self.total += data.len();
        if self.total > most {
            (self.only, self.joined) = (None, BytesMut::new());
        } else if first {
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

/// Reads a JSON object into its type, naming the field that does not fit.
///
/// # Errors
/// 400 `malformed_json` or 422 `validation_failed`.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let pointer = pointer(error.path());
        refusal(&error.into_inner(), pointer)
    })?;
    json.end().map_err(|error| refusal(&error, String::new()))?;
    Ok(value)
}

fn refusal(error: &serde_json::Error, pointer: String) -> Problem {
    match error.classify() {
        serde_json::error::Category::Data => Problem::new(ProblemKind::ValidationFailed).field(
            pointer,
            "invalid",
            without_position(&error.to_string()),
        ),
        _ => Problem::new(ProblemKind::MalformedJson).detail(format!("The body is not JSON: {error}.")),
    }
}

/// The place that the parser names is of no use to whoever built the body with a library.
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
    async fn each_fault_of_a_body_has_its_own_code() {
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

    #[tokio::test]
    async fn a_wrong_field_is_pointed_at() {
        let problem = extract("application/json", "{\"name\":[1,\"x\"]}".into()).await;
        assert_eq!(problem.errors[0].pointer, "/name/1");
        assert_eq!(problem.errors[0].message, "invalid type: string \"x\", expected u32");
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_joined_and_one_that_is_too_large_taken_off_the_wire() {
        let pieces = |text: &'static str, count: usize| {
            let chunks =
                (0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from_static(text.as_bytes())));
            Request::new(Body::from_stream(stream::iter(chunks)))
        };
        assert_eq!(read(pieces("ab", 3), 6).await.unwrap(), "ababab");
        assert_eq!(read(pieces("", 2), 6).await.unwrap(), "");
        assert_eq!(read(pieces("ab", 4), 6).await.unwrap_err().kind(), ProblemKind::BodyTooLarge);
        assert_eq!(
            read(pieces("abcdefgh", 5_000_000), 6).await.unwrap_err().kind(),
            ProblemKind::BodyTooLarge
        );
    }

    #[tokio::test]
    async fn room_is_made_for_each_piece_before_it_is_kept_and_none_beyond_the_limit() {
        let pieces = |count| {
            let chunks = (0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"ab")));
            Request::new(Body::from_stream(stream::iter(chunks)))
        };
        let mut asked = Vec::new();
        let read = async |count, asked: &mut Vec<usize>, room| {
            let make_room = |arrived| {
                asked.push(arrived);
                if arrived <= room { Ok(()) } else { Err(ProblemKind::Overloaded.into()) }
            };
            read_into(pieces(count), 6, make_room).await.map_err(|problem| problem.kind())
        };
        assert_eq!(read(3, &mut asked, 6).await.unwrap(), "ababab");
        assert_eq!(read(9, &mut asked, 6).await, Err(ProblemKind::BodyTooLarge));
        assert_eq!(read(3, &mut asked, 3).await, Err(ProblemKind::Overloaded));
        assert_eq!(asked, [2, 4, 6, 2, 4, 6, 2, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(extract("application/json", endless).await.kind(), ProblemKind::BodyTimeout);
    }
}
