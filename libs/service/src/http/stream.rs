//! Byte stream and bodies of a connection. They record what the connection waits for.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::{BodyState, Connection};

/// Bytes of a rejected request that are received and discarded. If a connection were closed with unread data, the client
/// could lose the response, because the kernel resets such a connection.
const MAX_DISCARDED: usize = 32 * 1024 * 1024;

/// Size up to which a body usually arrives in one read with the head.
const SHORT_BODY: u64 = 4096;

/// Byte stream of a client.
pub(super) struct Stream<T> {
    io: T,
    connection: Arc<Connection>,
    is_blocked: bool,
    /// Number of bytes discarded after the shutdown.
    discarded: Option<usize>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream<T> {
    pub(super) fn new(io: T, connection: Arc<Connection>) -> Self {
        Self { io, connection, is_blocked: false, discarded: None }
    }

    fn record<R>(&mut self, written: Poll<R>) -> Poll<R> {
        let was_blocked = std::mem::replace(&mut self.is_blocked, written.is_pending());
        if self.is_blocked != was_blocked {
            self.connection.write_blocked(self.is_blocked);
        }
        written
    }

    /// Discards what the client still sends, until it closes the connection or exceeds a limit.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut chunk = [0; 8192];
        let Some(discarded) = &mut self.discarded else { return Poll::Ready(()) };
        while *discarded < MAX_DISCARDED {
            let mut chunk = ReadBuf::new(&mut chunk);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                break;
            }
            *discarded += chunk.filled().len();
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(match buffer.filled().len() - before {
            0 => Ok(()),
            count => self.connection.received(count),
        })
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.record(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.record(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.discarded.is_none() {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.discarded = Some(if self.connection.closing() { 0 } else { MAX_DISCARDED });
        }
        self.poll_discard(cx).map(Ok)
    }
}

/// Body of a request.
pub(super) struct RequestBody {
    body: Incoming,
    connection: Arc<Connection>,
    state: BodyState,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, connection: Arc<Connection>) -> Self {
        let state = match body.size_hint().upper() {
            Some(0) => BodyState::Read,
            Some(size) if size <= SHORT_BODY => BodyState::UnreadShort,
            _ => BodyState::Unread,
        };
        Self { body, connection, state }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = pin!(&mut self.body).poll_frame(cx);
        self.connection.body_awaited(frame.is_pending());
        let is_complete = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        self.state = if is_complete { BodyState::Read } else { BodyState::Unread };
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.connection.body_ended(self.state);
    }
}

/// Body of a response.
pub(super) struct ResponseBody {
    body: Body,
    connection: Arc<Connection>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, connection: Arc<Connection>) -> Self {
        Self { body, connection }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.connection.response_ended();
    }
}
