//! Closed loops: so many connections, each of which sends its next request when the last one is answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::http::Connection;

/// What came of a load.
#[derive(Default)]
pub(crate) struct Outcome {
    /// How long each expected answer took.
    pub(crate) times: Vec<Duration>,
    /// Answers with another status.
    pub(crate) refused: usize,
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// Expected answers a second.
    pub(crate) fn rate(&self) -> f64 {
        per_second(self.times.len(), self.elapsed)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub(crate) fn per_second(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// Runs a load on a thread of its own with a runtime of its own: nothing moves between threads, which leaves more of the
/// cores to what is measured.
pub(crate) async fn on_one_thread<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<T> {
    let on_thread = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    };
    tokio::task::spawn_blocking(on_thread).await?
}

/// Sends each request once, dealt out to the connections. Any answer but the expected one is an error: what was meant to be
/// measured did not happen.
pub(crate) async fn each_once(
    address: SocketAddr,
    connections: usize,
    requests: Vec<Vec<u8>>,
    status: u16,
) -> anyhow::Result<Duration> {
    on_one_thread(move || async move {
        let mut opened = opened(address, connections).await?;
        let requests = &requests;
        let begun = Instant::now();
        try_join_all(opened.iter_mut().enumerate().map(|(first, connection)| async move {
            for request in requests.iter().skip(first).step_by(connections) {
                connection.exchange(request).await?.expect(status)?;
            }
            anyhow::Ok(())
        }))
        .await?;
        Ok(begun.elapsed())
    })
    .await
}

/// Sends each request again and again for a time over a connection of its own, with a pause after each answer.
pub(crate) async fn repeatedly(
    address: SocketAddr,
    requests: &[Vec<u8>],
    status: u16,
    time: Duration,
    pause: Duration,
) -> anyhow::Result<Outcome> {
    let mut opened = opened(address, requests.len()).await?;
    let begun = Instant::now();
    let loops = opened.iter_mut().zip(requests).map(|(connection, request)| async move {
        let mut outcome = Outcome::default();
        while begun.elapsed() < time {
            let asked = Instant::now();
            if connection.exchange(request).await?.status == status {
                outcome.times.push(asked.elapsed());
            } else {
                outcome.refused += 1;
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        anyhow::Ok(outcome)
    });
    let mut whole = Outcome::default();
    for part in try_join_all(loops).await? {
        whole.times.extend(part.times);
        whole.refused += part.refused;
    }
    whole.elapsed = begun.elapsed();
    Ok(whole)
}

async fn opened(address: SocketAddr, connections: usize) -> anyhow::Result<Vec<Connection>> {
    try_join_all((0..connections).map(|_| Connection::open(address))).await
}
