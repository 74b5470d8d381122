//! What the relay of an outbox shows.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    schema: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    schema: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    schema: &'static str,
    outcome: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// The metrics of all outboxes of a process.
#[derive(Clone, Default)]
pub(super) struct Families {
    oldest: Family<Of, Seconds>,
    rows: Family<State, Gauge>,
    deliveries: Family<Outcome, Counter>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self::default();
        let oldest = "How long the oldest effect has been waiting; parked ones do not wait";
        registry.register_with_unit("outbox_oldest_age", oldest, Unit::Seconds, families.oldest.clone());
        let rows = "Effects that are still to come about (waiting), or that a person must look at (parked)";
        registry.register("outbox_rows", rows, families.rows.clone());
        let deliveries = "Attempts to bring an effect about: done, to be tried again later, or parked";
        registry.register("outbox_deliveries", deliveries, families.deliveries.clone());
        families
    }
}

/// The metrics of one outbox.
#[derive(Clone)]
pub(super) struct OutboxMetrics {
    pub(super) oldest: Seconds,
    pub(super) waiting: Gauge,
    pub(super) parked: Gauge,
    pub(super) delivered: Deliveries,
}

#[derive(Clone)]
pub(super) struct Deliveries {
    pub(super) done: Counter,
    pub(super) later: Counter,
    pub(super) parked: Counter,
}

impl OutboxMetrics {
    pub(super) fn new(families: &Families, schema: &'static str) -> Self {
        let rows = |state| families.rows.get_or_create_owned(&State { schema, state });
        let deliveries = |outcome| families.deliveries.get_or_create_owned(&Outcome { schema, outcome });
        Self {
            oldest: families.oldest.get_or_create_owned(&Of { schema }),
            waiting: rows("waiting"),
            parked: rows("parked"),
            delivered: Deliveries {
                done: deliveries("done"),
                later: deliveries("later"),
                parked: deliveries("parked"),
            },
        }
    }
}
