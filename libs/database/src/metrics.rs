//! What a process shows of its database: whether it answers, and how many connections there are.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use service::Tasks;
use service::telemetry::Metrics;

use crate::Database;

/// How often the database is asked whether it is there.
const PROBE: Duration = Duration::from_secs(5);

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
struct DatabaseMetrics {
    available: Family<Of, Gauge>,
    now: Family<State, Gauge>,
    max: Family<Of, Gauge>,
}

impl Database {
    /// Shows whether the database answers, how many connections there are and what they do.
    pub fn measure(&self, service: &'static str, metrics: &Metrics, tasks: &Tasks) {
        let DatabaseMetrics { available, now, max } = metrics.shared(DatabaseMetrics::register);
        let available = available.get_or_create_owned(&Of { service });
        tasks.spawn("database probe", self.clone().probe(available, tasks.clone()));
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

    async fn probe(self, available: Gauge, tasks: Tasks) {
        while !tasks.stopping().is_cancelled() {
            let answered = sqlx::query("select 1").execute(self.pool()).await.is_ok();
            available.set(answered.into());
            tokio::select! {
                () = tokio::time::sleep(PROBE) => {}
                () = tasks.stopping().cancelled() => {}
            }
        }
    }
}

impl DatabaseMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let available = "Whether Postgres answered when it was last asked: 1 or 0";
        registry.register("database_available", available, metrics.available.clone());
        let now = "Connections to Postgres, idle or busy";
        registry.register("database_connections", now, metrics.now.clone());
        let max = "How many connections to Postgres there may be";
        registry.register("database_connections_max", max, metrics.max.clone());
        metrics
    }
}
