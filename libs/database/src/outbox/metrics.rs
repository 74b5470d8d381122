//! Metrics of the outbox.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SchemaLabel {
    schema: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    schema: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    schema: &'static str,
    outcome: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// The metrics of all outboxes of a process.
#[derive(Clone, Default)]
pub(super) struct Families {
    oldest: Family<SchemaLabel, Seconds>,
    rows: Family<StateLabels, Gauge>,
    deliveries: Family<OutcomeLabels, Counter>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self::default();
        let oldest = "Age of the oldest pending outbox message";
        registry.register_with_unit("outbox_oldest_age", oldest, Unit::Seconds, families.oldest.clone());
        let rows = "Outbox messages by state: pending or dead_lettered";
        registry.register("outbox_rows", rows, families.rows.clone());
        let deliveries = "Delivery attempts by outcome: delivered, retried or dead_lettered";
        registry.register("outbox_deliveries", deliveries, families.deliveries.clone());
        families
    }
}

/// The metrics of one outbox.
#[derive(Clone)]
pub(super) struct OutboxMetrics {
    pub(super) oldest: Seconds,
    pub(super) pending: Gauge,
    pub(super) dead_lettered: Gauge,
    pub(super) deliveries: Deliveries,
}

#[derive(Clone)]
pub(super) struct Deliveries {
    pub(super) delivered: Counter,
    pub(super) retried: Counter,
    pub(super) dead_lettered: Counter,
}

impl OutboxMetrics {
    pub(super) fn new(families: &Families, schema: &'static str) -> Self {
        let rows = |state| families.rows.get_or_create_owned(&StateLabels { schema, state });
        let deliveries =
            |outcome| families.deliveries.get_or_create_owned(&OutcomeLabels { schema, outcome });
        Self {
            oldest: families.oldest.get_or_create_owned(&SchemaLabel { schema }),
            pending: rows("pending"),
            dead_lettered: rows("dead_lettered"),
            deliveries: Deliveries {
                delivered: deliveries("delivered"),
                retried: deliveries("retried"),
                dead_lettered: deliveries("dead_lettered"),
            },
        }
    }
}
