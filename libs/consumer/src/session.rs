//! One uninterrupted read of the durable. A lost delivery would break the order of a source, so a session ends when a delivery is
//! missing or the connection breaks, and the next one starts after everything unacknowledged is due again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{Context, ErrorCode, Message};
use futures::Stream;
use futures::future::try_join_all;
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

/// Deliveries after which an event without an acknowledgement becomes a dead letter, if the durable has no limit.
const MAX_DELIVERIES: i64 = 20;
/// Margin of the time after which unacknowledged events are due again.
const DUE_MARGIN: Duration = Duration::from_secs(1);

/// The durable in one stream.
struct Source {
    consumer: Consumer<pull::Config>,
    /// Number of the last delivery.
    last: u64,
    /// Unacknowledged events of an earlier session that have not arrived.
    due: usize,
    /// Those that have arrived. The server delivers them in the order in which they became due, so they are sorted first.
    redelivered: Vec<Delivery>,
}

pub(crate) struct Session<'a> {
    config: &'a Config,
    sources: Vec<Source>,
    /// Time after which the server delivers an unacknowledged event again.
    ack_wait: Duration,
}

impl<'a> Session<'a> {
    /// Waits until all events that were delivered earlier and not acknowledged are due again: they are delivered first, in order.
    pub(crate) async fn open(config: &'a Config, context: &Context) -> Result<Self, ConsumerError> {
        let find_all =
            || try_join_all(config.streams.iter().map(|stream| find(context, stream, &config.name)));
        let mut consumers = find_all().await?;
        let ack_waits = consumers.iter().map(|consumer| consumer.cached_info().config.ack_wait);
        let (ack_wait, longest) =
            (ack_waits.clone().min().unwrap_or_default(), ack_waits.max().unwrap_or_default());
        let unacknowledged: usize =
            consumers.iter().map(|consumer| consumer.cached_info().num_ack_pending).sum();
        if unacknowledged > 0 {
            let consumer = &config.name;
            tracing::info!(
                consumer,
                unacknowledged,
                "waiting until unacknowledged events are delivered again"
            );
            sleep(longest + DUE_MARGIN).await;
            consumers = find_all().await?;
        }
        let source = |consumer: Consumer<pull::Config>| {
            let info = consumer.cached_info();
            let (last, due) = (info.delivered.consumer_sequence, info.num_ack_pending);
            Source { consumer, last, due, redelivered: Vec::new() }
        };
        Ok(Self { config, sources: consumers.into_iter().map(source).collect(), ack_wait })
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
        // When the missing unacknowledged events are not awaited any more: they can have been deleted from the stream.
        let redelivery_deadline = Instant::now() + (3 * REQUEST_TIME).min(self.ack_wait / 2);
        // When the events in flight are abandoned.
        let mut deadline = None;
        let mut is_stopped = false;
        let mut broken = None;
        while is_reading || !running.is_empty() {
            held.send_replace(lanes.len());
            let ended: Option<BoxError> = tokio::select! {
                () = &mut stop, if !is_stopped => {
                    is_stopped = true;
                    is_stopping.send_replace(true);
                    deadline = deadline.or_else(|| Some(Instant::now() + self.config.stop_timeout));
                    None
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    tracing::warn!(events = lanes.len(), "abandoned events in flight; they are delivered again");
                    break;
                }
                _ = disconnects.changed(), if is_reading => Some("the connection to NATS broke".into()),
                delivery = deliveries.next(), if is_reading => match delivery {
                    Some(Ok((stream, message))) => match self.accept(stream, message) {
                        Ok(deliveries) => {
                            let first = deliveries.into_iter().filter_map(|delivery| lanes.add(delivery));
                            running.extend(first.map(|first| worker.process(first)));
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
                () = sleep_until(redelivery_deadline), if self.sources.iter().any(|source| source.due > 0) => {
                    let late = self.sources.iter_mut().flat_map(Source::take_redelivered);
                    let first = late.filter_map(|delivery| lanes.add(delivery)).collect::<Vec<_>>();
                    running.extend(first.into_iter().map(|first| worker.process(first)));
                    None
                }
                _ = progress.tick(), if worker.is_connected() => {
                    lanes.extend_ack_time().await;
                    None
                }
            };
            if let Some(error) = ended {
                // Events without a running handler are delivered again.
                lanes.clear_waiting();
                is_reading = false;
                deadline = deadline.or_else(|| Some(Instant::now() + self.config.stop_timeout));
                broken = Some(error);
            }
        }
        match broken {
            Some(error) if !is_stopped => Err(error),
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
        let size = (half / self.sources.len()).max(1);
        select_all(self.sources.iter().enumerate().map(|(stream, source)| {
            let consumer = source.consumer.clone();
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

    /// Checks that no delivery is missing. Returns the deliveries that can be handled now, in order.
    fn accept(&mut self, stream: usize, message: Message) -> Result<Vec<Delivery>, BoxError> {
        let info = message.info()?;
        let source = self.sources.get_mut(stream).ok_or("unknown stream")?;
        source.last += 1;
        if info.consumer_sequence != source.last {
            return Err(
                "a delivery is missing: it was lost, or another process reads the same consumer".into()
            );
        }
        let limit = match source.consumer.cached_info().config.max_deliver {
            // The last deliveries could be lost.
            limit if limit > 0 => limit - limit / 4,
            _ => MAX_DELIVERIES,
        };
        let delivery = Delivery {
            position: (stream, info.stream_sequence),
            number: u64::try_from(info.delivered).unwrap_or_default(),
            is_last: info.delivered >= limit,
            message: Arc::new(message),
        };
        if source.due > 0 && delivery.number > 1 {
            source.due -= 1;
            source.redelivered.push(delivery);
            return Ok(if source.due == 0 { source.take_redelivered() } else { Vec::new() });
        }
        // The server delivers new events when no unacknowledged one is due.
        let mut deliveries = source.take_redelivered();
        deliveries.push(delivery);
        Ok(deliveries)
    }
}

impl Source {
    /// Ends the wait for unacknowledged events. Returns those that have arrived, in the order of the stream.
    fn take_redelivered(&mut self) -> Vec<Delivery> {
        self.due = 0;
        self.redelivered.sort_by_key(|delivery| delivery.position);
        std::mem::take(&mut self.redelivered)
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
