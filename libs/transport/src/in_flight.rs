//! The number of sends in flight, for programs that stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// Counts sends. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<watch::Sender<usize>>);

/// A send in flight, until it is dropped.
pub(crate) struct SendInFlight(InFlight);

impl InFlight {
    pub(crate) fn start(&self) -> SendInFlight {
        self.0.send_modify(|count| *count += 1);
        SendInFlight(self.clone())
    }

    /// Waits until no send is in flight, up to this time. Returns the number of those that are.
    pub(crate) async fn wait(&self, limit: Duration) -> usize {
        let mut count = self.0.subscribe();
        // Timers need a runtime.
        if *self.0.borrow() > 0 && Handle::try_current().is_ok() {
            // An error is the end of the time: the sender exists.
            let _ = timeout(limit, count.wait_for(|count| *count == 0)).await;
        }
        *self.0.borrow()
    }
}

impl Drop for SendInFlight {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
