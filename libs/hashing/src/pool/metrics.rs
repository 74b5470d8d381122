//! What a pool counts. Nothing of it tells one password, or one kind of answer, from another.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds, around the tenth of a second that a hash takes.
const BUCKETS: [f64; 9] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0];

pub(super) struct HashMetrics {
    pub(super) seconds: Histogram,
    pub(super) queued: Gauge,
    pub(super) shed: Counter,
    pub(super) workers: Gauge,
}

impl Default for HashMetrics {
    fn default() -> Self {
        Self {
            seconds: Histogram::new(BUCKETS),
            queued: Gauge::default(),
            shed: Counter::default(),
            workers: Gauge::default(),
        }
    }
}

impl HashMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let seconds = "Time that a worker took for a hash or a verification";
        registry.register_with_unit("hash_duration", seconds, Unit::Seconds, self.seconds.clone());
        registry.register("hash_queue_length", "Requests that wait for a worker", self.queued.clone());
        let shed = "Requests that were refused because no worker became free in time";
        registry.register("hash_shed", shed, self.shed.clone());
        registry.register("hash_workers", "Hashes that can run at once", self.workers.clone());
    }
}
