//! Metrics of the operator.

use prometheus_client::metrics::gauge::Gauge;
use service::telemetry::Metrics;

use crate::guard::{Guard, Kind};
use crate::plan::Plan;
use crate::status::Progress;

/// Whether this replica writes, and the number of resources by state.
#[derive(Clone)]
pub(crate) struct OperatorMetrics {
    metrics: Metrics,
    pub(crate) is_leader: Gauge,
}

impl OperatorMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let is_leader =
            metrics.metric("operator_leader", "Whether this replica holds the lease: 1 or 0", &[]);
        Self { metrics: metrics.clone(), is_leader }
    }

    /// Counts a write.
    pub(crate) fn count_write(&self, failed: bool) {
        let result = if failed { "failed" } else { "written" };
        let help = "Writes to identity, session and the API server";
        let writes: prometheus_client::metrics::counter::Counter =
            self.metrics.metric("operator_writes", help, &[("result", result)]);
        writes.inc();
    }

    /// Counts a tenant that was released, or a producer that was deleted.
    pub(crate) fn count_release(&self, kind: Kind) {
        let help = "Released tenants and deleted producers, because the operator did not find the resource or it is not allowed";
        let releases: prometheus_client::metrics::counter::Counter =
            self.metrics.metric("operator_releases", help, &[("kind", kind.name())]);
        releases.inc();
    }

    /// Sets the numbers of held releases.
    pub(crate) fn set_held(&self, guard: &Guard) {
        for kind in [Kind::Tenant, Kind::Producer] {
            let help = "Releases that wait for a confirmation in the configuration";
            let gauge: Gauge = self.metrics.metric("operator_held_releases", help, &[("kind", kind.name())]);
            gauge.set(i64::try_from(guard.held(kind)).unwrap_or(i64::MAX));
        }
    }

    /// Sets the numbers of resources.
    pub(crate) fn set_resources(&self, plan: &Plan) {
        for progress in [Progress::Ready, Progress::Reconciling, Progress::Stalled] {
            let tenants = plan.tenants.iter().filter(|(_, state)| state.progress == progress).count();
            let producers = plan.producers.iter().filter(|(_, state)| state.progress == progress).count();
            for (kind, count) in [(Kind::Tenant.name(), tenants), (Kind::Producer.name(), producers)] {
                let labels = [("kind", kind), ("state", state_label(progress))];
                let gauge: Gauge = self.metrics.metric("operator_resources", "Resources by state", &labels);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    /// No resources are counted by a replica that does not write.
    pub(crate) fn clear(&self) {
        self.is_leader.set(0);
        self.set_resources(&Plan::default());
        self.set_held(&Guard::default());
    }
}

fn state_label(progress: Progress) -> &'static str {
    match progress {
        Progress::Ready => "ready",
        Progress::Reconciling => "reconciling",
        Progress::Stalled => "stalled",
    }
}
