//! Lifecycle of a process. Every task is tracked, and a task that ends unexpectedly terminates the process.
//!
//! A signal shuts the process down in two stages, each with a time budget. First stage, *drain*: the process is not
//! ready, accepts no connections and completes responses in flight. Second stage, *stop*: background tasks finish their
//! current work. A second signal aborts.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time budget for responses in flight after a signal.
const DRAIN_BUDGET: Duration = Duration::from_secs(25);
/// Time budget for background tasks after the drain.
const STOP_BUDGET: Duration = Duration::from_secs(10);

/// Tracked tasks of a process. Clones share the state.
#[derive(Clone, Default)]
pub struct Tasks {
    listeners: TaskTracker,
    background: TaskTracker,
    drain: CancellationToken,
    stop: CancellationToken,
    failed: Arc<AtomicBool>,
}

impl Tasks {
    /// Token that is cancelled when the drain starts: the process accepts no new requests.
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Token that is cancelled when background tasks must stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the tracker of background tasks, for libraries that spawn tasks.
    pub fn tracker(&self) -> &TaskTracker {
        &self.background
    }

    /// Spawns a task that runs until the process stops. If it panics or ends earlier, the process terminates.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, name: &'static str, task: F) {
        let tasks = self.clone();
        self.background.spawn(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !tasks.stop.is_cancelled() {
                tracing::error!(
                    task = name,
                    panicked = ended.is_err(),
                    "task ended unexpectedly; shutting down"
                );
                tasks.fail();
            }
        });
    }

    /// Spawns a task that repeats its work until the process stops: at once, and an interval after each end. The name is that of
    /// [`spawn`](Self::spawn).
    pub fn every<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        interval: Duration,
        mut work: impl FnMut() -> F + Send + 'static,
    ) {
        self.repeat(name, move || {
            let done = work();
            async move {
                done.await;
                interval
            }
        });
    }

    /// Like [`every`](Self::every). The work returns the interval until it is repeated.
    pub fn repeat<F: Future<Output = Duration> + Send + 'static>(
        &self,
        name: &'static str,
        mut work: impl FnMut() -> F + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            while !stop.is_cancelled() {
                let interval = work().await;
                stop.run_until_cancelled(tokio::time::sleep(interval)).await;
            }
        });
    }

    /// Spawns a task that ends when its work is done. The shutdown waits for it within the budget. The handle can abort
    /// the task.
    pub fn spawn_short<F: Future<Output = ()> + Send + 'static>(&self, task: F) -> AbortHandle {
        self.background.spawn(task).abort_handle()
    }

    /// Spawns a listener. It must end after its last response once [`draining`](Self::draining) is cancelled.
    pub fn spawn_listener<F: Future<Output = ()> + Send + 'static>(&self, listener: F) {
        self.listeners.spawn(listener);
    }

    /// Terminates the process with a non-zero exit code.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.drain.cancel();
    }

    /// Runs until a signal or a failure, then shuts down in order. Returns the exit code.
    pub async fn run_until_shutdown(&self) -> ExitCode {
        tokio::select! {
            () = next_signal() => tracing::info!("signal received; draining"),
            () = self.drain.cancelled() => {}
        }
        tokio::select! {
            () = self.shut_down() => {}
            () = next_signal() => {
                tracing::warn!("second signal received; aborting");
                return ExitCode::from(130);
            }
        }
        if self.failed.load(Ordering::Acquire) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Drains and stops, each within its time budget.
    pub async fn shut_down(&self) {
        self.drain.cancel();
        self.listeners.close();
        if tokio::time::timeout(DRAIN_BUDGET, self.listeners.wait()).await.is_err() {
            tracing::warn!("timed out waiting for responses in flight; shutting down");
        }
        self.stop.cancel();
        self.background.close();
        if tokio::time::timeout(STOP_BUDGET, self.background.wait()).await.is_err() {
            tracing::warn!(left = self.background.len(), "timed out waiting for background tasks; exiting");
        }
    }
}

/// Waits for the next SIGTERM or SIGINT. If a handler cannot be installed, the default action of the signal terminates
/// the process.
async fn next_signal() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_early_terminates_the_process() {
        let tasks = Tasks::default();
        tasks.spawn("short-lived", async {});
        assert_eq!(format!("{:?}", tasks.run_until_shutdown().await), format!("{:?}", ExitCode::FAILURE));
    }

    #[tokio::test]
    async fn a_panic_terminates_the_process() {
        let tasks = Tasks::default();
        tasks.spawn("panicking", async { panic!("on purpose") });
        assert_eq!(format!("{:?}", tasks.run_until_shutdown().await), format!("{:?}", ExitCode::FAILURE));
    }

    #[tokio::test(start_paused = true)]
    async fn periodic_work_runs_at_once_and_after_each_interval_until_the_process_stops() {
        let (tasks, runs) = (Tasks::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&runs);
        tasks.every("periodic", Duration::from_secs(10), move || {
            let counted = Arc::clone(&counted);
            async move {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let runs_after = async |seconds| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            runs.load(Ordering::Relaxed)
        };
        assert_eq!((runs_after(5).await, runs_after(10).await, runs_after(10).await), (1, 2, 3));
        tasks.shut_down().await;
        assert_eq!(runs_after(100).await, 3);
        assert!(!tasks.failed.load(Ordering::Acquire));
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_drain_before_background_tasks_stop() {
        let tasks = Tasks::default();
        let (listener, background) = (tasks.clone(), tasks.clone());
        let drained = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&drained);
        tasks.spawn_listener(async move {
            listener.draining().cancelled().await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            drained.store(true, Ordering::Release);
        });
        tasks.spawn("background", async move {
            background.stopping().cancelled().await;
            assert!(seen.load(Ordering::Acquire));
        });
        tasks.shut_down().await;
        assert!(!tasks.failed.load(Ordering::Acquire));
    }
}
