//! Request bodies: JSON, compressed if large, and the progress of their upload.

use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::OutgoingEvent;

/// Bodies up to this size are not compressed.
const MIN_COMPRESSED_BYTES: usize = 1024;
/// Compression of this many bytes takes less than a millisecond. Other tasks can run in between.
const BYTES_PER_POLL: usize = 64 * 1024;
/// Size of the pieces in which a body is sent. The connection takes the next one when it has sent an earlier one.
const PIECE: usize = 32 * 1024;

/// A JSON request body. Can be sent repeatedly.
#[derive(Clone, Debug)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    pub(super) gzip: bool,
}

/// When the connection took the first and the last piece of a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Option<(Instant, Instant)>>>);

impl Progress {
    /// The time of the last piece, or `None` before the first one.
    pub(super) fn last(&self) -> Option<Instant> {
        self.0.lock().map(|(_, last)| last)
    }

    /// Time from the first to the last piece.
    pub(super) fn duration(&self) -> Duration {
        self.0.lock().map_or(Duration::ZERO, |(first, last)| last - first)
    }

    fn record(&self) {
        let now = Instant::now();
        let mut times = self.0.lock();
        *times = Some((times.map_or(now, |(first, _)| first), now));
    }
}

/// The body of one attempt. It has a known length, so that the service can reject one that is too large before it is sent.
struct Upload {
    rest: Bytes,
    progress: Progress,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        self.progress.record();
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl RequestBody {
    /// The body of an attempt, which records its progress.
    pub(super) fn upload(&self, progress: &Progress) -> reqwest::Body {
        if self.bytes.len() <= PIECE {
            return self.bytes.clone().into();
        }
        reqwest::Body::wrap(Upload { rest: self.bytes.clone(), progress: progress.clone() })
    }

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
