//! The longest poll of a task during a batch of 500 events. Other requests of the thread wait for it.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use testsystem::TestSystem;

use super::{Bench, milliseconds};
use crate::events::{batch_body, events};
use crate::http::request;
use crate::load::{on_one_thread, send_once};
use crate::report::Comparison;

const BODIES: usize = 200;
const EVENTS: usize = 500;
const LIMIT_MS: f64 = 0.5;

impl Bench<'_> {
    pub(crate) async fn polls(&mut self) -> anyhow::Result<()> {
        let mut polls = on_one_thread(longest_polls).await?;
        polls.sort_unstable();
        let at = |percent: usize| milliseconds(polls[polls.len() * percent / 100]);
        self.report.add_comparison(Comparison {
            name: "longest poll during a batch of 500 events, p99, ms of CPU time",
            baseline: "limit",
            rounds: vec![(at(99), LIMIT_MS)],
            target: Some("≤ 1.00"),
        });
        self.report.add_value("  median", vec![at(50)]);
        Ok(())
    }
}

/// The longest poll during each batch. The whole system runs on the current thread.
async fn longest_polls() -> anyhow::Result<Vec<Duration>> {
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "1GiB")]).await?;
    let address = system.base_url.trim_start_matches("http://").parse()?;
    let bearer = format!("Bearer {}", system.create_tenant("bench").await.session.session_id.expose());
    let mut polls = Vec::new();
    for _ in 0..BODIES {
        let body = batch_body(&events(EVENTS));
        let batch = request("POST", "/api/v1/events/batch", &[("Authorization", &bearer)], &body);
        polls.push(longest_poll(send_once(address, 1, vec![batch], 202)).await?);
    }
    Ok(polls)
}

/// The maximum CPU time of the thread between two polls of a task that is always ready. CPU time does not contain other load of
/// the machine.
#[expect(clippy::disallowed_methods, reason = "the task ends with the load")]
async fn longest_poll(load: impl Future<Output = anyhow::Result<Duration>>) -> anyhow::Result<Duration> {
    let finished = Arc::new(AtomicBool::new(false));
    let (mut longest, mut before, stop) = (Duration::ZERO, thread_time(), Arc::clone(&finished));
    let always_ready = tokio::spawn(poll_fn(move |context| {
        let now = thread_time();
        longest = longest.max(now.saturating_sub(before));
        before = now;
        if stop.load(Ordering::Relaxed) {
            return Poll::Ready(longest);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    load.await?;
    finished.store(true, Ordering::Relaxed);
    Ok(always_ready.await?)
}

/// The CPU time of the current thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
