//! Connections that are replaced before their next use: those with an old credential, and those to another server than the current one.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;

/// The connections that were opened before a time. Clones share the time.
#[derive(Clone, Default)]
pub(crate) struct Retired(Arc<RwLock<Before>>);

#[derive(Default)]
struct Before {
    time: Option<Instant>,
    /// The server of the last connection: the time of its start.
    server: Option<String>,
}

impl Retired {
    /// Returns whether a connection that was opened at this time is one of them.
    pub(crate) fn contains(&self, opened_at: Instant) -> bool {
        self.0.read().time.is_some_and(|time| opened_at < time)
    }

    /// Includes all connections that were opened before now.
    pub(crate) fn include_all(&self) {
        self.0.write().time = Some(Instant::now());
    }

    /// Includes all connections that were opened before this one, if it reached another server than the last one. A connection to a
    /// former primary that still runs can work for minutes.
    pub(crate) fn include_other_servers(&self, server: &str, opened_at: Instant) {
        let mut before = self.0.write();
        if before.time.is_none_or(|time| time <= opened_at)
            && before.server.replace(server.to_owned()).is_some_and(|last| last != server)
        {
            before.time = Some(opened_at);
        }
    }
}
