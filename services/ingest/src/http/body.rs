//! Bodies of events: bounded before and after decompression, and counted against the memory budget.

use std::io::{self, Read};

use axum::extract::Request;
use bus::{BudgetExceeded, MemoryBudget, Reservation};
use bytes::Bytes;
use contract::ProblemKind;
use contract::internal::Subject;
use flate2::bufread::GzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use service::Problem;
use service::http::body::{read_into, without_byte_order_mark};
use zstd::zstd_safe::find_frame_compressed_size;

use crate::app::{Allowance, TenantLimits};

/// Maximum size of a compressed body.
const MAX_COMPRESSED_BYTES: usize = 5 * 1024 * 1024;
/// Frames of zstd or members of gzip in a body, also empty ones: each costs time without a byte of JSON. More than the events of a batch,
/// which a sender may have compressed one by one.
const MAX_FRAMES: usize = 1024;
/// White space around the JSON of a body, which does not count against its maximum size: for example the final line break of a file.
const WHITE_SPACE: usize = 1024;
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

/// The sender of a body, and what limits it.
pub(super) struct Sender<'a> {
    pub(super) budget: &'a MemoryBudget,
    pub(super) limits: &'a TenantLimits,
    pub(super) caller: &'a Subject,
}

/// A decompressed body.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    /// The part of the quota of its tenant that its events can use.
    pub(super) allowance: Allowance,
    /// The memory is released when it is dropped.
    pub(super) reservation: Reservation,
}

impl Sender<'_> {
    /// Reads a body and decompresses it. Its bytes after decompression count against the quota of the tenant, also if they are rejected. Of
    /// a body that is not received completely, the received ones count.
    ///
    /// # Errors
    /// `too_large` for more than `max` bytes after decompression; `overloaded` if the memory budget is exhausted; `quota_exceeded`,
    /// before the body is read, if the tenant has used its quota.
    pub(super) async fn read(
        &self,
        request: Request,
        max: usize,
        too_large: ProblemKind,
    ) -> Result<ReceivedBody, Problem> {
        let Subject { tenant_id, quota, .. } = self.caller;
        let body = self.receive(request, max, too_large).await;
        // It counts as an invalid event.
        body.inspect_err(|problem| {
            if !problem.kind().is_retryable() {
                self.limits.take_events(tenant_id, quota, 1);
            }
        })
    }

    async fn receive(
        &self,
        request: Request,
        max: usize,
        too_large: ProblemKind,
    ) -> Result<ReceivedBody, Problem> {
        let Subject { tenant_id, quota, .. } = self.caller;
        let (json, max) = (max, max + WHITE_SPACE);
        let encoding = encoding(request.headers())?;
        self.limits.check(tenant_id, quota)?;
        let mut reservation = self.budget.reserve(tenant_id, 0).map_err(overloaded)?;
        let mut arrived = 0;
        let received = receive(request, encoding, max, &mut reservation, &mut arrived).await;
        let compressed = received.map_err(|problem| {
            if !problem.kind().is_retryable() {
                self.limits.take_bytes(tenant_id, quota, arrived);
            }
            match (problem.kind(), encoding) {
                (ProblemKind::BodyTooLarge, Encoding::Identity) => exceeds(too_large, json, ""),
                (ProblemKind::BodyTooLarge, _) => {
                    exceeds(too_large, json.min(MAX_COMPRESSED_BYTES), " of compressed data")
                }
                _ => problem,
            }
        })?;
        if encoding == Encoding::Identity {
            let allowance = self.limits.take_bytes(tenant_id, quota, compressed.len());
            if let Some(name) = compression(&compressed) {
                let detail = format!("The body is compressed: send `Content-Encoding: {name}`.");
                return Err(Problem::new(ProblemKind::MalformedEncoding).detail(detail));
            }
            let bytes = compressed.slice_ref(without_byte_order_mark(&compressed));
            if trimmed(&bytes).len() > json {
                return Err(exceeds(too_large, json, ""));
            }
            return Ok(ReceivedBody { bytes, allowance, reservation });
        }
        // Requests that arrived at the same time can have used it meanwhile.
        self.limits.check(tenant_id, quota)?;
        let usual =
            (compressed.len() * USUAL_RATIO).clamp(MAX_INLINE_BYTES, max.max(MAX_INLINE_BYTES)).min(max);
        reservation.grow_to(compressed.len() + usual).map_err(overloaded)?;
        let (mut bytes, mut result) = decompress(encoding, compressed.clone(), usual).await?;
        if result.is_ok() && bytes.len() > usual && usual < max {
            if let Err(exceeded) = reservation.grow_to(compressed.len() + usual + max) {
                self.limits.take_bytes(tenant_id, quota, bytes.len());
                return Err(overloaded(exceeded));
            }
            (bytes, result) = decompress(encoding, compressed, max).await?;
        }
        let allowance = self.limits.take_bytes(tenant_id, quota, bytes.len());
        result.map_err(|error| malformed(&error))?;
        let is_cut = bytes.len() > max;
        let bytes = Bytes::from(bytes);
        let bytes = bytes.slice_ref(without_byte_order_mark(&bytes));
        if is_cut || trimmed(&bytes).len() > json {
            return Err(exceeds(too_large, json, ", counted after decompression"));
        }
        reservation.shrink_to(bytes.len());
        Ok(ReceivedBody { bytes, allowance, reservation })
    }
}

/// Receives a body without decompressing it. `received` is the number of its bytes that were stored, also if it is rejected.
async fn receive(
    request: Request,
    encoding: Encoding,
    max: usize,
    reservation: &mut Reservation,
    received: &mut usize,
) -> Result<Bytes, Problem> {
    let limit = if encoding == Encoding::Identity { max } else { max.min(MAX_COMPRESSED_BYTES) };
    let expected = content_length(request.headers()).unwrap_or(limit).min(limit);
    let reserve = |arrived, is_slow| {
        *received = arrived;
        let bytes = next_step(arrived, expected);
        if is_slow {
            return reservation.grow_to_within_half(bytes).map_err(too_slow);
        }
        if arrived <= reservation.bytes() { Ok(()) } else { reservation.grow_to(bytes).map_err(overloaded) }
    };
    let body = read_into(request, limit, reserve).await?;
    reservation.shrink_to(body.len());
    Ok(body)
}

/// Returns the JSON of a body without the white space around it (RFC 8259, section 2).
pub(super) fn trimmed(json: &Bytes) -> Bytes {
    let is_white_space = |byte: &u8| b" \t\r\n".contains(byte);
    let start = json.iter().position(|byte| !is_white_space(byte)).unwrap_or(json.len());
    let end = json.iter().rposition(|byte| !is_white_space(byte)).map_or(start, |last| last + 1);
    json.slice_ref(json.get(start..end).unwrap_or_default())
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

fn too_slow(_: BudgetExceeded) -> Problem {
    let detail = "The body arrives slowly, and the memory for slow bodies is used. Send a smaller one.";
    Problem::new(ProblemKind::BodyTimeout).detail(detail)
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

/// Decompresses at most `max + 1` bytes. Returns also those before an error.
async fn decompress(
    encoding: Encoding,
    body: Bytes,
    max: usize,
) -> Result<(Vec<u8>, io::Result<()>), Problem> {
    if max <= MAX_INLINE_BYTES {
        return Ok(decompress_inline(encoding, &body, max));
    }
    let task = tokio::task::spawn_blocking(move || decompress_inline(encoding, &body, max));
    task.await.map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))
}

fn malformed(error: &io::Error) -> Problem {
    let problem = Problem::new(ProblemKind::MalformedEncoding);
    if error.kind() == io::ErrorKind::QuotaExceeded {
        return problem.detail(format!("{error}. Compress the body as one."));
    }
    // The library has no other sign of a window above the maximum.
    if error.to_string().contains("requires too much memory") {
        return problem
            .detail("The zstd frame needs a window of more than 8 MiB. Compress with a smaller window.");
    }
    problem
}

fn decompress_inline(encoding: Encoding, body: &[u8], max: usize) -> (Vec<u8>, io::Result<()>) {
    // A large buffer does not grow, which would take more memory than is reserved. Its unused part takes none.
    let capacity = if max <= MAX_INLINE_BYTES { (body.len() * 4).min(max + 1) } else { max + 1 };
    let mut bytes = Vec::with_capacity(capacity);
    // One byte more than allowed shows that the body is too large.
    let limit = max as u64 + 1;
    let read = match encoding {
        Encoding::Gzip => gunzip(body, limit, &mut bytes),
        Encoding::Zstd => {
            zstd_decoder(body).and_then(|decoder| decoder.take(limit).read_to_end(&mut bytes).map(drop))
        }
        Encoding::Identity => body.take(limit).read_to_end(&mut bytes).map(drop),
    };
    (bytes, read)
}

/// Decompresses the members of a file (RFC 1952, section 2.2). Zeros after the last one are padding, as for `gzip -d`.
fn gunzip(mut body: &[u8], limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    for _ in 0..MAX_FRAMES {
        let mut member = GzDecoder::new(body);
        (&mut member).take(limit - bytes.len() as u64).read_to_end(bytes)?;
        body = member.into_inner();
        if body.iter().all(|byte| *byte == 0) || bytes.len() as u64 == limit {
            return Ok(());
        }
    }
    Err(too_many_frames())
}

fn too_many_frames() -> io::Error {
    let message = format!("the body has more than {MAX_FRAMES} compressed parts");
    io::Error::new(io::ErrorKind::QuotaExceeded, message)
}

/// A frame can request a window of any size. HTTP permits at most 8 MiB (RFC 9659).
fn zstd_decoder(body: &[u8]) -> io::Result<zstd::Decoder<'_, &[u8]>> {
    let (mut rest, mut frames) = (body, 0);
    // The decoder reports a malformed frame.
    while let Ok(length) = find_frame_compressed_size(rest)
        && let Some(next) = rest.get(length..).filter(|next| !next.is_empty() && length > 0)
    {
        (rest, frames) = (next, frames + 1);
        if frames == MAX_FRAMES {
            return Err(too_many_frames());
        }
    }
    let mut decoder = zstd::Decoder::with_buffer(body)?;
    decoder.window_log_max(23)?;
    Ok(decoder)
}

/// Returns the name of the format of compressed bytes (RFC 1952, section 2.3.1, and RFC 8878, section 3.1.1). No JSON begins like them.
fn compression(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        _ => None,
    }
}

/// Decompresses a body of at most `max` bytes as a request with this `Content-Encoding`; `None` if it is rejected.
#[cfg(fuzzing)]
pub async fn fuzzed(encoding: &[u8], body: Vec<u8>, max: usize) -> Option<Bytes> {
    let request = Request::builder().header(CONTENT_ENCODING, encoding).body(body.into()).ok()?;
    let budget = MemoryBudget::new(4 * max + (1 << 20));
    let body = read_as("acme", &budget, request, max, ProblemKind::EventTooLarge).await.ok()?.bytes;
    assert_eq!(budget.reserved_bytes(), 0);
    Some(body)
}

/// Reads a body of a tenant without a quota.
#[cfg(any(test, fuzzing))]
async fn read_as(
    tenant: &str,
    budget: &MemoryBudget,
    request: Request,
    max: usize,
    too_large: ProblemKind,
) -> Result<ReceivedBody, Problem> {
    let tenant_id = tenant.parse().map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?;
    let (caller, limits) = key_of(tenant_id, contract::identity::Quota::default());
    Sender { budget, limits: &limits, caller: &caller }.read(request, max, too_large).await
}

/// Returns an API key of a tenant, and the limits of all tenants.
#[cfg(any(test, fuzzing))]
fn key_of(tenant_id: tenancy::TenantId, quota: contract::identity::Quota) -> (Subject, TenantLimits) {
    use contract::internal::Credential;
    let credential =
        Credential::ApiKey { key_id: tenancy::KeyId::generate(), scopes: Vec::new(), source_ids: Vec::new() };
    let caller = Subject { credential, tenant_id, quota, expires_at: chrono::DateTime::UNIX_EPOCH };
    let quotas = crate::app::Quotas::new(quota, bus::Replicas::fixed(1));
    let limits = TenantLimits::new(quotas, Vec::new(), &service::telemetry::Metrics::new("test"));
    (caller, limits)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::body::Body;
    use futures::{StreamExt as _, stream};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn send(encoding: &str, body: Vec<u8>) -> Result<Bytes, &'static str> {
        let request = Request::builder().header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap();
        let budget = MemoryBudget::new(1 << 30);
        let result = read_as("acme", &budget, request, 100_000, ProblemKind::EventTooLarge).await;
        result.map(|body| trimmed(&body.bytes)).map_err(|problem| problem.kind().code())
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
    async fn a_body_has_a_bounded_number_of_compressed_parts_also_of_empty_ones() {
        let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &[0; 4]].concat();
        let event = br#"{"source_id":"s"}"#;
        let (zstd, empty) = (zstd::encode_all(&event[..], 3).unwrap(), zstd::encode_all(&[][..], 3).unwrap());
        for (encoding, part, last) in [
            ("zstd", empty, zstd.clone()),
            ("zstd", skippable, zstd.clone()),
            ("zstd", zstd.clone(), zstd),
            ("gzip", gzip(b""), gzip(event)),
            ("gzip", gzip(event), gzip(event)),
        ] {
            let body = |parts: usize| [part.repeat(parts - 1), last.clone()].concat();
            let accepted = send(encoding, body(MAX_FRAMES)).await.unwrap();
            assert!(accepted.ends_with(event), "{encoding}");
            assert_eq!(send(encoding, body(MAX_FRAMES + 1)).await, Err("malformed_encoding"), "{encoding}");
        }
        let error =
            zstd_decoder(&zstd::encode_all(&[][..], 3).unwrap().repeat(MAX_FRAMES + 1)).err().unwrap();
        let problem = format!("{:?}", malformed(&error));
        assert!(problem.contains("more than 1024 compressed parts"), "{problem}");
    }

    #[tokio::test]
    async fn decompressed_bytes_count_also_if_no_memory_is_left_for_the_rest() {
        let quota = contract::identity::Quota { bytes_per_second: Some(1000), ..Default::default() };
        let (caller, limits) = key_of("acme".parse().unwrap(), quota);
        let budget = MemoryBudget::new(1 << 20);
        let read = async || {
            let body = Body::from(zstd::encode_all(&*vec![b' '; 1 << 20], 3).unwrap());
            let request = Request::builder().header(CONTENT_ENCODING, "zstd").body(body).unwrap();
            let sender = Sender { budget: &budget, limits: &limits, caller: &caller };
            let result = sender.read(request, 1 << 20, ProblemKind::EventTooLarge).await;
            result.map(|body| body.bytes).map_err(|problem| problem.kind().code())
        };
        assert_eq!(read().await, Err("overloaded"));
        assert_eq!(read().await, Err("quota_exceeded"));
    }

    #[tokio::test]
    async fn received_bytes_count_also_if_the_client_does_not_complete_the_body() {
        let quota = contract::identity::Quota { bytes_per_second: Some(1000), ..Default::default() };
        for encoding in ["identity", "gzip"] {
            let (caller, limits) = key_of("acme".parse().unwrap(), quota);
            let budget = MemoryBudget::new(1 << 20);
            let read = async || {
                let reset = io::Error::from(io::ErrorKind::ConnectionReset);
                let parts = stream::iter([Ok(Bytes::from(vec![b' '; 10_000])), Err(reset)]);
                let request = Request::builder().header(CONTENT_ENCODING, encoding);
                let request = request.body(Body::from_stream(parts)).unwrap();
                let sender = Sender { budget: &budget, limits: &limits, caller: &caller };
                let result = sender.read(request, 1 << 20, ProblemKind::EventTooLarge).await;
                result.map(|body| body.bytes).map_err(|problem| problem.kind().code())
            };
            assert_eq!(read().await, Err("malformed_json"), "{encoding}");
            assert_eq!(read().await, Err("quota_exceeded"), "{encoding}");
        }
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_removed() {
        let event = b"\xef\xbb\xbf{}".to_vec();
        assert_eq!(send("identity", event.clone()).await.unwrap(), "{}");
        assert_eq!(send("gzip", gzip(&event)).await.unwrap(), "{}");
    }

    #[tokio::test]
    async fn white_space_around_the_json_does_not_count() {
        let event = vec![b'1'; 100_000];
        for (before, after) in [("", "\n"), ("\u{feff}\r\n\t ", "  \r\n")] {
            let body = [before.as_bytes(), &event, after.as_bytes()].concat();
            assert_eq!(send("identity", body.clone()).await.unwrap(), event);
            assert_eq!(send("zstd", zstd::encode_all(&*body, 3).unwrap()).await.unwrap(), event);
            assert_eq!(send("identity", [&body[..], b"1"].concat()).await, Err("event_too_large"));
        }
    }

    const MIB: usize = 1024 * 1024;

    #[tokio::test]
    async fn the_problem_names_the_limit_that_was_exceeded() {
        let detail = async |encoding: &str, body: Vec<u8>, max: usize| {
            let request =
                Request::builder().header(CONTENT_ENCODING, encoding).body(Body::from(body)).unwrap();
            let budget = MemoryBudget::new(1 << 30);
            let result = read_as("acme", &budget, request, max, ProblemKind::BatchTooLarge).await;
            format!("{:?}", result.err().unwrap())
        };
        for (encoding, body, max, expected) in [
            ("identity", vec![b'1'; 10 * MIB + 1], 10 * MIB, "Send at most 10 MiB."),
            ("gzip", vec![b' '; 5 * MIB + 1], 10 * MIB, "Send at most 5 MiB of compressed data."),
            (
                "gzip",
                gzip(&vec![b'1'; 10 * MIB + 1]),
                10 * MIB,
                "Send at most 10 MiB, counted after decompression.",
            ),
            ("identity", vec![b'1'; 256 * 1024 + 1], 256 * 1024, "Send at most 256 KiB."),
            (
                "gzip",
                gzip(&vec![b'1'; 256 * 1024 + 1]),
                256 * 1024,
                "Send at most 256 KiB, counted after decompression.",
            ),
            ("identity", vec![b' '; 256 * 1024 + 1025], 256 * 1024, "Send at most 256 KiB."),
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
        let result = read_as("acme", &budget, request, 100_000, ProblemKind::EventTooLarge).await;
        let problem = result.err().unwrap();
        assert_eq!(problem.kind(), ProblemKind::MalformedEncoding);
        assert!(format!("{problem:?}").contains("window of more than 8 MiB"), "{problem:?}");
    }

    #[tokio::test]
    async fn zeros_after_gzip_are_padding_and_other_bytes_are_an_error() {
        let event = br#"{"source_id":"s"}"#;
        let padded = |padding: &[u8]| [&gzip(event)[..], padding].concat();
        assert_eq!(send("gzip", padded(&[0; 4096])).await.unwrap(), &event[..]);
        for padding in [&[0, 0, 7][..], b"{}"] {
            assert_eq!(send("gzip", padded(padding)).await, Err("malformed_encoding"), "{padding:?}");
        }
        assert_eq!(send("gzip", vec![0; 4096]).await, Err("malformed_encoding"));
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
            let result = read_as("acme", &budget, request, 90_000, ProblemKind::EventTooLarge).await;
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
        let stalled = |announced: Option<usize>| {
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"x"))]);
            let body = Body::from_stream(first.chain(stream::pending()));
            let request = announced
                .into_iter()
                .fold(Request::builder(), |request, bytes| request.header(CONTENT_LENGTH, bytes));
            let request = request.body(body).unwrap();
            Box::pin(read_as("acme", &budget, request, 1000 * STEP, ProblemKind::BatchTooLarge))
        };
        let send_step = async |name: &str| {
            let request = Request::new(Body::from(vec![b' '; STEP]));
            let result = read_as(name, &budget, request, STEP, ProblemKind::BatchTooLarge).await;
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
