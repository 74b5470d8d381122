//! Waiting for conditions.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Far beyond what anything takes on a busy machine; only a defect lasts longer.
pub const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(10);

/// Asks again until there is an answer; panics with what was waited for when none comes.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < DEADLINE, "timed out waiting until {what}");
        sleep(POLL).await;
    }
}

/// What a future comes to, which must be within this time.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    timeout(limit, future).await.unwrap_or_else(|_| panic!("{what} took longer than {limit:?}"))
}
