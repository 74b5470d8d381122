//! The metrics of the hash pool.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds, around the duration of a hash of about 0.1 s.
const BUCKETS: [f64; 9] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0];

/// Metrics of the pool. They do not distinguish passwords or results.
pub(crate) struct HashMetrics {
    pub(crate) duration: Histogram,
    pub(crate) memory: Gauge,
    pub(crate) queue_length: Gauge,
    pub(crate) shed: Counter,
    pub(crate) workers: Gauge,
}

impl Default for HashMetrics {
    fn default() -> Self {
        Self {
            duration: Histogram::new(BUCKETS),
            memory: Gauge::default(),
            queue_length: Gauge::default(),
            shed: Counter::default(),
            workers: Gauge::default(),
        }
    }
}

impl HashMetrics {
    /// Registers the metrics in the registry of the process.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let Self { duration, memory, queue_length, shed, workers } = self;
        let help = "Time that a worker takes to hash or verify a password";
        registry.register_with_unit("hash_duration", help, Unit::Seconds, duration.clone());
        let help = "Memory of the hash workers";
        registry.register_with_unit("hash_memory", help, Unit::Bytes, memory.clone());
        registry.register("hash_queue_length", "Queued hash requests", queue_length.clone());
        registry.register(
            "hash_shed",
            "Hash requests rejected because no worker was free in time",
            shed.clone(),
        );
        registry.register("hash_workers", "Number of hash workers", workers.clone());
    }

    pub(crate) fn set_queue_length(&self, length: usize) {
        self.queue_length.set(i64::try_from(length).unwrap_or(i64::MAX));
    }
}
