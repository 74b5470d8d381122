//! What a process shows of its connections.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use service::telemetry::Metrics;

use crate::Database;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    service: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    service: &'static str,
    state: &'static str,
}

#[derive(Clone, Default)]
struct Connections {
    now: Family<State, Gauge>,
    max: Family<Of, Gauge>,
}

impl Database {
    /// Shows how many connections there are and what they do.
    pub fn measure(&self, service: &'static str, metrics: &Metrics) {
        let Connections { now, max } = metrics.shared(Connections::register);
        max.get_or_create(&Of { service }).set(self.pool().options().get_max_connections().into());
        let pool = self.pool().clone();
        let set = move |state, count| now.get_or_create(&State { service, state }).set(count);
        metrics.at_scrape(move || {
            let idle = i64::try_from(pool.num_idle()).unwrap_or(i64::MAX);
            set("idle", idle);
            // The two are read one after the other.
            set("busy", (i64::from(pool.size()) - idle).max(0));
        });
    }
}

impl Connections {
    fn register(registry: &mut Registry) -> Self {
        let connections = Self::default();
        let now = "Connections to Postgres, idle or busy";
        registry.register("database_connections", now, connections.now.clone());
        let max = "How many connections to Postgres there may be";
        registry.register("database_connections_max", max, connections.max.clone());
        connections
    }
}
