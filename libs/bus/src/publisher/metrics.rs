//! What publication shows: how long it takes, how it ends, and how much is under way.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Ack, Limits, PublishError};

/// Upper bounds in seconds, up to the deadline that ingest sets.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    stream: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    stream: String,
    outcome: &'static str,
}

/// The metrics of all publishers of a process. By default they are counted for nobody.
#[derive(Clone, Debug)]
pub struct PublishMetrics {
    seconds: Family<Of, Histogram, fn() -> Histogram>,
    messages: Family<Outcome, Counter>,
    in_flight: Family<Of, Gauge>,
    in_flight_bytes: Family<Of, Gauge>,
    available: Family<Of, Gauge>,
    stored: Family<Of, Gauge>,
    limit: Family<Of, Gauge>,
}

impl Default for PublishMetrics {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            messages: Family::default(),
            in_flight: Family::default(),
            in_flight_bytes: Family::default(),
            available: Family::default(),
            stored: Family::default(),
            limit: Family::default(),
        }
    }
}

impl PublishMetrics {
    /// Counted for whoever reads the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let seconds = "Time from handing over the messages of a request to the last one's outcome";
        registry.register_with_unit("publish_duration", seconds, Unit::Seconds, metrics.seconds.clone());
        registry.register("publish_messages", "Messages by what became of them", metrics.messages.clone());
        let in_flight = "Messages that wait for the stream's acknowledgement";
        registry.register("publish_in_flight_messages", in_flight, metrics.in_flight.clone());
        let bytes = "Size of the messages that wait for the stream's acknowledgement";
        registry.register_with_unit("publish_in_flight", bytes, Unit::Bytes, metrics.in_flight_bytes.clone());
        let available = "Whether publishing can work now: 1 or 0";
        registry.register("publish_available", available, metrics.available.clone());
        let stored = "Size of what the stream holds";
        registry.register_with_unit("stream_stored", stored, Unit::Bytes, metrics.stored.clone());
        let limit = "Size at which the stream is full and refuses what comes; -1 when it never is";
        registry.register_with_unit("stream_limit", limit, Unit::Bytes, metrics.limit.clone());
        metrics
    }

    pub(super) fn of(&self, stream: &str) -> StreamMetrics {
        let of = Of { stream: stream.to_owned() };
        let messages = |outcome| {
            let Of { stream } = of.clone();
            self.messages.get_or_create_owned(&Outcome { stream, outcome })
        };
        StreamMetrics {
            seconds: self.seconds.get_or_create_owned(&of),
            accepted: messages("accepted"),
            duplicate: messages("duplicate"),
            overloaded: messages("overloaded"),
            unavailable: messages("unavailable"),
            stream_full: messages("stream_full"),
            ack_timeout: messages("ack_timeout"),
            misconfigured: messages("misconfigured"),
            in_flight: self.in_flight.get_or_create_owned(&of),
            in_flight_bytes: self.in_flight_bytes.get_or_create_owned(&of),
            available: self.available.get_or_create_owned(&of),
            stored: self.stored.get_or_create_owned(&of),
            limit: self.limit.get_or_create_owned(&of),
        }
    }
}

/// The metrics of one stream, found once.
pub(super) struct StreamMetrics {
    pub(super) seconds: Histogram,
    accepted: Counter,
    duplicate: Counter,
    overloaded: Counter,
    unavailable: Counter,
    stream_full: Counter,
    ack_timeout: Counter,
    misconfigured: Counter,
    in_flight: Gauge,
    in_flight_bytes: Gauge,
    available: Gauge,
    stored: Gauge,
    limit: Gauge,
}

impl StreamMetrics {
    /// Where messages with this outcome are counted.
    pub(super) fn messages(&self, outcome: &Result<Ack, PublishError>) -> &Counter {
        match outcome {
            Ok(Ack { duplicate: false, .. }) => &self.accepted,
            Ok(Ack { duplicate: true, .. }) => &self.duplicate,
            Err(PublishError::Overloaded) => &self.overloaded,
            Err(PublishError::Unavailable) => &self.unavailable,
            Err(PublishError::StreamFull) => &self.stream_full,
            Err(PublishError::AckTimeout) => &self.ack_timeout,
            Err(PublishError::Misconfigured { .. }) => &self.misconfigured,
        }
    }

    pub(super) fn show(&self, in_flight: Limits, available: bool) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.in_flight.set(number(in_flight.messages));
        self.in_flight_bytes.set(number(in_flight.bytes));
        self.available.set(available.into());
    }

    /// Shows how full the stream is; what it last said stands while it says nothing.
    pub(super) fn show_fill(&self, stored: u64, limit: i64) {
        self.stored.set(i64::try_from(stored).unwrap_or(i64::MAX));
        self.limit.set(limit);
    }
}
