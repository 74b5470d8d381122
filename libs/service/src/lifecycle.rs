//! The life of a process: every task is tracked, a task that ends by itself takes the process down, and a signal ends it
//! in two stages, each with its own budget.
//!
//! First stage, *drain*: not ready, no new connections, the answers in flight go out. Second stage, *stop*: background
//! tasks finish what they hold and end. A second signal aborts.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long answers in flight may take after a signal.
const DRAIN_BUDGET: Duration = Duration::from_secs(25);
/// How long background tasks may take after the drain.
const STOP_BUDGET: Duration = Duration::from_secs(10);

/// The tracked tasks of a process. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct Tasks {
    listeners: TaskTracker,
    background: TaskTracker,
    drain: CancellationToken,
    stop: CancellationToken,
    failed: Arc<AtomicBool>,
}

impl Tasks {
    /// Cancelled when the process shall answer no new requests.
    pub fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when background tasks shall end.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// The tracker of background work, for libraries that spawn tasks of their own.
    pub fn tracker(&self) -> &TaskTracker {
        &self.background
    }

    /// Runs a task that lasts until the process stops. When it ends before that, or panics, the process goes down.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(&self, name: &'static str, task: F) {
        let tasks = self.clone();
        self.background.spawn(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !tasks.stop.is_cancelled() {
                tracing::error!(task = name, panicked = ended.is_err(), "a task ended by itself");
                tasks.fail();
            }
        });
    }

    /// Runs a task that ends when its work is done; the process waits for it, within the budget.
    pub fn spawn_short<F: Future<Output = ()> + Send + 'static>(&self, task: F) {
        self.background.spawn(task);
    }

    /// Runs a listener: it ends once it is drained.
    pub fn spawn_listener<F: Future<Output = ()> + Send + 'static>(&self, listener: F) {
        self.listeners.spawn(listener);
    }

    /// Takes the process down with a non-zero exit code.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.drain.cancel();
    }

    /// Waits for a signal or a failure.
    async fn until_told(&self) {
        tokio::select! {
            () = first_signal() => tracing::info!("a signal came: draining"),
            () = self.drain.cancelled() => {}
        }
        self.drain.cancel();
    }

    /// Runs until a signal or a failure, then ends everything in order.
    pub async fn run_until_shutdown(&self) -> ExitCode {
        self.until_told().await;
        tokio::select! {
            () = self.shut_down() => {}
            () = first_signal() => {
                tracing::warn!("a second signal came: aborting");
                return ExitCode::from(130);
            }
        }
        if self.failed.load(Ordering::Acquire) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Drains and stops, each within its budget.
    pub async fn shut_down(&self) {
        self.drain.cancel();
        self.listeners.close();
        if tokio::time::timeout(DRAIN_BUDGET, self.listeners.wait()).await.is_err() {
            tracing::warn!("some answers did not go out in time");
        }
        self.stop.cancel();
        self.background.close();
        if tokio::time::timeout(STOP_BUDGET, self.background.wait()).await.is_err() {
            tracing::warn!(left = self.background.len(), "some tasks did not end in time");
        }
    }
}

/// Completes at the next SIGTERM or SIGINT. Where the handler cannot be installed, the signal's default action ends
/// the process anyway, so there is nothing to wait for.
async fn first_signal() {
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
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_takes_the_process_down() {
        let tasks = Tasks::default();
        tasks.spawn("short-lived", async {});
        assert_eq!(format!("{:?}", tasks.run_until_shutdown().await), format!("{:?}", ExitCode::FAILURE));
    }

    #[tokio::test]
    async fn a_panic_takes_the_process_down() {
        let tasks = Tasks::default();
        tasks.spawn("panicking", async { panic!("on purpose") });
        assert_eq!(format!("{:?}", tasks.run_until_shutdown().await), format!("{:?}", ExitCode::FAILURE));
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
