//! The body of a response that keeps a value, for example a reservation of memory, until the connection has accepted all bytes: a client
//! can read slowly.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

/// Maximum size of a part in bytes. The server requests a part after the connection has accepted the previous ones, and drops the body
/// after the last one.
const PART: usize = 16 * 1024;

/// The bytes of a response, and a value that is dropped when the server has requested all of them.
pub struct HeldBody<T> {
    rest: Bytes,
    _held: T,
}

impl<T> HeldBody<T> {
    /// Returns a body that keeps a value.
    pub fn new(bytes: impl Into<Bytes>, held: T) -> Self {
        Self { rest: bytes.into(), _held: held }
    }
}

impl<T: Unpin> HttpBody for HeldBody<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PART);
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_of_known_length_is_sent_in_parts() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 * PART + 1).collect();
        let mut body = HeldBody::new(bytes.clone(), ());
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let (mut sent, mut parts) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            parts.push((part.len(), body.is_end_stream()));
            sent.extend_from_slice(&part);
        }
        assert_eq!(parts, [(PART, false), (PART, false), (1, true)]);
        assert_eq!(sent, bytes);
    }
}
