//! Signals that end a command: SIGHUP, SIGINT, SIGQUIT and SIGTERM. The process ends by the signal itself, so that a shell ends its
//! loop and a supervisor sees the signal. A command that must finish its work first can take the first one.
//!
//! A separate thread handles them, so that they also end a command that is blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::framework::error::{ErrorKind, Exit};
use crate::framework::terminal;

/// Signals that are handled.
const HANDLED: [ErrorKind; 4] =
    [ErrorKind::HungUp, ErrorKind::Interrupted, ErrorKind::Quit, ErrorKind::Terminated];

/// Ends the process by the first signal, or delivers it to the command that takes it.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    /// Where the command receives the first signal.
    taker: Arc<Mutex<Option<oneshot::Sender<ErrorKind>>>>,
    /// Number of the last signal; zero before the first one.
    received: Arc<AtomicUsize>,
    /// Whether signals have their default action.
    released: Arc<AtomicBool>,
}

impl Signals {
    /// Waits for the first signal. While this future exists, only the second one ends the process.
    pub(crate) fn take_first(&self) -> impl Future<Output = ErrorKind> + use<> {
        let (taker, first) = oneshot::channel();
        *self.taker.lock() = Some(taker);
        async move {
            match first.await {
                Ok(signal) => signal,
                // The sender exists as long as the command.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Starts to handle signals. Before, they have their default action. Signals that the calling program ignores, as `nohup` does,
    /// stay ignored.
    pub(crate) fn handle(&self) {
        use signal_hook::consts::SIGCONT;
        use signal_hook::flag::{register_conditional_default, register_usize};
        use signal_hook::iterator::Signals as Iterator;

        let ignored = ignored_signals();
        let numbers: Vec<_> =
            HANDLED.into_iter().map(number).filter(|number| (ignored >> (number - 1)) & 1 == 0).collect();
        let registered = numbers.iter().try_for_each(|&number| {
            // In this order: `release` relies on it.
            register_usize(number, Arc::clone(&self.received), number.unsigned_abs() as usize)?;
            register_conditional_default(number, Arc::clone(&self.released)).map(drop)
        });
        let watched = numbers.iter().copied().chain([SIGCONT]);
        let iterator = registered.and_then(|()| Iterator::new(watched));
        // A signal that arrived before the iterator existed.
        self.end_by_received();
        let signals = self.clone();
        let handled = iterator.and_then(|mut iterator| {
            let receive = move || {
                iterator.forever().for_each(|number| match number {
                    SIGCONT => terminal::resume(),
                    number => signals.receive(number),
                });
            };
            std::thread::Builder::new().name("signals".to_owned()).spawn(receive)
        });
        if handled.is_err() {
            self.released.store(true, Ordering::SeqCst);
        }
    }

    fn receive(&self, received: i32) {
        if let Some(signal) = HANDLED.into_iter().find(|signal| number(*signal) == received) {
            self.deliver(signal);
        }
    }

    /// Delivers a signal to the command if it takes the signal, else ends the process.
    fn deliver(&self, signal: ErrorKind) {
        let taker = self.taker.lock().take();
        if taker.is_none_or(|taker| taker.send(signal).is_err()) {
            let has_open_line = terminal::restore();
            // A second signal ends the process even if the terminal is stopped.
            self.released.store(true, Ordering::SeqCst);
            if has_open_line {
                terminal::print_line("");
            }
            end_by(signal.exit());
        }
    }

    /// Restores the default action, after the end of the command. Ends the process by a signal that arrived before.
    pub(crate) fn release(&self) {
        // The handler stores the signal before it reads this. So either the signal is found here, or it has its default action.
        self.released.store(true, Ordering::SeqCst);
        self.end_by_received();
    }

    fn end_by_received(&self) {
        let received = self.received.load(Ordering::SeqCst);
        if let Some(signal) =
            HANDLED.into_iter().find(|signal| number(*signal).unsigned_abs() as usize == received)
        {
            end_by(signal.exit());
        }
    }
}

/// Number of a signal, which is the same on all Unix systems.
fn number(signal: ErrorKind) -> i32 {
    signal.exit().signal().map_or(0, i32::from)
}

/// Ends the process by the signal of an exit status.
fn end_by(exit: Exit) -> ! {
    if let Some(number) = exit.signal() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        // SIGQUIT would write a core file, with the passwords and tokens in memory. A failure does not matter to the signal.
        let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
        let _ = setrlimit(Resource::Core, limit);
        // Restores the default action and raises the signal. Returns only for a signal that does not end a process.
        let _ = signal_hook::low_level::emulate_default_handler(i32::from(number));
    }
    std::process::exit(i32::from(exit.code()))
}

/// Signals that the process ignores since its start; signal 1 is bit 0.
#[cfg(target_os = "linux")]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Not known here. SIGHUP keeps its action, so that `nohup` has an effect.
#[cfg(not(target_os = "linux"))]
fn ignored_signals() -> u64 {
    1
}
