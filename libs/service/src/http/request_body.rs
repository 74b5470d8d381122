//! Body of a request. A handler can respond without reading it. The server then discards the rest of a short body and keeps the
//! connection, however the request was cut into segments. Otherwise it closes the connection, and announces this in the response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use http::Request;
use http::header::EXPECT;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connections::Connection;

/// Declared length up to which the rest of a body is discarded. A longer one costs more than a new connection.
const SHORT_BODY: u64 = 4096;
/// Time in which the rest of a short body is received. It exceeds one retransmission of a segment.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A body that sends itself to [`Rest`] if it is dropped before its end.
struct RequestBody {
    /// `None` after the end.
    body: Option<(Incoming, oneshot::Sender<Incoming>)>,
    connection: Arc<Connection>,
}

/// What the handler did not read of a request.
pub(super) struct Rest {
    /// `None` for a request without a body.
    body: Option<oneshot::Receiver<Incoming>>,
    is_short: bool,
}

/// Returns the request for its handler.
pub(super) fn track(request: Request<Incoming>, connection: &Arc<Connection>) -> (Request<Body>, Rest) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), Rest { body: None, is_short: true });
    }
    // A client that waits for `100 Continue` sends no body that is not read, but its next request (RFC 9110, section 10.1.1).
    let is_short = request.body().size_hint().upper().is_some_and(|length| length <= SHORT_BODY)
        && !request.headers().contains_key(EXPECT);
    let (sender, receiver) = oneshot::channel();
    let connection = Arc::clone(connection);
    let request = request.map(|body| Body::new(RequestBody { body: Some((body, sender)), connection }));
    (request, Rest { body: Some(receiver), is_short })
}

impl Rest {
    /// Discards the rest of a short body. Returns whether the request was received completely.
    pub(super) async fn discard(self, connection: &Connection) -> bool {
        let mut body = match self.body.map(|mut body| body.try_recv()) {
            None | Some(Err(oneshot::error::TryRecvError::Closed)) => return true,
            Some(Ok(body)) if self.is_short => body,
            Some(_) => return false,
        };
        let started = Instant::now();
        connection.body_started();
        let discard =
            async { while let Some(Ok(_)) = poll_fn(|cx| poll_body(&mut body, connection, cx)).await {} };
        let is_over = tokio::time::timeout(DISCARD_TIMEOUT, discard).await.is_ok();
        connection.body_ended(started.elapsed());
        is_over && body.is_end_stream()
    }
}

/// Returns the next frame, or an error if the client has closed its side of the connection before the end. The HTTP library does not
/// read this, because it would drop the request.
fn poll_body(
    body: &mut Incoming,
    connection: &Connection,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    match Pin::new(body).poll_frame(cx) {
        Poll::Pending if connection.waits_for_body(cx) => {
            Poll::Ready(Some(Err("the body is incomplete".into())))
        }
        frame => frame.map(|frame| frame.map(|frame| frame.map_err(Into::into))),
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body: Some((body, _)), connection } = &mut *self else { return Poll::Ready(None) };
        let frame = ready!(poll_body(body, connection, cx));
        let is_end = match &frame {
            None => true,
            Some(frame) => frame.is_ok() && body.is_end_stream(),
        };
        if is_end {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some((body, rest)) = self.body.take() {
            // Dropped if the response is already on its way.
            drop(rest.send(body));
        }
    }
}
