//! Runs the handler. Each attempt is a task of the runtime that called [`run`](crate::run), so that one that blocks or panics
//! affects only its own event.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderValue;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};
use tracing::instrument::WithSubscriber as _;
use tracing::{Dispatch, Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::event::Event;
use crate::recovery::Starting;
use crate::{BoxError, Config, Failure, Monitor};

/// Number of handled events that are recognized when they are delivered again.
const REMEMBERED_EVENTS: u64 = 100_000;

/// The handler, and what its tasks need.
pub(crate) struct Handlers<H> {
    handler: Arc<H>,
    /// Largest number of events of one call, at least 1.
    pub(crate) max: usize,
    /// Time limit of a call.
    timeout: Option<Duration>,
    /// Runtime of the tasks.
    runtime: Handle,
    subscriber: Dispatch,
    turns: Turns,
    handled: Mutex<Handled>,
    monitor: Monitor,
}

/// Keys of the events that were handled last.
struct Handled {
    keys: Cache<String, ()>,
    /// When the durable, from which they were read, was created in each stream.
    created: Vec<String>,
}

impl Handled {
    fn since(created: Vec<String>) -> Self {
        let keys = Cache::builder().max_capacity(REMEMBERED_EVENTS).eviction_policy(EvictionPolicy::lru());
        Self { keys: keys.build(), created }
    }
}

/// An attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The handler returned a failure.
    Returned(Failure),
    /// The handler panicked.
    Panicked(BoxError),
}

impl Failed {
    pub(crate) fn into_error(self) -> BoxError {
        match self {
            Self::Returned(Failure::Retry(error) | Failure::Reject(error)) | Self::Panicked(error) => error,
        }
    }
}

impl<H, F> Handlers<H>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    /// Panics outside of a Tokio runtime.
    pub(crate) fn new(handler: H, max: usize, config: &Config, subscriber: Dispatch) -> Self {
        Self {
            handler: Arc::new(handler),
            max: max.max(1),
            timeout: config.handler_timeout,
            runtime: Handle::current(),
            subscriber,
            turns: Turns::default(),
            handled: Mutex::new(Handled::since(Vec::new())),
            monitor: config.monitor.clone(),
        }
    }

    /// Forgets the handled events if the durable was created again since. A handler of before that has not returned is not remembered.
    pub(crate) fn remember_since(&self, created: Vec<String>) {
        let mut handled = self.handled.lock();
        if handled.created != created {
            *handled = Handled::since(created);
        }
    }

    /// Calls the handler for events of one source, without those that it has handled before. Its task waits for `starting` first.
    /// Dropping the future stops the handler at its next await.
    pub(crate) async fn attempt(
        &self,
        events: &[Arc<Event>],
        starting: Option<Starting>,
    ) -> Result<(), Failed> {
        let Some(first) = events.first() else { return Ok(()) };
        // A handler of an earlier session can still block: the events of a source are handled one after the other.
        let turn = self.turns.take(first).await;
        let done = self.handled.lock().keys.clone();
        let mut keys = HashSet::new();
        let is_new = |event: &&Arc<Event>| {
            let key = event.unique_key();
            !done.contains_key(&key) && keys.insert(key)
        };
        let events: Vec<_> = events.iter().filter(is_new).cloned().collect();
        if events.is_empty() {
            return Ok(());
        }
        let (handler, monitor) = (Arc::clone(&self.handler), self.monitor.clone());
        let (span, (begin, has_begun)) = (span(&events), oneshot::channel());
        let has_threads = self.runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let handle = async move {
            let _turn = turn;
            if let Some(starting) = starting {
                starting.wait().await;
            }
            // Fails only if the attempt was dropped.
            let _ = begin.send(());
            let attempt = async { handler(events).await };
            let result = if has_threads { may_block(attempt).await } else { attempt.await };
            if result.is_ok() {
                monitor.change(|status| status.handled += u64::try_from(keys.len()).unwrap_or_default());
                for key in keys {
                    done.insert(key, ());
                }
            }
            result
        };
        let mut task = JoinSet::new();
        task.spawn_on(handle.instrument(span).with_subscriber(self.subscriber.clone()), &self.runtime);
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            limit = self.timed_out(has_begun) => {
                let reason = format!("the handler did not return within {} s", limit.as_secs_f64());
                return Err(Failed::Returned(Failure::retry(reason)));
            }
        };
        match ended {
            Some(Ok(result)) => result.map_err(Failed::Returned),
            Some(Err(error)) if error.is_panic() => {
                Err(Failed::Panicked(panic_message(&*error.into_panic())))
            }
            // The runtime stops, and `run` with it.
            _ => pending().await,
        }
    }

    /// Waits for the time limit of a call that has begun.
    async fn timed_out(&self, has_begun: oneshot::Receiver<()>) -> Duration {
        match self.timeout {
            Some(limit) if has_begun.await.is_ok() => {
                sleep(limit).await;
                limit
            }
            _ => pending().await,
        }
    }

    /// Returns whether a handler still runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.turns.0.0.lock().is_empty()
    }

    /// Logs the handlers that have run for longer than `limit`, and again after each time twice as long.
    pub(crate) fn warn_of_long_calls(&self, limit: Duration, consumer: &str) {
        for call in self.turns.0.0.lock().values_mut() {
            let elapsed = call.started.elapsed();
            if elapsed >= limit.max(call.warned_after * 2) {
                call.warned_after = elapsed;
                let seconds = elapsed.as_secs();
                tracing::warn!(consumer, event_id = call.event_id, seconds, "a handler has not returned");
            }
        }
    }
}

/// Runs a future that may block its thread. Other tasks of the thread continue on another one.
async fn may_block<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| block_in_place(|| future.as_mut().poll(context))).await
}

/// Returns the message of a panic.
fn panic_message(payload: &(dyn Any + Send)) -> BoxError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    format!("the handler panicked: {text}").into()
}

/// The running call of each source.
#[derive(Clone, Default)]
struct Turns(Arc<(Mutex<HashMap<String, Call>>, Notify)>);

struct Call {
    /// Id of its first event.
    event_id: String,
    started: Instant,
    /// Time after which it was logged.
    warned_after: Duration,
}

/// Ends when it is dropped.
struct Turn {
    turns: Turns,
    source: String,
}

impl Turns {
    /// Waits until no handler runs for the source of this event.
    async fn take(&self, event: &Event) -> Turn {
        let (running, ended) = &*self.0;
        let source = event.source_key();
        loop {
            let ended = ended.notified();
            if let Entry::Vacant(place) = running.lock().entry(source.clone()) {
                let event_id = event.event_id.clone();
                place.insert(Call { event_id, started: Instant::now(), warned_after: Duration::ZERO });
                return Turn { turns: self.clone(), source };
            }
            ended.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (running, ended) = &*self.turns.0;
        running.lock().remove(&self.source);
        ended.notify_waiters();
    }
}

/// Returns the span of a call: in the trace of the request that sent the event, or with a link to the trace of each of several events.
fn span(events: &[Arc<Event>]) -> Span {
    struct Headers<'a>(&'a Event);
    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.headers.get(key).map(HeaderValue::as_str)
        }
        fn keys(&self) -> Vec<&str> {
            vec!["traceparent"]
        }
    }
    let trace = |event: &Event| TraceContextPropagator::new().extract(&Headers(event));
    let span = tracing::info_span!(
        parent: None,
        "process event",
        otel.kind = "consumer",
        messaging.system = "nats",
        svc.tenant_id = tracing::field::Empty,
        svc.event_id = tracing::field::Empty,
        messaging.batch.message_count = events.len(),
    );
    if let [event] = events {
        span.record("svc.tenant_id", &event.tenant_id).record("svc.event_id", &event.event_id);
        // Fails only for a span that has started.
        let _ = span.set_parent(trace(event));
    } else {
        for event in events {
            span.add_link(trace(event).span().span_context().clone());
        }
    }
    span
}
