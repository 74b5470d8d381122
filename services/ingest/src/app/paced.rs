//! A stream of the items of a batch that lets other tasks of the thread run.

use futures::{Stream, StreamExt as _, stream};
use tokio::task::yield_now;

/// Number of bytes that are validated in one poll. Then other tasks of the thread run. hyper can poll the request again immediately,
/// so the first part can be validated in the poll that receives the end of the body.
const BYTES_PER_POLL: usize = 24 * 1024;
/// The work for an event that does not depend on its size, as the number of bytes with the same validation time.
const BYTES_PER_EVENT: usize = 256;

/// Returns the items of a body of this length. After [`BYTES_PER_POLL`], the next item follows in another poll.
pub(super) fn paced<'a, E>(
    items: impl Iterator<Item = Result<&'a [u8], E>>,
    body_len: usize,
) -> impl Stream<Item = Result<&'a [u8], E>> {
    // The first poll of a large body may also have received it.
    let mut polled = if body_len > BYTES_PER_POLL { BYTES_PER_POLL } else { 0 };
    stream::iter(items).then(move |item| {
        let work = item.as_ref().map_or(0, |item| item.len()) + BYTES_PER_EVENT;
        polled += work;
        let is_over = polled > BYTES_PER_POLL;
        if is_over {
            polled = work;
        }
        async move {
            if is_over {
                yield_now().await;
            }
            item
        }
    })
}
