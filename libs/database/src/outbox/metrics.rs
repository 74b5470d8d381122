//! Metrics of the outbox.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RelayLabels {
    schema: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    schema: &'static str,
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    schema: &'static str,
    kind: &'static str,
    outcome: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// The metrics of all outboxes of a process. The label `kind` names a relay.
#[derive(Clone, Default)]
pub(super) struct OutboxMetrics {
    oldest: Family<RelayLabels, Seconds>,
    rows: Family<StateLabels, Gauge>,
    deliveries: Family<OutcomeLabels, Counter>,
}

impl OutboxMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let oldest = "Age of the oldest pending outbox message";
        registry.register_with_unit("outbox_oldest_age", oldest, Unit::Seconds, metrics.oldest.clone());
        let rows = "Outbox messages by state: pending or dead_lettered";
        registry.register("outbox_rows", rows, metrics.rows.clone());
        let deliveries = "Delivery attempts by outcome: delivered, retried, postponed or dead_lettered";
        registry.register("outbox_deliveries", deliveries, metrics.deliveries.clone());
        metrics
    }

    /// The metrics of one relay.
    pub(super) fn of_relay(&self, schema: &'static str, kind: &'static str) -> RelayMetrics {
        let rows = |state| self.rows.get_or_create_owned(&StateLabels { schema, kind, state });
        let deliveries =
            |outcome| self.deliveries.get_or_create_owned(&OutcomeLabels { schema, kind, outcome });
        RelayMetrics {
            oldest: self.oldest.get_or_create_owned(&RelayLabels { schema, kind }),
            pending: rows("pending"),
            dead_lettered_rows: rows("dead_lettered"),
            delivered: deliveries("delivered"),
            retried: deliveries("retried"),
            postponed: deliveries("postponed"),
            dead_lettered: deliveries("dead_lettered"),
        }
    }
}

/// The metrics of one relay.
pub(super) struct RelayMetrics {
    pub(super) oldest: Seconds,
    pub(super) pending: Gauge,
    pub(super) dead_lettered_rows: Gauge,
    pub(super) delivered: Counter,
    pub(super) retried: Counter,
    pub(super) postponed: Counter,
    pub(super) dead_lettered: Counter,
}
