//! Byte stream of a connection. It records what the connection waits for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::Connection;

/// Bytes that are received and discarded after the last response. If a connection were closed with unread data, the client could
/// lose the response, because the kernel resets such a connection (RFC 9112, section 9.6).
const MAX_DISCARDED: usize = 32 * 1024 * 1024;

/// Byte stream of a client.
pub(super) struct Stream<T> {
    io: T,
    connection: Arc<Connection>,
    /// Number of bytes discarded after the shutdown.
    discarded: Option<usize>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream<T> {
    pub(super) fn new(io: T, connection: Arc<Connection>) -> Self {
        Self { io, connection, discarded: None }
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
        if buffer.filled().len() > before {
            self.connection.received();
        } else if buffer.remaining() > 0 && self.connection.half_closed(cx) {
            // The HTTP library would drop the request. It reads again when the connection has accepted the response.
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.connection.write_blocked(written.is_pending());
        written
    }

    // Without it, the server would copy each response: also a large page that connections share.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.connection.write_blocked(written.is_pending());
        written
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
