//! Metrics of the database connection.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use service::Tasks;
use service::telemetry::Metrics;

use crate::Database;

/// Interval between probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServiceLabel {
    service: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    service: &'static str,
    state: &'static str,
}

#[derive(Clone, Default)]
struct DatabaseMetrics {
    available: Family<ServiceLabel, Gauge>,
    connections: Family<StateLabels, Gauge>,
    max: Family<ServiceLabel, Gauge>,
}

impl Database {
    /// Registers the metrics of the connections and the outbox, and starts the availability probe.
    #[must_use]
    pub fn measured(self, metrics: &Metrics, tasks: &Tasks) -> Self {
        let service = self.schema();
        let DatabaseMetrics { available, connections, max } = metrics.shared(DatabaseMetrics::register);
        let available = available.get_or_create_owned(&ServiceLabel { service });
        tasks.spawn("database probe", self.clone().probe(available, tasks.clone()));
        max.get_or_create(&ServiceLabel { service }).set(self.pool().options().get_max_connections().into());
        let pool = self.pool().clone();
        let set = move |state, count| connections.get_or_create(&StateLabels { service, state }).set(count);
        metrics.at_scrape(move || {
            let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
            set("idle", idle);
            // The pool changes between the two reads.
            set("busy", (i64::from(pool.size()) - idle).max(0));
        });
        self.map_outbox(|outbox| outbox.measured(metrics))
    }

    async fn probe(self, available: Gauge, tasks: Tasks) {
        while !tasks.stopping().is_cancelled() {
            let answered = sqlx::query("select 1").execute(self.pool()).await.is_ok();
            available.set(answered.into());
            tokio::select! {
                () = tokio::time::sleep(PROBE_INTERVAL) => {}
                () = tasks.stopping().cancelled() => {}
            }
        }
    }
}

impl DatabaseMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let available = "Whether Postgres replied to the last probe: 1 or 0";
        registry.register("database_available", available, metrics.available.clone());
        let connections = "Postgres connections by state: idle or busy";
        registry.register("database_connections", connections, metrics.connections.clone());
        let max = "Maximum number of Postgres connections";
        registry.register("database_connections_max", max, metrics.max.clone());
        metrics
    }
}
