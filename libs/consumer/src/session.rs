//! One uninterrupted read of the durable. A lost delivery would break the order of a source, so a session ends when a delivery is
//! missing or the connection breaks, and the next one starts after everything unacknowledged is due again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{Context, ErrorCode, Message};
use futures::Stream;
use futures::stream::{FuturesUnordered, StreamExt as _, select_all, try_unfold};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

use crate::event::Event;
use crate::lanes::{Delivery, Lanes};
use crate::worker::Worker;
use crate::{BoxError, Config, ConsumerError, Failure};

/// Time that a request waits for events. A stopping consumer waits for the end of its last request, because the server can deliver
/// events to it until then.
const REQUEST_TIME: Duration = Duration::from_secs(2);

pub(crate) struct Session<'a> {
    config: &'a Config,
    /// The durable in each stream, and the number of its last delivery.
    consumers: Vec<(Consumer<pull::Config>, u64)>,
    /// Time after which the server delivers an unacknowledged event again.
    ack_wait: Duration,
}

impl<'a> Session<'a> {
    /// Waits until all events that were delivered earlier and not acknowledged are due again: they are delivered first, in order.
    pub(crate) async fn open(config: &'a Config, context: &Context) -> Result<Self, ConsumerError> {
        let mut consumers = Vec::new();
        let mut ack_wait = Duration::MAX;
        for stream in &config.streams {
            let mut consumer = find(context, stream, &config.name).await?;
            let info = consumer.cached_info();
            ack_wait = ack_wait.min(info.config.ack_wait);
            if info.num_ack_pending > 0 {
                tracing::info!(
                    consumer = config.name,
                    stream,
                    unacknowledged = info.num_ack_pending,
                    "waiting until unacknowledged events are delivered again"
                );
                sleep(info.config.ack_wait).await;
                consumer = find(context, stream, &config.name).await?;
            }
            let last = consumer.cached_info().delivered.consumer_sequence;
            consumers.push((consumer, last));
        }
        Ok(Self { config, consumers, ack_wait })
    }

    /// Returns after `stop`, when the events in flight are handled.
    ///
    /// # Errors
    /// A delivery is missing, or the connection broke. The session cannot continue.
    pub(crate) async fn run<H, F>(
        mut self,
        worker: &Worker<H>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        disconnects: &mut watch::Receiver<()>,
    ) -> Result<(), BoxError>
    where
        H: Fn(Arc<Event>) -> F,
        F: Future<Output = Result<(), Failure>>,
    {
        let (held, _) = watch::channel(0);
        let (is_stopping, _) = watch::channel(false);
        let mut deliveries = self.deliveries(&held, &is_stopping);
        let mut is_reading = true;
        let mut lanes = Lanes::default();
        let mut running = FuturesUnordered::new();
        let mut progress = interval_at(Instant::now() + self.ack_wait / 3, self.ack_wait / 3);
        let mut stop_deadline = None;
        let mut broken = None;
        while is_reading || !running.is_empty() {
            held.send_replace(lanes.len());
            let ended: Option<BoxError> = tokio::select! {
                () = &mut stop, if stop_deadline.is_none() => {
                    is_stopping.send_replace(true);
                    stop_deadline = Some(Instant::now() + self.config.stop_timeout);
                    None
                }
                () = sleep_until(stop_deadline.unwrap_or_else(Instant::now)), if stop_deadline.is_some() => {
                    tracing::warn!(events = lanes.len(), "stopped before all events in flight were handled");
                    return Ok(());
                }
                _ = disconnects.changed(), if is_reading => Some("the connection to NATS broke".into()),
                delivery = deliveries.next(), if is_reading => match delivery {
                    Some(Ok((stream, message))) => match self.accept(stream, message) {
                        Ok(delivery) => {
                            running.extend(lanes.add(delivery).map(|first| worker.process(first)));
                            None
                        }
                        Err(error) => Some(error),
                    },
                    Some(Err(error)) => Some(error),
                    None => {
                        is_reading = false;
                        None
                    }
                },
                Some(finished) = running.next() => {
                    running.extend(lanes.finish(&finished).map(|next| worker.process(next)));
                    None
                }
                _ = progress.tick() => {
                    lanes.extend_ack_time().await;
                    None
                }
            };
            if let Some(error) = ended {
                // Events without a running handler are delivered again.
                lanes.clear_waiting();
                is_reading = false;
                broken = Some(error);
            }
        }
        match broken {
            Some(error) if stop_deadline.is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the messages of all streams. At most [`Config::max_in_flight`] are requested and not handled. It ends after
    /// `is_stopping` and the last request.
    fn deliveries(
        &self,
        held: &watch::Sender<usize>,
        is_stopping: &watch::Sender<bool>,
    ) -> impl Stream<Item = Result<(usize, Message), BoxError>> + Unpin + use<> {
        let half = (self.config.max_in_flight / 2).max(1);
        let size = (half / self.consumers.len()).max(1);
        select_all(self.consumers.iter().enumerate().map(|(stream, (consumer, _))| {
            let consumer = consumer.clone();
            let state = (None::<pull::Batch>, held.subscribe(), is_stopping.subscribe());
            let messages = try_unfold(state, move |(mut batch, mut held, is_stopping)| {
                let consumer = consumer.clone();
                async move {
                    loop {
                        if let Some(messages) = &mut batch
                            && let Some(message) = messages.next().await
                        {
                            return Ok(Some(((stream, message?), (batch, held, is_stopping))));
                        }
                        // Fails only after the session has ended.
                        let _ = held.wait_for(|held| *held <= half).await;
                        if *is_stopping.borrow() {
                            return Ok(None);
                        }
                        let request = consumer.batch().max_messages(size).expires(REQUEST_TIME);
                        batch = Some(request.messages().await?);
                    }
                }
            });
            Box::pin(messages)
        }))
    }

    /// Checks that no delivery is missing.
    fn accept(&mut self, stream: usize, message: Message) -> Result<Delivery, BoxError> {
        let info = message.info()?;
        let (consumer, last) = self.consumers.get_mut(stream).ok_or("unknown stream")?;
        *last += 1;
        if info.consumer_sequence != *last {
            return Err(
                "a delivery is missing: it was lost, or another process reads the same consumer".into()
            );
        }
        let max_deliveries = consumer.cached_info().config.max_deliver;
        Ok(Delivery {
            position: (stream, info.stream_sequence),
            number: u64::try_from(info.delivered).unwrap_or_default(),
            is_last: max_deliveries > 0 && info.delivered >= max_deliveries,
            message: Arc::new(message),
        })
    }
}

/// Returns the durable of a stream.
async fn find(context: &Context, stream: &str, name: &str) -> Result<Consumer<pull::Config>, ConsumerError> {
    let (stream, name) = (stream.to_owned(), name.to_owned());
    context.get_consumer_from_stream(&name, &stream).await.map_err(|source| match source.kind() {
        ConsumerErrorKind::JetStream(error)
            if [ErrorCode::CONSUMER_NOT_FOUND, ErrorCode::STREAM_NOT_FOUND].contains(&error.error_code()) =>
        {
            ConsumerError::NotFound { stream, name }
        }
        _ => ConsumerError::Unavailable { stream, name, source },
    })
}
