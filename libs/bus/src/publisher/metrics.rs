//! Metrics of publication: duration, outcomes, messages in flight and stream size.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Ack, InFlight, PublishError};

/// Upper bounds in seconds. The last one is the publish timeout of ingest.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StreamLabel {
    stream: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    stream: String,
    outcome: &'static str,
}

/// The metrics of all publishers of a process. The default value is not registered.
#[derive(Clone, Debug)]
pub(super) struct PublishMetrics {
    seconds: Family<StreamLabel, Histogram, fn() -> Histogram>,
    messages: Family<OutcomeLabels, Counter>,
    in_flight: Family<StreamLabel, Gauge>,
    in_flight_bytes: Family<StreamLabel, Gauge>,
    available: Family<StreamLabel, Gauge>,
    stored: Family<StreamLabel, Gauge>,
    limit: Family<StreamLabel, Gauge>,
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
    /// Registers the metrics.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let seconds = "Time from submitting the messages of a request to the outcome of the last one";
        registry.register_with_unit("publish_duration", seconds, Unit::Seconds, metrics.seconds.clone());
        registry.register(
            "publish_messages",
            "Messages submitted to the stream by outcome",
            metrics.messages.clone(),
        );
        let in_flight = "Messages waiting for an acknowledgement of the stream";
        registry.register("publish_in_flight_messages", in_flight, metrics.in_flight.clone());
        let bytes = "Size of the messages waiting for an acknowledgement of the stream";
        registry.register_with_unit("publish_in_flight", bytes, Unit::Bytes, metrics.in_flight_bytes.clone());
        let available = "Whether the stream replied to the last probe: 1 or 0";
        registry.register("publish_available", available, metrics.available.clone());
        let stored = "Size of the messages stored in the stream";
        registry.register_with_unit("stream_stored", stored, Unit::Bytes, metrics.stored.clone());
        let limit = "Size at which the stream rejects messages; -1 if unlimited";
        registry.register_with_unit("stream_limit", limit, Unit::Bytes, metrics.limit.clone());
        metrics
    }

    pub(super) fn of_stream(&self, stream: &str) -> StreamMetrics {
        let label = StreamLabel { stream: stream.to_owned() };
        let messages = |outcome| {
            let StreamLabel { stream } = label.clone();
            self.messages.get_or_create_owned(&OutcomeLabels { stream, outcome })
        };
        StreamMetrics {
            seconds: self.seconds.get_or_create_owned(&label),
            accepted: messages("accepted"),
            duplicate: messages("duplicate"),
            overloaded: messages("overloaded"),
            unavailable: messages("unavailable"),
            stream_full: messages("stream_full"),
            ack_timeout: messages("ack_timeout"),
            misconfigured: messages("misconfigured"),
            in_flight: self.in_flight.get_or_create_owned(&label),
            in_flight_bytes: self.in_flight_bytes.get_or_create_owned(&label),
            available: self.available.get_or_create_owned(&label),
            stored: self.stored.get_or_create_owned(&label),
            limit: self.limit.get_or_create_owned(&label),
        }
    }
}

/// The metrics of one stream.
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
    /// Returns the counter of this outcome.
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

    pub(super) fn set(&self, in_flight: InFlight, available: bool) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.in_flight.set(number(in_flight.messages));
        self.in_flight_bytes.set(number(in_flight.bytes));
        self.available.set(available.into());
    }

    /// Sets size and maximum size of the stream.
    pub(super) fn set_size(&self, stored: u64, limit: i64) {
        self.stored.set(i64::try_from(stored).unwrap_or(i64::MAX));
        self.limit.set(limit);
    }
}
