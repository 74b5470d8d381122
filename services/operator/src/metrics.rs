//! Metrics of the operator.

use prometheus_client::metrics::gauge::Gauge;
use service::telemetry::Metrics;

use crate::guard::Guard;
use crate::plan::Plan;
use crate::status::{Kind, Progress, State, Subject};

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
        let help = "Writes to identity, session, ingest and the API server";
        let writes: prometheus_client::metrics::counter::Counter =
            self.metrics.metric("operator_writes", help, &[("result", result)]);
        writes.inc();
    }

    /// Counts a tenant that was released, or a producer or consumer that was deleted.
    pub(crate) fn count_release(&self, kind: Kind) {
        let help = "Released tenants, deleted producers and consumers, because the operator did not find the resource or it is not allowed";
        let releases: prometheus_client::metrics::counter::Counter =
            self.metrics.metric("operator_releases", help, &[("kind", kind.name())]);
        releases.inc();
    }

    /// Sets the numbers of held releases.
    pub(crate) fn set_held(&self, guard: &Guard) {
        for kind in Kind::ALL {
            let help = "Releases that wait for a confirmation in the configuration";
            let gauge: Gauge = self.metrics.metric("operator_held_releases", help, &[("kind", kind.name())]);
            gauge.set(i64::try_from(guard.held(kind)).unwrap_or(i64::MAX));
        }
    }

    /// Sets the numbers of resources.
    pub(crate) fn set_resources(&self, plan: &Plan) {
        for progress in [Progress::Ready, Progress::Reconciling, Progress::Stalled] {
            for kind in Kind::ALL {
                let is_counted =
                    |subject: &Subject, state: &State| subject.kind() == kind && state.progress == progress;
                let count = plan.states.iter().filter(|(subject, state)| is_counted(subject, state)).count();
                let labels = [("kind", kind.name()), ("state", state_label(progress))];
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
