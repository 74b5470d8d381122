//! Handles one event: attempts, dead letter, acknowledgement.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::Context;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::dead_letter::{self, Cause};
use crate::event::{Event, is_replay_for_other};
use crate::handlers::{Failed, Handlers};
use crate::lanes::Delivery;
use crate::marks::MAX_CRASHES;
use crate::recovery::{Alone, Recovery, Start, Untried};
use crate::source::Source;
use crate::{Config, Failure, Monitor};

/// Delay after the first failed attempt. It doubles up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Number of attempts that panic until an event becomes a dead letter.
const MAX_PANICS: u32 = 5;

pub(crate) struct Worker<H> {
    name: String,
    retry_for: Option<Duration>,
    context: Context,
    handlers: Handlers<H>,
    monitor: Monitor,
    /// How the next session starts.
    pub(crate) start: Cell<Start>,
    /// Whether the process stops.
    pub(crate) is_stopping: watch::Sender<bool>,
}

impl<H, F> Worker<H>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    pub(crate) fn new(config: &Config, context: Context, handlers: Handlers<H>) -> Self {
        Self {
            name: config.name.clone(),
            retry_for: config.retry_for,
            context,
            handlers,
            monitor: config.monitor.clone(),
            start: Cell::new(Start::AfterProcess),
            is_stopping: watch::Sender::default(),
        }
    }

    /// Returns whether the client is connected. Acknowledgements wait otherwise.
    pub(crate) fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    /// Forgets the events that were handled before the durable of a stream was created again: they are handled again.
    pub(crate) fn begin(&self, sources: &[Source]) {
        self.handlers.remember_since(sources.iter().map(Source::created).collect());
    }

    /// Records the progress of a session with this number of events in flight.
    pub(crate) fn update(&self, recovery: &Recovery, events: usize, is_reading: bool) {
        self.start.set(recovery.next_start());
        self.monitor.progress(events, is_reading);
    }

    /// Largest number of messages to process together.
    pub(crate) fn batch_size(&self, recovery: &Recovery) -> usize {
        if recovery.is_over() { self.handlers.max } else { 1 }
    }

    /// Returns whether a handler still runs, for example one that blocks its thread after its time limit.
    pub(crate) fn has_running_handler(&self) -> bool {
        self.handlers.is_running()
    }

    /// Logs the handlers that have not returned.
    pub(crate) fn warn_of_long_calls(&self, limit: Duration) {
        self.handlers.warn_of_long_calls(limit, &self.name);
    }

    /// Handles messages of one source until each is acknowledged: handled, skipped, or stored as a dead letter. Returns `None` if the
    /// process stops while one waits for its next attempt.
    pub(crate) fn process(
        &self,
        mut deliveries: Vec<Delivery>,
        recovery: &Rc<Recovery>,
    ) -> impl Future<Output = Option<Vec<Delivery>>> {
        // Not in the future, which is polled later. Several messages are processed together only after the recovery.
        let mut untried = recovery.register();
        let recovery = Rc::clone(recovery);
        async move {
            if deliveries.len() > 1 {
                self.try_together(&deliveries).await;
            }
            for delivery in &mut deliveries {
                self.process_one(delivery, &recovery, &mut untried).await?;
            }
            Some(deliveries)
        }
    }

    /// Calls the handler once. After a success, each event is skipped as handled; after a failure, each is tried alone.
    async fn try_together(&self, deliveries: &[Delivery]) {
        let selected = deliveries.iter().filter(|delivery| self.is_selected(delivery));
        let events = selected.filter_map(|delivery| Event::parse(&delivery.message, delivery.number).ok());
        let events: Vec<_> = events.map(Arc::new).collect();
        if let Err(failed) = self.handlers.attempt(&events, None).await {
            let reason = dead_letter::reason(&*failed.into_error());
            let (consumer, events) = (&self.name, events.len());
            tracing::warn!(reason, consumer, events, "failed to handle several events; each is tried alone");
        }
    }

    /// Whether the handler is called for a message, if it is well-formed.
    fn is_selected(&self, delivery: &Delivery) -> bool {
        delivery.is_selected && !is_replay_for_other(&delivery.message, &self.name)
    }

    async fn process_one(
        &self,
        delivery: &mut Delivery,
        recovery: &Recovery,
        untried: &mut Option<Untried>,
    ) -> Option<()> {
        let (outcome, alone) = match Event::parse(&delivery.message, delivery.number) {
            _ if !self.is_selected(delivery) => (Ok(()), Alone::default()),
            Ok(event) => self.handle(event, delivery, recovery, untried).await?,
            Err(error) => (Err(Cause { attempts: 0, reason: error.to_string() }), Alone::default()),
        };
        if let Err(cause) = &outcome {
            self.store_dead_letter(delivery, cause).await?;
        }
        // The next attempt can end the process, and with it an acknowledgement that was not sent.
        let acknowledged =
            if alone.is_alone() { delivery.message.double_ack().await } else { delivery.message.ack().await };
        if let Err(error) = acknowledged {
            tracing::warn!(error, "failed to acknowledge an event");
        }
        if outcome.is_err() {
            self.monitor.change(|status| status.dead_letters += 1);
        }
        recovery.forget(delivery);
        Some(())
    }

    async fn handle<'a>(
        &self,
        event: Event,
        delivery: &mut Delivery,
        recovery: &'a Recovery,
        untried: &mut Option<Untried>,
    ) -> Option<(Result<(), Cause>, Alone<'a>)> {
        // Once: an attempt that returned is no crash.
        let crashes = recovery.crashes(delivery);
        if self.retry_for.is_some() && crashes >= MAX_CRASHES {
            let attempts = u32::try_from(MAX_CRASHES).unwrap_or(u32::MAX);
            let reason = format!("the process ended {attempts} times while it handled the event");
            return Some((Err(Cause { attempts, reason }), Alone::default()));
        }
        let event = [Arc::new(event)];
        let mut failures = Failures::new(self.retry_for);
        loop {
            let attempt = |starting| self.handlers.attempt(&event, starting);
            let (result, alone) = recovery.attempt(delivery, crashes, untried, attempt).await;
            let Err(failed) = result else { return Some((Ok(()), alone)) };
            match failures.add(failed, Instant::now()) {
                Next::GiveUp(cause) => return Some((Err(cause), alone)),
                Next::Retry { delay, reason } => {
                    tracing::warn!(
                        reason,
                        attempt = failures.attempts,
                        consumer = self.name,
                        event_id = event[0].event_id,
                        source_id = event[0].source_id,
                        tenant_id = event[0].tenant_id,
                        "failed to handle an event; it is tried again"
                    );
                    drop(alone);
                    drop(untried.take());
                    self.pause(delay).await?;
                }
            }
        }
    }

    /// Waits until the next attempt. Returns `None` if the process stops: the next one makes it.
    async fn pause(&self, delay: Duration) -> Option<()> {
        let mut stopping = self.is_stopping.subscribe();
        let is_stopping = timeout(delay, stopping.wait_for(|is_stopping| *is_stopping)).await.is_ok();
        (!is_stopping).then_some(())
    }

    /// Tries until the process stops: the event would be lost otherwise.
    async fn store_dead_letter(&self, delivery: &Delivery, cause: &Cause) -> Option<()> {
        for attempt in 1.. {
            match dead_letter::store(&self.context, &self.name, delivery, cause).await {
                Ok(()) => break,
                Err(error) => tracing::error!(error, consumer = self.name, "failed to store a dead letter"),
            }
            self.pause(delay(attempt)).await?;
        }
        tracing::warn!(
            consumer = self.name,
            event_id = delivery.header("ce-id"),
            source_id = delivery.header("ce-source"),
            tenant_id = delivery.tenant(),
            attempts = cause.attempts,
            reason = cause.reason,
            "an event became a dead letter"
        );
        Some(())
    }
}

/// The failed attempts of one event.
struct Failures {
    /// Limit in time. `None` is without any limit.
    retry_for: Option<Duration>,
    first: Option<Instant>,
    attempts: u32,
    panics: u32,
}

/// What follows a failed attempt.
#[derive(Debug)]
enum Next {
    Retry { delay: Duration, reason: String },
    GiveUp(Cause),
}

impl Failures {
    fn new(retry_for: Option<Duration>) -> Self {
        Self { retry_for, first: None, attempts: 0, panics: 0 }
    }

    fn add(&mut self, failed: Failed, now: Instant) -> Next {
        self.attempts += 1;
        let elapsed = now - *self.first.get_or_insert(now);
        let delay = delay(self.attempts);
        let (error, is_final) = match failed {
            Failed::Returned(Failure::Reject(error)) => (error, true),
            Failed::Returned(Failure::Retry(error)) => {
                (error, self.retry_for.is_some_and(|limit| elapsed + delay > limit))
            }
            Failed::Panicked(error) => {
                self.panics += 1;
                (error, self.panics >= MAX_PANICS)
            }
        };
        let reason = dead_letter::reason(&*error);
        if is_final && self.retry_for.is_some() {
            Next::GiveUp(Cause { attempts: self.attempts, reason })
        } else {
            Next::Retry { delay, reason }
        }
    }
}

/// Returns the delay after this failed attempt.
fn delay(attempt: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << (attempt - 1).min(16)).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// Time from the first failed attempt until the event is given up, and the number of attempts. Each attempt takes no time.
    fn give_up_after(retry_for: Option<Duration>, failed: impl Fn() -> Failed) -> Option<(Duration, u32)> {
        let (start, mut failures) = (Instant::now(), Failures::new(retry_for));
        let mut now = start;
        while now < start + 3 * HOUR {
            match failures.add(failed(), now) {
                Next::Retry { delay, .. } => now += delay,
                Next::GiveUp(cause) => return Some((now - start, cause.attempts)),
            }
        }
        None
    }

    #[test]
    fn an_event_survives_an_outage_of_half_an_hour_by_default() {
        let config = Config::new("", "", "");
        assert_eq!(config.retry_for, Some(HOUR));
        let failed = || Failed::Returned(Failure::retry("no connection"));
        let (time, _) = give_up_after(config.retry_for, failed).unwrap();
        assert!(time + 2 * MAX_DELAY > HOUR && time <= HOUR, "{time:?}");
    }

    #[test]
    fn a_handler_that_panics_has_five_attempts() {
        let failed = || Failed::Panicked("index out of bounds".into());
        let given_up = give_up_after(Some(HOUR), failed);
        assert_eq!(given_up, Some((Duration::from_millis(7500), MAX_PANICS)));
    }

    #[test]
    fn panics_during_an_outage_do_not_add_to_its_failures() {
        let mut failures = Failures::new(Some(HOUR));
        let now = Instant::now();
        for _ in 0..20 {
            let failed = Failed::Returned(Failure::retry("no connection"));
            assert!(matches!(failures.add(failed, now), Next::Retry { .. }));
        }
        for _ in 1..MAX_PANICS {
            assert!(matches!(failures.add(Failed::Panicked("".into()), now), Next::Retry { .. }));
        }
        assert!(matches!(failures.add(Failed::Panicked("".into()), now), Next::GiveUp(_)));
    }

    #[test]
    fn without_a_limit_nothing_is_given_up() {
        for failed in [
            || Failed::Returned(Failure::retry("no connection")),
            || Failed::Returned(Failure::reject("unknown format")),
            || Failed::Panicked("index out of bounds".into()),
        ] {
            assert_eq!(give_up_after(None, failed), None);
        }
    }
}
