//! The signals that ask this process to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C, a polite kill, and a closed terminal. While it lives, none of them ends the process by itself.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// Takes the signals over from their default action.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> rustix::process::Signal {
        use rustix::process::Signal as Sent;
        tokio::select! {
            _ = self.interrupt.recv() => Sent::INT,
            _ = self.terminate.recv() => Sent::TERM,
            _ = self.hang_up.recv() => Sent::HUP,
        }
    }
}
