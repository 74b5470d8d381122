//! Counts the sessions that live, for whoever reads the metrics.

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use service::Tasks;

use crate::app::App;
use crate::store::session;

/// A count reads an index entry a session: rarely enough to cost nothing, often enough for a picture of the day.
const EVERY: Duration = Duration::from_secs(30);

/// Puts the count into the registry.
pub(crate) fn register(live: &Gauge, registry: &mut Registry) {
    registry.register("sessions_live", "Sessions that were neither revoked nor have run out", live.clone());
}

/// Counts until the tasks are told to stop. While the database is away, the last count stands.
pub(crate) async fn run(app: App, live: Gauge, tasks: Tasks) {
    while !tasks.stopping().is_cancelled() {
        match session::count_live(&app.database, app.clock.now()).await {
            Ok(count) => {
                live.set(count);
            }
            Err(error) => tracing::debug!(%error, "the sessions cannot be counted"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = tasks.stopping().cancelled() => {}
        }
    }
}
