//! Metrics of the outbox.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use service::telemetry::Metrics;

/// The metrics of one relay.
pub(super) struct RelayMetrics {
    pub(super) oldest: Gauge<f64, AtomicU64>,
    pub(super) pending: Gauge,
    pub(super) dead_lettered_rows: Gauge,
    /// By [`State`](super::queue::State), in its order.
    pub(super) deliveries: [Counter; 4],
}

impl RelayMetrics {
    /// Registers the metrics. The label `kind` names the relay.
    pub(super) fn new(metrics: &Metrics, schema: &str, kind: &str) -> Self {
        let (schema, kind) = (("schema", schema), ("kind", kind));
        let oldest = "Age of the oldest pending outbox message";
        let rows = |state| {
            let help = "Outbox messages by state: pending or dead_lettered";
            metrics.metric("outbox_rows", help, &[schema, kind, ("state", state)])
        };
        let deliveries = |outcome| {
            let help = "Delivery attempts by outcome: delivered, retried, postponed or dead_lettered";
            metrics.metric("outbox_deliveries", help, &[schema, kind, ("outcome", outcome)])
        };
        Self {
            oldest: metrics.metric("outbox_oldest_age_seconds", oldest, &[schema, kind]),
            pending: rows("pending"),
            dead_lettered_rows: rows("dead_lettered"),
            deliveries: ["delivered", "retried", "postponed", "dead_lettered"].map(deliveries),
        }
    }
}
