//! Metrics of consumers: how far each is behind, and whether its login is suspended. Each replica measures all of them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bus::{Connection, Durable, DurableError, Durables, EventStreams};
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use service::telemetry::Metrics;
use service::{Clock, Tasks, chain};

/// Interval of measurements.
const INTERVAL: Duration = Duration::from_secs(15);
/// Consumers with metrics, which bounds the number of series. The others are counted.
const MAX_CONSUMERS: usize = 500;

type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// The gauges, one series for each consumer.
struct ConsumerMetrics {
    pending: Family<Labels, Gauge>,
    unacknowledged: Family<Labels, Gauge>,
    redelivered: Family<Labels, Gauge>,
    oldest: Family<Labels, Gauge>,
    suspended: Family<Labels, Gauge>,
    unmeasured: Gauge,
    known: HashSet<String>,
}

/// Starts the task that measures.
pub(crate) fn start(
    connection: Connection,
    streams: EventStreams,
    retention: Duration,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    let kept: Gauge =
        metrics.metric("event_retention_seconds", "Time until an event is deleted from the stream", &[]);
    kept.set(i64::try_from(retention.as_secs()).unwrap_or(i64::MAX));
    let measured = Arc::new(Mutex::new(ConsumerMetrics::new(metrics)));
    tasks.every("metrics of consumers", INTERVAL, move || {
        let (connection, clock, measured) = (connection.clone(), Arc::clone(&clock), Arc::clone(&measured));
        async move {
            let found = match Durables::over(&connection, streams).await {
                Ok(durables) => measure(&durables, &*clock).await.map_err(|error| chain(&error)),
                Err(error) => Err(error.to_string()),
            };
            match found {
                Ok((consumers, count)) => measured.lock().set(&consumers, count, clock.now()),
                // The last values remain.
                Err(error) => tracing::debug!(error, "failed to measure consumers"),
            }
        }
    });
}

/// Returns the first consumers, those that are suspended before the others and then by name, each with the age of its oldest unread
/// event, and the number of all.
async fn measure(
    durables: &Durables,
    clock: &dyn Clock,
) -> Result<(Vec<(Durable, Duration)>, usize), DurableError> {
    let mut all = durables.list().await?;
    all.sort_by_key(|durable| !durable.is_suspended(clock.now()));
    let count = all.len();
    let mut measured = Vec::new();
    for durable in all.into_iter().take(MAX_CONSUMERS) {
        let age = durables.oldest_unread_age(&durable, clock.now()).await?;
        measured.push((durable, age));
    }
    Ok((measured, count))
}

impl ConsumerMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            pending: metrics
                .family("consumer_pending_events", "Events that were not delivered to the consumer yet"),
            unacknowledged: metrics.family(
                "consumer_unacknowledged_events",
                "Events that were delivered to the consumer and not acknowledged yet",
            ),
            redelivered: metrics.family(
                "consumer_redelivered_events",
                "Unacknowledged events that were delivered to the consumer more than once",
            ),
            oldest: metrics.family(
                "consumer_oldest_unread_seconds",
                "Age of the oldest event that the consumer has not acknowledged, 0 without such an event",
            ),
            suspended: metrics.family(
                "consumer_suspended",
                "Whether the login of the consumer is suspended, because it sent too many messages: 1 or 0",
            ),
            unmeasured: metrics.metric(
                "consumers_unmeasured",
                "Consumers above the maximum of 500, without metrics",
                &[],
            ),
            known: HashSet::new(),
        }
    }

    fn set(&mut self, consumers: &[(Durable, Duration)], count: usize, now: DateTime<Utc>) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (consumer, age) in consumers {
            let labels = labels(&consumer.name);
            self.pending.get_or_create(&labels).set(number(consumer.pending));
            self.unacknowledged.get_or_create(&labels).set(number(consumer.ack_pending));
            self.redelivered.get_or_create(&labels).set(number(consumer.redelivered));
            self.oldest.get_or_create(&labels).set(number(age.as_secs()));
            self.suspended.get_or_create(&labels).set(consumer.is_suspended(now).into());
        }
        let measured: HashSet<_> = consumers.iter().map(|(consumer, _)| consumer.name.clone()).collect();
        for deleted in self.known.difference(&measured) {
            let labels = labels(deleted);
            for family in
                [&self.pending, &self.unacknowledged, &self.redelivered, &self.oldest, &self.suspended]
            {
                family.remove(&labels);
            }
        }
        self.unmeasured.set(number((count - consumers.len().min(count)) as u64));
        self.known = measured;
    }
}

fn labels(consumer: &str) -> Labels {
    vec![("consumer", Cow::Owned(consumer.to_owned()))]
}
