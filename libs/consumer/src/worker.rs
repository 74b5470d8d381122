//! Handles one event: attempts, dead letter, acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderValue;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tokio::time::sleep;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

use crate::dead_letter::{self, Cause};
use crate::event::{Event, is_replay_for_other};
use crate::lanes::Delivery;
use crate::{Config, Failure};

/// Number of handled events that are recognized when they are delivered again.
const REMEMBERED_EVENTS: u64 = 100_000;
/// Delay after the first failed attempt. It doubles up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);

pub(crate) struct Worker<H> {
    name: String,
    /// Random id of this run. Other users of the broker cannot guess the message ids of dead letters, which would suppress them.
    run_id: Uuid,
    max_attempts: Option<u32>,
    context: Context,
    handler: H,
    /// Keys of the events that were handled last.
    handled: Cache<String, ()>,
}

impl<H, F> Worker<H>
where
    H: Fn(Arc<Event>) -> F,
    F: Future<Output = Result<(), Failure>>,
{
    pub(crate) fn new(config: &Config, context: Context, handler: H) -> Self {
        Self {
            name: config.name.clone(),
            run_id: Uuid::now_v7(),
            max_attempts: config.max_attempts,
            context,
            handler,
            handled: Cache::builder()
                .max_capacity(REMEMBERED_EVENTS)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        }
    }

    /// Returns whether the client is connected. Acknowledgements wait otherwise.
    pub(crate) fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    /// Handles a message until it is acknowledged: handled, skipped, or stored as a dead letter.
    pub(crate) async fn process(&self, delivery: Delivery) -> Delivery {
        let outcome = match Event::parse(&delivery.message, delivery.number) {
            _ if is_replay_for_other(&delivery.message, &self.name) => Ok(()),
            Ok(event) => self.handle(event, delivery.is_last).await,
            Err(error) => Err(Cause { attempts: 0, reason: error.to_string() }),
        };
        if let Err(cause) = outcome {
            self.store_dead_letter(&delivery, &cause).await;
        }
        if let Err(error) = delivery.message.ack().await {
            tracing::warn!(error, "failed to acknowledge an event");
        }
        delivery
    }

    async fn handle(&self, event: Event, is_last_delivery: bool) -> Result<(), Cause> {
        let key = event.unique_key();
        if self.handled.contains_key(&key) {
            return Ok(());
        }
        if is_last_delivery && self.max_attempts.is_some() {
            let reason = format!("delivered {} times without an acknowledgement", event.delivery);
            return Err(Cause { attempts: 0, reason });
        }
        let event = Arc::new(event);
        for attempt in 1.. {
            let span = span(&event);
            let attempted = span.in_scope(|| (self.handler)(Arc::clone(&event)));
            let (error, is_final) = match attempted.instrument(span).await {
                Ok(()) => break,
                Err(Failure::Retry(error)) => (error, self.max_attempts.is_some_and(|most| attempt >= most)),
                Err(Failure::Reject(error)) => (error, self.max_attempts.is_some()),
            };
            if is_final {
                return Err(Cause { attempts: attempt, reason: dead_letter::reason(&*error) });
            }
            tracing::warn!(
                error,
                attempt,
                consumer = self.name,
                event_id = event.event_id,
                "failed to handle an event; it is tried again"
            );
            sleep(delay(attempt)).await;
        }
        self.handled.insert(key, ());
        Ok(())
    }

    /// Tries without limit: the event would be lost otherwise.
    async fn store_dead_letter(&self, delivery: &Delivery, cause: &Cause) {
        for attempt in 1.. {
            match dead_letter::store(&self.context, &self.name, &self.run_id, delivery, cause).await {
                Ok(()) => break,
                Err(error) => tracing::error!(error, consumer = self.name, "failed to store a dead letter"),
            }
            sleep(delay(attempt)).await;
        }
        tracing::warn!(consumer = self.name, ?cause, "an event became a dead letter");
    }
}

/// Returns the delay after this failed attempt.
fn delay(attempt: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << (attempt - 1).min(16)).min(MAX_DELAY)
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
