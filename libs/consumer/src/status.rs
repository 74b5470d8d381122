//! The state of a consumer, for the readiness and the metrics of the program that contains it.

use std::fmt::Display;

use async_nats::{ClientError, Event};
use tokio::sync::watch;

/// State of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether there is a connection to a server that has accepted the credentials.
    pub is_connected: bool,
    /// Whether the broker answers the requests of this process for events. Not without a connection, while another process of the consumer
    /// reads, or while unacknowledged events of a process that crashed are awaited (31 s).
    pub is_reading: bool,
    /// Last error of the connection, of the server or of reading, for example `authorization violation`. It remains after a recovery.
    pub last_error: Option<String>,
    /// Number of events that are delivered and not acknowledged.
    pub in_flight: usize,
    /// Number of events that the handler has handled. Those that are skipped and dead letters are not counted.
    pub handled: u64,
    /// Number of events that became dead letters.
    pub dead_letters: u64,
}

/// Where a consumer reports its state. Clones show the same state.
///
/// ```
/// let config = consumer::Config::new("nats://nats:4222", "archive", "password");
/// let monitor = config.monitor.clone();
/// // While `run` reads with this configuration, for a readiness probe:
/// assert!(!monitor.status().is_connected);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Monitor(watch::Sender<Status>);

impl Monitor {
    /// Returns the current state.
    pub fn status(&self) -> Status {
        self.0.borrow().clone()
    }

    /// Returns a receiver of changes.
    pub fn subscribe(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    /// Returns a guard: when it is dropped, the consumer is neither connected nor reads.
    pub(crate) fn begin(&self) -> Running {
        Running(self.clone())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) {
        self.0.send_modify(change);
    }

    pub(crate) fn failed(&self, error: impl Display) {
        self.change(|status| status.last_error = Some(error.to_string()));
    }

    pub(crate) fn progress(&self, events: usize, is_reading: bool) {
        self.0.send_if_modified(|status| {
            let is_changed = (status.in_flight, status.is_reading) != (events, is_reading);
            (status.in_flight, status.is_reading) = (events, is_reading);
            is_changed
        });
    }

    /// Records a change of the connection.
    pub(crate) fn connection_changed(&self, event: &Event) {
        match event {
            Event::Connected => self.change(|status| status.is_connected = true),
            Event::Disconnected | Event::Closed => self.change(|status| status.is_connected = false),
            Event::ServerError(error) => self.failed(error),
            Event::ClientError(ClientError::Other(error)) => self.failed(error),
            Event::ClientError(error) => self.failed(error),
            _ => {}
        }
    }
}

/// A consumer that runs.
pub(crate) struct Running(Monitor);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|status| {
            (status.is_connected, status.is_reading, status.in_flight) = (false, false, 0);
        });
    }
}
