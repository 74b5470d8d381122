//! Keeps a link to the broker.

use std::sync::Arc;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::link::Dialer;
use crate::connect::back_off;

/// Dials, serves the link until it breaks, and dials again; ends when told to stop.
pub(super) async fn run(shared: Arc<Shared>, dialer: Dialer, stop: CancellationToken) {
    let mut attempt = 0;
    while !stop.is_cancelled() {
        attempt += 1;
        let dialled = async {
            sleep(back_off(attempt)).await;
            dialer.dial().await
        };
        let Some(dialled) = stop.run_until_cancelled(dialled).await else {
            return;
        };
        match dialled {
            Ok((link, receiver)) => {
                link.run(&shared, receiver, &stop).await;
                // One that breaks at once is dialled again with a pause, not in a circle.
                attempt = 1;
                if !stop.is_cancelled() {
                    tracing::warn!(stream = &*shared.stream, "the connection to the broker ended");
                }
            }
            Err(fault) if attempt == 1 => tracing::warn!(error = ?fault, "the broker cannot be reached"),
            Err(fault) => tracing::debug!(error = ?fault, attempt, "the broker cannot be reached"),
        }
    }
}
