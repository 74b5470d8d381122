//! Request bodies: JSON, compressed if large.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::OutgoingEvent;

/// Bodies up to this size are not compressed.
const MIN_COMPRESSED_BYTES: usize = 1024;
/// Compression of this many bytes takes less than a millisecond. Other tasks can run in between.
const BYTES_PER_POLL: usize = 64 * 1024;

/// A JSON request body. Can be sent repeatedly.
#[derive(Clone, Debug)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) gzip: bool,
}

impl RequestBody {
    /// Body with one event.
    pub(super) async fn event(event: &OutgoingEvent) -> Self {
        Self::encode(&[event.body()]).await
    }

    /// Body with a list of events.
    pub(super) async fn list<'a>(events: impl Iterator<Item = &'a OutgoingEvent> + Send) -> Self {
        let mut parts = Vec::with_capacity(2 * events.size_hint().0 + 1);
        for event in events {
            parts.push(if parts.is_empty() { "[" } else { "," });
            parts.push(event.body());
        }
        parts.push("]");
        Self::encode(&parts).await
    }

    /// Compresses in this task and not on another thread, so that dropping the future ends the work. Falls back to no
    /// compression.
    async fn encode(parts: &[&str]) -> Self {
        let size = parts.iter().map(|part| part.len()).sum::<usize>();
        if size > MIN_COMPRESSED_BYTES
            && let Ok(compressed) = gzip(parts, size).await
        {
            return Self { bytes: compressed.into(), gzip: true };
        }
        Self { bytes: parts.concat().into(), gzip: false }
    }
}

/// Compresses the parts without a copy of the whole text.
async fn gzip(parts: &[&str], size: usize) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(size / 8), Compression::fast());
    let mut written = 0;
    for piece in parts.iter().flat_map(|part| part.as_bytes().chunks(BYTES_PER_POLL)) {
        encoder.write_all(piece)?;
        written += piece.len();
        if written >= BYTES_PER_POLL {
            written = 0;
            tokio::task::yield_now().await;
        }
    }
    encoder.finish()
}
