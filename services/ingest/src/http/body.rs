//! Bodies of events: bounded on both sides of inflation, and counted while inflating.

use std::io::{self, Read};

use axum::extract::Request;
use bytes::Bytes;
use contract::ProblemKind;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use service::Problem;
use service::http::body::read_into;

use super::room::Held;

/// What a compressed body may take on the wire.
const MAX_COMPRESSED: usize = 5 * 1024 * 1024;
/// Above this, inflating would hold up other requests of the thread.
const INFLATE_INLINE: usize = 64 * 1024;
/// What a body inflates to as a rule, in times of its size; one that needs more asks for the most it may take.
const USUAL_RATIO: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// Reads a body of at most `most` bytes after inflation into the tenant's room; a larger one is answered with `too_large`.
pub(super) async fn events(
    mut held: Held,
    request: Request,
    most: usize,
    too_large: ProblemKind,
) -> Result<(Bytes, Held), Problem> {
    let encoding = encoding(request.headers())?;
    let limit = if encoding == Encoding::Identity { most } else { most.min(MAX_COMPRESSED) };
    let expected = announced(request.headers()).unwrap_or(limit).min(limit);
    let read = read_into(request, limit, |arrived| held.keep(arrived, expected)).await;
    let body = read.map_err(|problem| match problem.kind() {
        ProblemKind::BodyTooLarge => Problem::new(too_large),
        _ => problem,
    })?;
    held.shrink_to(body.len());
    if encoding == Encoding::Identity {
        return Ok((body, held));
    }
    let usual = (body.len() * USUAL_RATIO).clamp(INFLATE_INLINE, most.max(INFLATE_INLINE)).min(most);
    held.take(usual)?;
    let mut inflated = inflate_aside(encoding, body.clone(), usual).await?;
    if inflated.len() > usual && usual < most {
        held.take(most)?;
        inflated = inflate_aside(encoding, body, most).await?;
    }
    if inflated.len() > most {
        return Err(too_large.into());
    }
    Ok((inflated.into(), held))
}

/// How long the sender says that the body is.
fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn inflate_aside(encoding: Encoding, body: Bytes, most: usize) -> Result<Vec<u8>, Problem> {
    let inflated = if most <= INFLATE_INLINE {
        inflate(encoding, &body, most)
    } else {
        let inflating = tokio::task::spawn_blocking(move || inflate(encoding, &body, most));
        inflating.await.map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?
    };
    inflated.map_err(|_| ProblemKind::MalformedEncoding.into())
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    match (values.next().map(http::HeaderValue::as_bytes), values.next()) {
        (None, _) => Ok(Encoding::Identity),
        (Some(value), None) if value.eq_ignore_ascii_case(b"identity") => Ok(Encoding::Identity),
        (Some(value), None) if value.eq_ignore_ascii_case(b"gzip") => Ok(Encoding::Gzip),
        (Some(value), None) if value.eq_ignore_ascii_case(b"zstd") => Ok(Encoding::Zstd),
        _ => Err(ProblemKind::ContentEncoding.into()),
    }
}

/// Inflates at most one byte more than `most`, which tells that there is more.
fn inflate(encoding: Encoding, body: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity((body.len() * 4).min(most + 1));
    let limit = most as u64 + 1;
    match encoding {
        Encoding::Gzip => MultiGzDecoder::new(body).take(limit).read_to_end(&mut bytes)?,
        // A frame may ask for a window of any size: 8 MiB is what every decoder must support (RFC 8878, section 3.1.1.1.2).
        Encoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
            decoder.window_log_max(23)?;
            decoder.take(limit).read_to_end(&mut bytes)?
        }
        Encoding::Identity => body.take(limit).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::body::Body;
    use futures::{StreamExt as _, stream};

    use super::super::room::Room;
    use super::*;

    const STEP: usize = 64 * 1024;

    fn held(room: &Room, tenant: &str) -> Held {
        room.of(&tenant.parse().unwrap())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn ask(encoding: &str, body: Vec<u8>) -> Result<Bytes, &'static str> {
        let request = Request::builder().header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap();
        let answer = events(held(&Room::new(), "acme"), request, 100_000, ProblemKind::EventTooLarge).await;
        answer.map(|(body, _held)| body).map_err(|problem| problem.kind().code())
    }

    #[tokio::test]
    async fn each_encoding_inflates_to_the_same_bytes() {
        let event = br#"{"source_id":"s"}"#.repeat(1000);
        assert_eq!(ask("identity", event.clone()).await.unwrap(), event);
        assert_eq!(ask("gzip", gzip(&event)).await.unwrap(), event);
        assert_eq!(ask("ZSTD", zstd::encode_all(&*event, 3).unwrap()).await.unwrap(), event);
    }

    #[tokio::test]
    async fn a_bomb_is_given_up_at_the_limit() {
        let bomb = vec![b' '; 200_000_000];
        assert_eq!(ask("gzip", gzip(&bomb)).await, Err("event_too_large"));
        assert_eq!(ask("zstd", zstd::encode_all(&*bomb, 3).unwrap()).await, Err("event_too_large"));
    }

    #[tokio::test]
    async fn what_does_not_inflate_is_malformed_and_other_encodings_are_refused() {
        let event = br#"{"source_id":"s"}"#.repeat(1000);
        assert_eq!(ask("gzip", event.clone()).await, Err("malformed_encoding"));
        let half = gzip(&event);
        assert_eq!(ask("gzip", half[..half.len() / 2].to_vec()).await, Err("malformed_encoding"));
        assert_eq!(ask("zstd", b"no frame".to_vec()).await, Err("malformed_encoding"));
        assert_eq!(ask("br", event.clone()).await, Err("content_encoding"));
        assert_eq!(ask("gzip, gzip", event).await, Err("content_encoding"));
    }

    #[tokio::test]
    async fn a_body_is_refused_when_there_is_no_room_for_it_and_gives_its_room_back() {
        let room = Room::of_size(400_000);
        let ask = async |size: usize| {
            let request =
                Request::builder().header(CONTENT_LENGTH, size).body(Body::from(vec![b' '; size])).unwrap();
            let held = held(&room, "acme");
            events(held, request, 90_000, ProblemKind::EventTooLarge).await.map_err(|problem| problem.kind())
        };
        let held = ask(60_000).await.unwrap();
        assert_eq!(ask(60_000).await.err(), Some(ProblemKind::Overloaded));
        drop(held);
        let halves = (ask(50_000).await.unwrap(), ask(50_000).await.unwrap());
        assert_eq!(ask(1).await.err(), Some(ProblemKind::Overloaded));
        drop(halves);
        assert!(ask(60_000).await.is_ok());
    }

    #[tokio::test]
    async fn what_is_announced_and_never_sent_takes_no_room() {
        let room = Room::of_size(16 * STEP);
        let stalled = |announced: Option<usize>| {
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"x"))]);
            let body = Body::from_stream(first.chain(stream::pending()));
            let request = announced
                .into_iter()
                .fold(Request::builder(), |request, bytes| request.header(CONTENT_LENGTH, bytes));
            let request = request.body(body).unwrap();
            Box::pin(events(held(&room, "acme"), request, 1000 * STEP, ProblemKind::BatchTooLarge))
        };
        let whole = async |tenant: &str| {
            let request = Request::new(Body::from(vec![b' '; STEP]));
            events(held(&room, tenant), request, STEP, ProblemKind::BatchTooLarge)
                .await
                .map(drop)
                .map_err(|problem| problem.kind())
        };
        let mut senders = [stalled(Some(1000 * STEP)), stalled(Some(1000 * STEP)), stalled(None)];
        for sender in &mut senders {
            assert!(futures::poll!(sender).is_pending());
        }
        assert_eq!(whole("acme").await, Ok(()), "each took a step, and one is left");
        let mut last = stalled(None);
        assert!(futures::poll!(&mut last).is_pending());
        assert_eq!(whole("acme").await, Err(ProblemKind::Overloaded));
        assert_eq!(whole("other").await, Ok(()));
    }
}
