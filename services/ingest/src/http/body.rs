//! Bodies of events: bounded before and after decompression, and counted against the memory budget.

use std::io::{self, Read};

use axum::extract::Request;
use bus::{BudgetExceeded, MemoryBudget, Reservation};
use bytes::Bytes;
use contract::ProblemKind;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use service::Problem;
use service::http::body::{read_into, without_byte_order_mark};
use tenancy::TenantId;

/// Maximum size of a compressed body.
const MAX_COMPRESSED_BYTES: usize = 5 * 1024 * 1024;
/// A larger body is decompressed on another thread, because it would delay other requests.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Compression ratio of most bodies. Memory for the maximum size is reserved only if a body needs more.
const USUAL_RATIO: usize = 16;
/// Memory is reserved in steps as the body arrives, not by its announced length, so that only sent bytes take memory.
const STEP: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// Reads a body and decompresses it. The memory is released when the reservation is dropped.
///
/// # Errors
/// `too_large` for more than `max` bytes after decompression; `overloaded` if the memory budget is exhausted.
pub(super) async fn read(
    request: Request,
    budget: &MemoryBudget,
    tenant: &TenantId,
    max: usize,
    too_large: ProblemKind,
) -> Result<(Bytes, Reservation), Problem> {
    let encoding = encoding(request.headers())?;
    let mut reservation = budget.reserve(tenant, 0).map_err(overloaded)?;
    let limit = if encoding == Encoding::Identity { max } else { max.min(MAX_COMPRESSED_BYTES) };
    let expected = content_length(request.headers()).unwrap_or(limit).min(limit);
    let reserve = |arrived| {
        if arrived <= reservation.bytes() {
            return Ok(());
        }
        reservation.grow_to(next_step(arrived, expected)).map_err(overloaded)
    };
    let body = read_into(request, limit, reserve).await.map_err(|problem| match problem.kind() {
        ProblemKind::BodyTooLarge if encoding == Encoding::Identity => exceeds(too_large, limit, ""),
        ProblemKind::BodyTooLarge => exceeds(too_large, limit, " of compressed data"),
        _ => problem,
    })?;
    reservation.shrink_to(body.len());
    if encoding == Encoding::Identity {
        return Ok((json_of(&body), reservation));
    }
    let usual = (body.len() * USUAL_RATIO).clamp(MAX_INLINE_BYTES, max.max(MAX_INLINE_BYTES)).min(max);
    reservation.grow_to(body.len() + usual).map_err(overloaded)?;
    let mut decompressed = decompress(encoding, body.clone(), usual).await?;
    if decompressed.len() > usual && usual < max {
        reservation.grow_to(body.len() + usual + max).map_err(overloaded)?;
        decompressed = decompress(encoding, body, max).await?;
    }
    if decompressed.len() > max {
        return Err(exceeds(too_large, max, ", counted after decompression"));
    }
    Ok((json_of(&decompressed.into()), reservation))
}

/// Returns the body without the byte order mark.
fn json_of(body: &Bytes) -> Bytes {
    body.slice_ref(without_byte_order_mark(body))
}

/// The problem of a body that exceeds a limit.
fn exceeds(kind: ProblemKind, limit: usize, of: &str) -> Problem {
    let (mib, kib) = (limit / (1024 * 1024), limit / 1024);
    let size = if mib > 0 { format!("{mib} MiB") } else { format!("{kib} KiB") };
    Problem::new(kind).detail(format!("Send at most {size}{of}."))
}

fn overloaded(_: BudgetExceeded) -> Problem {
    ProblemKind::Overloaded.into()
}

/// Returns the memory to reserve for a body of which `arrived` bytes were received and `expected` are announced.
fn next_step(arrived: usize, expected: usize) -> usize {
    arrived.next_multiple_of(STEP).min(expected).max(arrived)
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Problem> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    match (values.next().map(http::HeaderValue::as_bytes), values.next()) {
        (None, _) => Ok(Encoding::Identity),
        (Some(value), None) if value.eq_ignore_ascii_case(b"identity") => Ok(Encoding::Identity),
        // An alias (RFC 9110, section 8.4.1.3).
        (Some(value), None) if value.eq_ignore_ascii_case(b"x-gzip") => Ok(Encoding::Gzip),
        (Some(value), None) if value.eq_ignore_ascii_case(b"gzip") => Ok(Encoding::Gzip),
        (Some(value), None) if value.eq_ignore_ascii_case(b"zstd") => Ok(Encoding::Zstd),
        _ => Err(ProblemKind::ContentEncoding.into()),
    }
}

/// Decompresses at most `max + 1` bytes.
async fn decompress(encoding: Encoding, body: Bytes, max: usize) -> Result<Vec<u8>, Problem> {
    let decompressed = if max <= MAX_INLINE_BYTES {
        decompress_inline(encoding, &body, max)
    } else {
        let task = tokio::task::spawn_blocking(move || decompress_inline(encoding, &body, max));
        task.await.map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?
    };
    decompressed.map_err(|error| {
        let problem = Problem::new(ProblemKind::MalformedEncoding);
        // The library has no other sign of a window above the maximum.
        if error.to_string().contains("requires too much memory") {
            return problem
                .detail("The zstd frame needs a window of more than 8 MiB. Compress with a smaller window.");
        }
        problem
    })
}

fn decompress_inline(encoding: Encoding, body: &[u8], max: usize) -> io::Result<Vec<u8>> {
    // A large buffer does not grow, which would take more memory than is reserved. Its unused part takes none.
    let capacity = if max <= MAX_INLINE_BYTES { (body.len() * 4).min(max + 1) } else { max + 1 };
    let mut bytes = Vec::with_capacity(capacity);
    // One byte more than allowed shows that the body is too large.
    let limit = max as u64 + 1;
    match encoding {
        Encoding::Gzip => MultiGzDecoder::new(body).take(limit).read_to_end(&mut bytes)?,
        // A frame can request a window of any size. HTTP permits at most 8 MiB (RFC 9659).
        Encoding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
            decoder.window_log_max(23)?;
            decoder.take(limit).read_to_end(&mut bytes)?
        }
        Encoding::Identity => body.take(limit).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// Decompresses a body of at most `max` bytes as a request with this `Content-Encoding`; `None` if it is rejected.
#[cfg(fuzzing)]
pub async fn fuzzed(encoding: &[u8], body: Vec<u8>, max: usize) -> Option<Bytes> {
    let request = Request::builder().header(CONTENT_ENCODING, encoding).body(body.into()).ok()?;
    let budget = MemoryBudget::new(4 * max + (1 << 20));
    let result = read(request, &budget, &"acme".parse().ok()?, max, ProblemKind::EventTooLarge).await;
    let (body, reservation) = result.ok()?;
    drop(reservation);
    assert_eq!(budget.reserved_bytes(), 0);
    Some(body)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::body::Body;
    use futures::{StreamExt as _, stream};

    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn send(encoding: &str, body: Vec<u8>) -> Result<Bytes, &'static str> {
        let request = Request::builder().header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap();
        let budget = MemoryBudget::new(1 << 30);
        let result = read(request, &budget, &tenant("acme"), 100_000, ProblemKind::EventTooLarge).await;
        result.map(|(body, _)| body).map_err(|problem| problem.kind().code())
    }

    #[tokio::test]
    async fn every_encoding_decompresses_to_the_same_bytes() {
        let event = br#"{"source_id":"s"}"#.repeat(1000);
        assert_eq!(send("identity", event.clone()).await.unwrap(), event);
        assert_eq!(send("gzip", gzip(&event)).await.unwrap(), event);
        assert_eq!(send("x-gzip", gzip(&event)).await.unwrap(), event);
        assert_eq!(send("ZSTD", zstd::encode_all(&*event, 3).unwrap()).await.unwrap(), event);
    }

    #[tokio::test]
    async fn decompression_stops_at_the_limit() {
        let bomb = vec![b' '; 200_000_000];
        assert_eq!(send("gzip", gzip(&bomb)).await, Err("event_too_large"));
        assert_eq!(send("zstd", zstd::encode_all(&*bomb, 3).unwrap()).await, Err("event_too_large"));
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_removed() {
        let event = b"\xef\xbb\xbf{}".to_vec();
        assert_eq!(send("identity", event.clone()).await.unwrap(), "{}");
        assert_eq!(send("gzip", gzip(&event)).await.unwrap(), "{}");
    }

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn the_problem_names_the_limit_that_was_exceeded() {
        let detail = async |encoding: &str, body: Vec<u8>, max: usize| {
            let request =
                Request::builder().header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap();
            let budget = MemoryBudget::new(1 << 30);
            let result = read(request, &budget, &tenant("acme"), max, ProblemKind::BatchTooLarge).await;
            format!("{:?}", result.err().unwrap())
        };
        for (encoding, body, max, expected) in [
            ("identity", vec![b' '; 10 * MIB + 1], 10 * MIB, "Send at most 10 MiB."),
            ("gzip", vec![b' '; 5 * MIB + 1], 10 * MIB, "Send at most 5 MiB of compressed data."),
            (
                "gzip",
                gzip(&vec![b' '; 10 * MIB + 1]),
                10 * MIB,
                "Send at most 10 MiB, counted after decompression.",
            ),
            ("identity", vec![b' '; 256 * 1024 + 1], 256 * 1024, "Send at most 256 KiB."),
        ] {
            let problem = detail(encoding, body, max).await;
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_zstd_window_above_the_maximum_is_named() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&vec![b' '; 64 * 1024]).unwrap();
        let body = encoder.finish().unwrap();
        let request = Request::builder().header(CONTENT_ENCODING, "zstd").body(Body::from(body)).unwrap();
        let budget = MemoryBudget::new(1 << 30);
        let result = read(request, &budget, &tenant("acme"), 100_000, ProblemKind::EventTooLarge).await;
        let problem = result.err().unwrap();
        assert_eq!(problem.kind(), ProblemKind::MalformedEncoding);
        assert!(format!("{problem:?}").contains("window of more than 8 MiB"), "{problem:?}");
    }

    #[tokio::test]
    async fn malformed_compression_and_unknown_encodings_are_rejected() {
        let event = br#"{"source_id":"s"}"#.repeat(1000);
        assert_eq!(send("gzip", event.clone()).await, Err("malformed_encoding"));
        let half = gzip(&event);
        assert_eq!(send("gzip", half[..half.len() / 2].to_vec()).await, Err("malformed_encoding"));
        assert_eq!(send("zstd", b"no frame".to_vec()).await, Err("malformed_encoding"));
        assert_eq!(send("br", event.clone()).await, Err("content_encoding"));
        assert_eq!(send("gzip, gzip", event).await, Err("content_encoding"));
    }

    #[tokio::test]
    async fn body_beyond_the_budget_is_rejected_and_its_memory_is_released() {
        let budget = MemoryBudget::new(400_000);
        let send = async |size: usize| {
            let request =
                Request::builder().header(CONTENT_LENGTH, size).body(Body::from(vec![b' '; size])).unwrap();
            let result = read(request, &budget, &tenant("acme"), 90_000, ProblemKind::EventTooLarge).await;
            result.map_err(|problem| problem.kind())
        };
        let held = send(60_000).await.unwrap();
        assert_eq!(send(60_000).await.err(), Some(ProblemKind::Overloaded));
        drop(held);
        let halves = (send(50_000).await.unwrap(), send(50_000).await.unwrap());
        assert_eq!(send(1).await.err(), Some(ProblemKind::Overloaded));
        drop(halves);
        assert!(send(60_000).await.is_ok());
    }

    #[tokio::test]
    async fn announced_bytes_take_no_memory_before_they_arrive() {
        let budget = MemoryBudget::new(16 * STEP);
        let acme = tenant("acme");
        let stalled = |announced: Option<usize>| {
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"x"))]);
            let body = Body::from_stream(first.chain(stream::pending()));
            let request = announced
                .into_iter()
                .fold(Request::builder(), |request, bytes| request.header(CONTENT_LENGTH, bytes));
            let request = request.body(body).unwrap();
            Box::pin(read(request, &budget, &acme, 1000 * STEP, ProblemKind::BatchTooLarge))
        };
        let send_step = async |name: &str| {
            let request = Request::new(Body::from(vec![b' '; STEP]));
            let result = read(request, &budget, &tenant(name), STEP, ProblemKind::BatchTooLarge).await;
            result.map(drop).map_err(|problem| problem.kind())
        };
        let mut senders = [stalled(Some(1000 * STEP)), stalled(Some(1000 * STEP)), stalled(None)];
        for sender in &mut senders {
            assert!(futures::poll!(sender).is_pending());
        }
        assert_eq!(send_step("acme").await, Ok(()), "each of the three reserved one step, and one is left");
        let mut last = stalled(None);
        assert!(futures::poll!(&mut last).is_pending());
        assert_eq!(send_step("acme").await, Err(ProblemKind::Overloaded));
        assert_eq!(send_step("other").await, Ok(()));
    }
    #[test]
    fn memory_is_reserved_in_steps_up_to_the_announced_length() {
        for (arrived, reserved) in [
            (1, STEP),
            (STEP, STEP),
            (STEP + 1, 2 * STEP),
            (2 * STEP + 1, 2 * STEP + 10),
            (3 * STEP, 3 * STEP),
        ] {
            assert_eq!(next_step(arrived, 2 * STEP + 10), reserved, "{arrived}");
        }
    }
}
