//! Output to the terminal and the signals that stop this process.

#[cfg(feature = "services")]
use std::fmt::Display;
use std::io;
#[cfg(feature = "services")]
use std::io::Write as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Prints to standard output. A closed terminal is not an error: the shutdown must complete without it.
#[cfg(feature = "services")]
pub(crate) fn print(text: impl Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Receives SIGINT, SIGTERM and SIGHUP instead of their default action.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl StopSignals {
    /// Installs the handlers.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> rustix::process::Signal {
        use rustix::process::Signal;
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
