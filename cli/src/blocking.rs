//! Work that waits for a file, a pipe or a terminal: on a thread of its own, so that signals are heard meanwhile.

use crate::error::{Fault, Result};

/// Does the work and waits for it. When the command is interrupted, nobody waits any longer.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Fault::Defect.because(error.to_string()))?
}
