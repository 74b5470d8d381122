//! Waiting for conditions, with a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Longer than any step of a test takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_mins(10);
const POLL: Duration = Duration::from_millis(5);

/// Polls `condition` until it returns a value. Panics with `what` after [`DEADLINE`].
pub async fn wait_until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "timed out waiting until {what}");
        sleep(POLL).await;
    }
}

/// The output of a future. Panics with `what` after `limit`.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{what} took longer than {limit:?}"))
}
