//! One uninterrupted read of the durable. A lost delivery would break the order of a source, so a session ends when a delivery is
//! missing or the connection breaks, and the next one starts after everything unacknowledged is due again.

use std::cell::Cell;
use std::cmp::Reverse;
use std::future::pending;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{Context, Message};
use futures::Stream;
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt as _, select_all, try_unfold};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, interval_at, sleep_until};

use crate::event::Event;
use crate::lanes::{Delivery, Lanes};
use crate::recovery::Recovery;
use crate::source::{REQUEST_TIME, Source, find_all, next_message};
use crate::worker::Worker;
use crate::{BoxError, Config, Failure};

/// Margin of the time after which unacknowledged events are due again.
const DUE_MARGIN: Duration = Duration::from_secs(1);

pub(crate) struct Session<'a> {
    config: &'a Config,
    sources: Rc<[Source]>,
    /// Time after which the server delivers an unacknowledged event again.
    ack_wait: Duration,
    /// When the missing unacknowledged events are not awaited any more: they can have been deleted from the stream.
    redelivery_deadline: Cell<Instant>,
}

impl<'a> Session<'a> {
    /// Waits until all events that were delivered earlier and not acknowledged are due again: they are handled first, in order.
    ///
    /// # Errors
    /// A delivery is missing, or the broker does not respond.
    pub(crate) async fn open(
        config: &'a Config,
        context: &Context,
        consumers: Vec<Consumer<pull::Config>>,
    ) -> Result<Self, BoxError> {
        let ack_waits = consumers.iter().map(|consumer| consumer.cached_info().config.ack_wait);
        let (ack_wait, longest) =
            (ack_waits.clone().min().unwrap_or_default(), ack_waits.max().unwrap_or_default());
        let all_are_due = Instant::now() + longest + DUE_MARGIN;
        let streams = consumers.len();
        let sources = consumers.into_iter().enumerate();
        let sources = sources.map(|(index, consumer)| Source::new(index, consumer, streams)).collect();
        let session = Self { config, sources, ack_wait, redelivery_deadline: Cell::new(all_are_due) };
        let are_due = session.keep(try_join_all(session.sources.iter().map(Source::receive_due))).await?;
        if are_due.contains(&false) {
            let unacknowledged: usize = session.sources.iter().map(Source::due).sum();
            let consumer = &config.name;
            tracing::info!(
                consumer,
                unacknowledged,
                "waiting until unacknowledged events are delivered again"
            );
            session.keep(sleep_until(all_are_due)).await;
            for (source, consumer) in session.sources.iter().zip(find_all(config, context).await?) {
                source.update(consumer.cached_info());
            }
        }
        session.extend_redelivery();
        Ok(session)
    }

    /// Waits for a future, and keeps the events that have arrived.
    async fn keep<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut progress = self.progress();
        loop {
            tokio::select! {
                output = &mut future => return output,
                _ = progress.tick() => self.extend_ack_time().await,
            }
        }
    }

    /// When the time for acknowledgements is extended.
    fn progress(&self) -> Interval {
        interval_at(Instant::now() + self.ack_wait / 3, self.ack_wait / 3)
    }

    async fn extend_ack_time(&self) {
        for source in &*self.sources {
            source.extend_ack_time().await;
        }
    }

    /// Returns after `stop`, when the events in flight are handled. Those that wait for their next attempt, and later ones of their
    /// sources, are returned to the broker, for the next process.
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
        let (sender, mut others) = mpsc::unbounded_channel();
        let recovery = Rc::new(Recovery::new(worker.start.get(), Rc::clone(&self.sources), sender.clone()));
        worker.begin(&self.sources);
        let mut deliveries = self.deliveries(&held, &worker.is_stopping);
        let mut lanes = Lanes::default();
        let mut running = FuturesUnordered::new();
        let first = lanes.add_all(self.release(&sender).await, &recovery);
        running.extend(first.into_iter().map(|first| worker.process(vec![first], &recovery)));
        let mut progress = self.progress();
        let mut course = Course::new(self.config.stop_timeout);
        let mut last_free = LastFree(Instant::now());
        while course.is_reading || !running.is_empty() {
            recovery.update();
            worker.update(&recovery, lanes.len(), course.is_reading);
            self.request_events(recovery.is_over(), lanes.len(), &held, &mut last_free);
            let arrived: Result<Vec<Delivery>, BoxError> = tokio::select! {
                () = &mut stop, if !course.is_stopped => {
                    worker.is_stopping.send_replace(true);
                    course.stop();
                    continue;
                }
                () = course.deadline_passed(), if course.deadline.is_some() => {
                    tracing::warn!(events = lanes.len(), "abandoned events in flight; they are delivered again");
                    running.clear();
                    recovery.abandon().await;
                    return course.result();
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
                    // Without a result, the events of the source remain for the next process.
                    let max = worker.batch_size(&recovery);
                    let next = finished.map(|finished| lanes.finish(finished, max)).unwrap_or_default();
                    running.extend((!next.is_empty()).then(|| worker.process(next, &recovery)));
                    continue;
                }
                () = self.redelivery_passed() => Ok(self.take_redelivered()),
                () = recovery.changed(), if !recovery.is_over() => continue,
                _ = progress.tick(), if worker.is_connected() => {
                    lanes.extend_ack_time().await;
                    self.extend_ack_time().await;
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
        self.finish(course, worker.has_running_handler(), &mut lanes, &recovery).await
    }

    /// Returns the result of the session. Without an error and a handler that still runs, it returns the events to the broker.
    async fn finish(
        &self,
        course: Course,
        is_running: bool,
        lanes: &mut Lanes,
        recovery: &Recovery,
    ) -> Result<(), BoxError> {
        if course.error.is_none() {
            // A stop between two attempts is no crash.
            recovery.abandon().await;
            lanes.add_all(self.take_redelivered(), recovery);
            // A handler that did not end in its time can still block its thread. Then, the events are delivered after `ack_wait`.
            if !is_running {
                lanes.return_all().await;
            }
        }
        course.result()
    }

    /// Returns the events that arrived before the session.
    async fn release(&self, others: &mpsc::UnboundedSender<Delivery>) -> Vec<Delivery> {
        let mut released = Vec::new();
        for source in &*self.sources {
            released.extend(source.release(others).await);
        }
        released
    }

    /// Ends the wait for unacknowledged events.
    fn take_redelivered(&self) -> Vec<Delivery> {
        self.sources.iter().flat_map(Source::take_redelivered).collect()
    }

    /// Waits for the end of the wait for unacknowledged events. Without missing ones, it never returns.
    async fn redelivery_passed(&self) {
        if self.sources.iter().any(|source| source.due() > 0) {
            sleep_until(self.redelivery_deadline.get()).await;
        } else {
            pending::<()>().await;
        }
    }

    fn extend_redelivery(&self) {
        self.redelivery_deadline.set(Instant::now() + (3 * REQUEST_TIME).min(self.ack_wait / 2));
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
            let messages = try_unfold(state, move |(mut batch, mut held, mut is_stopping)| {
                let sources = Rc::clone(&sources);
                async move {
                    let source = &sources[index];
                    loop {
                        if let Some(messages) = &mut batch
                            && let Some(message) = next_message(messages).await
                        {
                            return Ok(Some(((index, message?), (batch, held, is_stopping))));
                        }
                        if source.due() == 0 {
                            // They fail only after the session has ended.
                            tokio::select! {
                                _ = held.wait_for(|held| *held <= half) => {}
                                _ = is_stopping.wait_for(|is_stopping| *is_stopping) => {}
                            }
                        }
                        if *is_stopping.borrow() {
                            return Ok(None);
                        }
                        batch = Some(source.request(size).await?);
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
        if source.due() > 0 {
            self.extend_redelivery();
        }
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
