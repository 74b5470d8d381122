//! Signals that end a command: SIGINT, SIGQUIT and SIGTERM. A command that must finish its work first can take the first one. SIGQUIT,
//! too, must not leave a terminal without echo.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::ErrorKind;

/// Delivers the first signal to the command if it takes it.
pub(crate) struct Signals {
    is_taken: AtomicBool,
    first: watch::Sender<Option<ErrorKind>>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { is_taken: AtomicBool::new(false), first: watch::Sender::new(None) }
    }
}

impl Signals {
    /// Waits for the first signal. From now on, only the second one ends the process.
    pub(crate) fn take_first(&self) -> impl Future<Output = ErrorKind> + use<> {
        self.is_taken.store(true, Ordering::Relaxed);
        let mut first = self.first.subscribe();
        async move {
            let signal = first.wait_for(Option::is_some).await.ok().and_then(|signal| *signal);
            match signal {
                Some(signal) => signal,
                // The sender exists as long as the command.
                None => std::future::pending().await,
            }
        }
    }

    /// Waits for a signal that the command does not take.
    pub(crate) async fn next_untaken(&self) -> ErrorKind {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};

            let signals = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::quit()),
                signal(SignalKind::terminate()),
            );
            let (Ok(mut interrupt), Ok(mut quit), Ok(mut terminate)) = signals else {
                // Without handlers, the default action of the signals ends the process.
                return std::future::pending().await;
            };
            loop {
                let signal = tokio::select! {
                    _ = interrupt.recv() => ErrorKind::Interrupted,
                    _ = quit.recv() => ErrorKind::Interrupted,
                    _ = terminate.recv() => ErrorKind::Terminated,
                };
                if !self.is_for_the_command(signal) {
                    return signal;
                }
            }
        }
        #[cfg(not(unix))]
        loop {
            if tokio::signal::ctrl_c().await.is_err() {
                return std::future::pending().await;
            }
            if !self.is_for_the_command(ErrorKind::Interrupted) {
                return ErrorKind::Interrupted;
            }
        }
    }

    fn is_for_the_command(&self, signal: ErrorKind) -> bool {
        self.is_taken.load(Ordering::Relaxed) && self.first.send_replace(Some(signal)).is_none()
    }
}
