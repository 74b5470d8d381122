//! Runs the handler. Each attempt is a task of the runtime that called [`run`](crate::run), so that one that blocks or panics
//! affects only its own event.

use std::any::Any;
use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use async_nats::HeaderValue;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::{JoinSet, block_in_place};
use tracing::instrument::WithSubscriber as _;
use tracing::{Dispatch, Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::event::Event;
use crate::recovery::Starting;
use crate::{BoxError, Failure};

/// Number of handled events that are recognized when they are delivered again.
const REMEMBERED_EVENTS: u64 = 100_000;

/// The handler, and what its tasks need.
pub(crate) struct Handlers<H> {
    handler: Arc<H>,
    /// Runtime of the tasks.
    runtime: Handle,
    subscriber: Dispatch,
    turns: Turns,
    /// Keys of the events that were handled last.
    handled: Cache<String, ()>,
}

/// An attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The handler returned a failure.
    Returned(Failure),
    /// The handler panicked.
    Panicked(BoxError),
}

impl<H, F> Handlers<H>
where
    H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    /// Panics outside of a Tokio runtime.
    pub(crate) fn new(handler: H, subscriber: Dispatch) -> Self {
        Self {
            handler: Arc::new(handler),
            runtime: Handle::current(),
            subscriber,
            turns: Turns::default(),
            handled: Cache::builder()
                .max_capacity(REMEMBERED_EVENTS)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }

    /// Calls the handler, unless it has handled the event before. Its task waits for `starting` first. Dropping the future stops the
    /// handler at its next await.
    pub(crate) async fn attempt(&self, event: &Arc<Event>, starting: Option<Starting>) -> Result<(), Failed> {
        // A handler of an earlier session can still block: the events of a source are handled one after the other.
        let turn = self.turns.take(event.source_key()).await;
        let key = event.unique_key();
        if self.handled.contains_key(&key) {
            return Ok(());
        }
        let (handler, event, done) = (Arc::clone(&self.handler), Arc::clone(event), self.handled.clone());
        let span = span(&event);
        let has_threads = self.runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let handle = async move {
            let _turn = turn;
            if let Some(starting) = starting {
                starting.wait().await;
            }
            let attempt = async { handler(event).await };
            let result = if has_threads { may_block(attempt).await } else { attempt.await };
            if result.is_ok() {
                done.insert(key, ());
            }
            result
        };
        let mut task = JoinSet::new();
        task.spawn_on(handle.instrument(span).with_subscriber(self.subscriber.clone()), &self.runtime);
        match task.join_next().await {
            Some(Ok(result)) => result.map_err(Failed::Returned),
            Some(Err(error)) if error.is_panic() => {
                Err(Failed::Panicked(panic_message(&*error.into_panic())))
            }
            // The runtime stops, and `run` with it.
            _ => pending().await,
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

/// The sources with a running handler.
#[derive(Clone, Default)]
struct Turns(Arc<(Mutex<HashSet<String>>, Notify)>);

/// Ends when it is dropped.
struct Turn {
    turns: Turns,
    source: String,
}

impl Turns {
    /// Waits until no handler runs for this source.
    async fn take(&self, source: String) -> Turn {
        let (running, ended) = &*self.0;
        loop {
            let ended = ended.notified();
            if running.lock().insert(source.clone()) {
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

/// Returns the span of an attempt, in the trace of the request that sent the event.
fn span(event: &Event) -> Span {
    struct Headers<'a>(&'a Event);
    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.headers.get(key).map(HeaderValue::as_str)
        }
        fn keys(&self) -> Vec<&str> {
            vec!["traceparent"]
        }
    }
    let span = tracing::info_span!(
        parent: None,
        "process event",
        otel.kind = "consumer",
        messaging.system = "nats",
        svc.tenant_id = event.tenant_id,
        svc.event_id = event.event_id,
    );
    // Fails only for a span that has started.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Headers(event)));
    span
}
