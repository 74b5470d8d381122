//! Body of a request. A handler can respond without reading it. The server then discards the rest of a short body and keeps the
//! connection, however the request was cut into segments. Otherwise it closes the connection, and announces this in the response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http::header::EXPECT;
use http_body_util::BodyExt as _;
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
}

/// What the handler did not read of a request.
pub(super) struct Rest {
    /// `None` for a request without a body.
    body: Option<oneshot::Receiver<Incoming>>,
    is_short: bool,
}

/// Returns the request for its handler.
pub(super) fn track(request: Request<Incoming>) -> (Request<Body>, Rest) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), Rest { body: None, is_short: true });
    }
    // A client that waits for `100 Continue` sends no body that is not read, but its next request (RFC 9110, section 10.1.1).
    let is_short = request.body().size_hint().upper().is_some_and(|length| length <= SHORT_BODY)
        && !request.headers().contains_key(EXPECT);
    let (sender, receiver) = oneshot::channel();
    let request = request.map(|body| Body::new(RequestBody { body: Some((body, sender)) }));
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
        let discard = async { while let Some(Ok(_)) = body.frame().await {} };
        let is_over = tokio::time::timeout(DISCARD_TIMEOUT, discard).await.is_ok();
        connection.body_ended(started.elapsed());
        is_over && body.is_end_stream()
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some((body, _)) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
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
