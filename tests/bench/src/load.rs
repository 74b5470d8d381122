//! Closed-loop load: each connection sends its next request after the response to the previous one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::http::Connection;

/// When a rejected client tries again: the value of `Retry-After`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The result of a load.
#[derive(Default)]
pub(crate) struct LoadResult {
    /// The latency of each response with the expected status.
    pub(crate) times: Vec<Duration>,
    /// The number of responses with another status.
    pub(crate) rejected: usize,
    /// From the first request to the last response.
    pub(crate) elapsed: Duration,
}

impl LoadResult {
    /// Responses with the expected status per second.
    pub(crate) fn rate(&self) -> f64 {
        per_second(self.times.len(), self.elapsed)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for display")]
pub(crate) fn per_second(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// Runs a load on one thread with its own runtime. Tasks do not move between threads, which leaves more CPU time to the
/// measured system.
pub(crate) async fn on_one_thread<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<T> {
    let on_thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    };
    tokio::task::spawn_blocking(on_thread).await?
}

/// Sends each request once, distributed over the connections. A response with another status is an error.
pub(crate) async fn send_once(
    address: SocketAddr,
    count: usize,
    requests: Vec<Vec<u8>>,
    status: u16,
) -> anyhow::Result<Duration> {
    on_one_thread(move || async move {
        let mut connections = open_connections(address, count).await?;
        let requests = &requests;
        let started = Instant::now();
        try_join_all(connections.iter_mut().enumerate().map(|(first, connection)| async move {
            for request in requests.iter().skip(first).step_by(count) {
                connection.exchange(request).await?.expect(status)?;
            }
            anyhow::Ok(())
        }))
        .await?;
        Ok(started.elapsed())
    })
    .await
}

/// Repeats each request on its own connection for `time`, with a pause after each response. After a response with another status,
/// the pause is at least that of `Retry-After`.
pub(crate) async fn send_repeatedly(
    address: SocketAddr,
    requests: &[Vec<u8>],
    status: u16,
    time: Duration,
    pause: Duration,
) -> anyhow::Result<LoadResult> {
    let mut connections = open_connections(address, requests.len()).await?;
    let started = Instant::now();
    let count = u32::try_from(requests.len())?;
    let loops = connections.iter_mut().zip(requests).zip(0..).map(|((connection, request), at)| async move {
        let mut result = LoadResult::default();
        // Clients that start together and pause for the same time would send all their requests together.
        tokio::time::sleep(pause * at / count).await;
        while started.elapsed() < time {
            let sent = Instant::now();
            let mut pause = pause;
            if connection.exchange(request).await?.status == status {
                result.times.push(sent.elapsed());
            } else {
                result.rejected += 1;
                pause = pause.max(RETRY_AFTER);
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        anyhow::Ok(result)
    });
    let mut total = LoadResult::default();
    for part in try_join_all(loops).await? {
        total.times.extend(part.times);
        total.rejected += part.rejected;
    }
    total.elapsed = started.elapsed();
    Ok(total)
}

async fn open_connections(address: SocketAddr, count: usize) -> anyhow::Result<Vec<Connection>> {
    try_join_all((0..count).map(|_| Connection::open(address))).await
}
