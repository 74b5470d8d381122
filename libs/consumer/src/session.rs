//! One uninterrupted read of the durable. A lost delivery would break the order of a source, so a session ends when a delivery is
//! missing or the connection breaks, and the next one starts after everything unacknowledged is due again.

use std::cmp::Reverse;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{Context, Message};
use futures::Stream;
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt as _, select_all, try_unfold};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at, sleep, sleep_until};

use crate::event::Event;
use crate::lanes::{Delivery, Lanes};
use crate::recovery::Recovery;
use crate::source::{REQUEST_TIME, Source, find};
use crate::worker::Worker;
use crate::{BoxError, Config, ConsumerError, Failure};

/// Margin of the time after which unacknowledged events are due again.
const DUE_MARGIN: Duration = Duration::from_secs(1);

pub(crate) struct Session<'a> {
    config: &'a Config,
    sources: Rc<[Source]>,
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
        let sources = consumers.into_iter().enumerate().map(|(index, consumer)| Source::new(index, consumer));
        Ok(Self { config, sources: sources.collect(), ack_wait })
    }

    /// Returns after `stop`, when the events in flight are handled.
    ///
    /// # Errors
    /// A delivery is missing, or the connection broke. The session cannot continue.
    pub(crate) async fn run<H, F>(
        self,
        worker: &Worker<H>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        disconnects: &mut watch::Receiver<()>,
    ) -> Result<(), BoxError>
    where
        H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (held, _) = watch::channel(usize::MAX);
        let (is_stopping, _) = watch::channel(false);
        let (sender, mut others) = mpsc::unbounded_channel();
        let recovery = Rc::new(Recovery::new(worker.start.get(), Rc::clone(&self.sources), sender.clone()));
        let mut deliveries = self.deliveries(&held, &is_stopping);
        let mut lanes = Lanes::default();
        let mut running = FuturesUnordered::new();
        let mut progress = interval_at(Instant::now() + self.ack_wait / 3, self.ack_wait / 3);
        // When the missing unacknowledged events are not awaited any more: they can have been deleted from the stream.
        let redelivery_deadline = Instant::now() + (3 * REQUEST_TIME).min(self.ack_wait / 2);
        let mut course = Course::new(self.config.stop_timeout);
        let mut last_free = LastFree(Instant::now());
        while course.is_reading || !running.is_empty() {
            recovery.update();
            worker.update(&recovery, lanes.len());
            self.request_events(recovery.is_over(), lanes.len(), &held, &mut last_free);
            let arrived: Result<Vec<Delivery>, BoxError> = tokio::select! {
                () = &mut stop, if !course.is_stopped => {
                    is_stopping.send_replace(true);
                    course.stop();
                    continue;
                }
                () = course.deadline_passed(), if course.deadline.is_some() => {
                    tracing::warn!(events = lanes.len(), "abandoned events in flight; they are delivered again");
                    running.clear();
                    recovery.abandon().await;
                    break;
                }
                _ = disconnects.changed(), if course.is_reading => Err("the connection to NATS broke".into()),
                delivery = deliveries.next(), if course.is_reading => match delivery {
                    Some(Ok((source, message))) => self.accept(source, message, &sender).await,
                    Some(Err(error)) => Err(error),
                    None => {
                        course.is_reading = false;
                        continue;
                    }
                },
                Some(other) = others.recv() => Ok(self.sort(other, &sender).await),
                Some(finished) = running.next() => {
                    let next = lanes.finish(finished, worker.batch_size(&recovery));
                    running.extend((!next.is_empty()).then(|| worker.process(next, &recovery)));
                    continue;
                }
                () = sleep_until(redelivery_deadline), if self.sources.iter().any(|source| source.due() > 0) => {
                    Ok(self.sources.iter().flat_map(Source::take_redelivered).collect())
                }
                () = recovery.changed(), if !recovery.is_over() => continue,
                _ = progress.tick(), if worker.is_connected() => {
                    lanes.extend_ack_time().await;
                    last_free.warn_after(self.ack_wait, lanes.len(), &self.config.name);
                    worker.warn_of_long_calls(self.ack_wait);
                    continue;
                }
            };
            match arrived {
                Ok(deliveries) => {
                    let first = lanes.add_all(deliveries, &recovery);
                    running.extend(first.into_iter().map(|first| worker.process(vec![first], &recovery)));
                }
                Err(error) => {
                    // Events without a running handler are delivered again.
                    lanes.clear_waiting();
                    course.fail(error);
                }
            }
        }
        course.result()
    }

    /// Requests events up to the limit. No new event is read while those of the previous process are tried.
    fn request_events(
        &self,
        recovered: bool,
        in_flight: usize,
        held: &watch::Sender<usize>,
        last_free: &mut LastFree,
    ) {
        held.send_replace(if recovered { in_flight } else { usize::MAX });
        if recovered && in_flight <= self.half() {
            *last_free = LastFree(Instant::now());
        }
    }

    /// Number of events in flight above which no others are requested.
    fn half(&self) -> usize {
        (self.config.max_in_flight / 2).max(1)
    }

    /// Returns the messages of all streams. At most [`Config::max_in_flight`] are requested and not handled. It ends after
    /// `is_stopping` and the last request.
    fn deliveries(
        &self,
        held: &watch::Sender<usize>,
        is_stopping: &watch::Sender<bool>,
    ) -> impl Stream<Item = Result<(usize, Message), BoxError>> + Unpin + use<> {
        let half = self.half();
        let size = (half / self.sources.len()).max(1);
        select_all((0..self.sources.len()).map(|index| {
            let sources = Rc::clone(&self.sources);
            let state = (None::<pull::Batch>, held.subscribe(), is_stopping.subscribe());
            let messages = try_unfold(state, move |(mut batch, mut held, is_stopping)| {
                let sources = Rc::clone(&sources);
                async move {
                    let source = &sources[index];
                    loop {
                        if let Some(messages) = &mut batch
                            && let Some(message) = messages.next().await
                        {
                            return Ok(Some(((index, message?), (batch, held, is_stopping))));
                        }
                        if source.due() == 0 {
                            // Fails only after the session has ended.
                            let _ = held.wait_for(|held| *held <= half).await;
                        }
                        if *is_stopping.borrow() {
                            return Ok(None);
                        }
                        // No more than the unacknowledged events: an open request would receive an event that is returned.
                        let size = if source.due() > 0 { source.due() } else { size };
                        let request = source.consumer.batch().max_messages(size).expires(REQUEST_TIME);
                        batch = Some(request.messages().await?);
                    }
                }
            });
            Box::pin(messages)
        }))
    }

    /// Returns the deliveries that can be handled now, in order.
    async fn accept(
        &self,
        source: usize,
        message: Message,
        others: &mpsc::UnboundedSender<Delivery>,
    ) -> Result<Vec<Delivery>, BoxError> {
        let source = self.sources.get(source).ok_or("unknown stream")?;
        Ok(source.sort(source.receive(message)?, others).await)
    }

    async fn sort(&self, delivery: Delivery, others: &mpsc::UnboundedSender<Delivery>) -> Vec<Delivery> {
        match self.sources.get(delivery.position.0) {
            Some(source) => source.sort(delivery, others).await,
            None => vec![delivery],
        }
    }
}

impl Lanes {
    /// Adds deliveries. Returns those that can be handled now. An event that was being handled at the last crash is the first, so
    /// that it is alone.
    fn add_all(&mut self, deliveries: Vec<Delivery>, recovery: &Recovery) -> Vec<Delivery> {
        let mut first: Vec<_> = deliveries.into_iter().filter_map(|delivery| self.add(delivery)).collect();
        first.sort_by_key(|delivery| Reverse(recovery.crashes(delivery)));
        first
    }
}

/// Whether a session reads, was stopped, or cannot continue.
struct Course {
    stop_timeout: Duration,
    is_reading: bool,
    is_stopped: bool,
    /// When the events in flight are abandoned.
    deadline: Option<Instant>,
    error: Option<BoxError>,
}

impl Course {
    fn new(stop_timeout: Duration) -> Self {
        Self { stop_timeout, is_reading: true, is_stopped: false, deadline: None, error: None }
    }

    /// Lets the requests and the events in flight end.
    fn stop(&mut self) {
        self.is_stopped = true;
        self.set_deadline();
    }

    /// Lets the events in flight end.
    fn fail(&mut self, error: BoxError) {
        self.is_reading = false;
        self.set_deadline();
        self.error = Some(error);
    }

    fn set_deadline(&mut self) {
        self.deadline.get_or_insert_with(|| Instant::now() + self.stop_timeout);
    }

    async fn deadline_passed(&self) {
        sleep_until(self.deadline.unwrap_or_else(Instant::now)).await;
    }

    /// Returns the error, unless the session was stopped.
    fn result(self) -> Result<(), BoxError> {
        self.error.filter(|_| !self.is_stopped).map_or(Ok(()), Err)
    }
}

/// When new events could be read for the last time.
struct LastFree(Instant);

impl LastFree {
    /// Logs a warning if that is longer ago than `limit`, once per such time.
    fn warn_after(&mut self, limit: Duration, events: usize, consumer: &str) {
        if self.0.elapsed() > limit {
            self.0 = Instant::now();
            tracing::warn!(events, consumer, "no events are read, because handlers fail or take too long");
        }
    }
}
