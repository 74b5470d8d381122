//! Metrics of publication: duration and messages in flight of a publisher, outcomes and size of each of its streams. Several
//! publishers of one stream share them: counters and messages in flight are sums, and availability is the minimum.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use service::telemetry::Metrics;

use super::{Ack, PublishError, Publisher};

/// Upper bounds in seconds. The last one is the publish timeout of ingest.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Returns the durations of a publisher. `name` is the stream, or the common prefix of several streams.
pub(super) fn durations(metrics: &Metrics, name: &str) -> Histogram {
    metrics.histogram(
        "publish_duration_seconds",
        "Time from submitting the messages of a request to the outcome of the last one",
        &[("stream", name)],
        &BUCKETS,
    )
}

/// Registers the gauges of a publisher, which are measured at the scrape.
pub(super) fn register_gauges(metrics: &Metrics, publisher: &Publisher) {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let name = [("stream", &*publisher.0.name)];
    let measured = publisher.clone();
    metrics.aggregate_at_scrape(
        "publish_in_flight_messages",
        "Messages waiting for an acknowledgement of the stream",
        &name,
        0,
        move |sum| sum.saturating_add(number(measured.in_flight().messages)),
    );
    let measured = publisher.clone();
    metrics.aggregate_at_scrape(
        "publish_in_flight_bytes",
        "Size of the messages waiting for an acknowledgement of the stream",
        &name,
        0,
        move |sum| sum.saturating_add(number(measured.in_flight().bytes)),
    );
    for target in &publisher.0.targets {
        let measured = Arc::clone(target);
        metrics.aggregate_at_scrape(
            "publish_available",
            "Whether the stream replied to the last probe and acknowledges the messages of every publisher of the process: 1 or 0",
            &[("stream", &*target.name)],
            1,
            move |least| least.min(i64::from(measured.is_available())),
        );
    }
}

/// The metrics of one stream.
pub(super) struct StreamMetrics {
    accepted: Counter,
    duplicate: Counter,
    overloaded: Counter,
    unavailable: Counter,
    pub(super) stream_full: Counter,
    ack_timeout: Counter,
    misconfigured: Counter,
    stored: Gauge,
    limit: Gauge,
}

impl StreamMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &Metrics, stream: &str) -> Self {
        let stream = ("stream", stream);
        let messages = |outcome| {
            let help = "Messages for the stream by outcome";
            metrics.metric("publish_messages", help, &[stream, ("outcome", outcome)])
        };
        let gauge = |name, help| metrics.metric(name, help, &[stream]);
        Self {
            accepted: messages("accepted"),
            duplicate: messages("duplicate"),
            overloaded: messages("overloaded"),
            unavailable: messages("unavailable"),
            stream_full: messages("stream_full"),
            ack_timeout: messages("ack_timeout"),
            misconfigured: messages("misconfigured"),
            stored: gauge("stream_stored_bytes", "Size of the messages stored in the stream"),
            limit: gauge("stream_limit_bytes", "Size at which the stream rejects messages; -1 if unlimited"),
        }
    }

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

    /// Sets size and maximum size of the stream.
    pub(super) fn set_size(&self, stored: u64, limit: i64) {
        self.stored.set(i64::try_from(stored).unwrap_or(i64::MAX));
        self.limit.set(limit);
    }
}
