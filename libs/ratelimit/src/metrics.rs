//! What the limits decided.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use service::telemetry::Metrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Decided {
    limit: &'static str,
    decision: &'static str,
}

/// Decisions of all limits in a process, by the limit's name.
#[derive(Clone, Debug, Default)]
pub struct Decisions(Family<Decided, Counter>);

impl Decisions {
    /// The counters of a process.
    pub fn of(metrics: &Metrics) -> Self {
        metrics.shared(|registry: &mut Registry| {
            let decisions = Self::default();
            registry.register("limiter_decisions", "What limits decided about requests", decisions.0.clone());
            decisions
        })
    }

    /// A request was let in.
    pub fn admitted(&self, limit: &'static str) {
        self.count(limit, "admitted");
    }

    /// A request was refused.
    pub fn refused(&self, limit: &'static str) {
        self.count(limit, "refused");
    }

    /// A request could not be counted.
    pub fn unavailable(&self, limit: &'static str) {
        self.count(limit, "unavailable");
    }

    fn count(&self, limit: &'static str, decision: &'static str) {
        self.0.get_or_create(&Decided { limit, decision }).inc();
    }
}
