//! The start of a process: the previous one may have been ended by the handler of an event that it was handling. The events that
//! were in flight are then handled one at a time, so that only the one that was running at a crash can become a dead letter.
//!
//! When a process has ended, only the broker has state about it: the number of deliveries of each event. This number records the
//! crashes. Before its first attempt, the event is returned to the server and received again until the number is 16 · k, where k
//! is the number of crashes including this attempt. If the process ends, the next delivery has the number 16 · k + 1. After an
//! attempt that failed or was abandoned, one more delivery removes the mark.
//!
//! Each restart also increases the number of an event that only waits. Such an event is delivered past the next mark before it is
//! near it ([`unmarked`]).

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::lanes::Delivery;
use crate::source::Source;

/// Number of crashes during the handling of an event until it becomes a dead letter.
pub(crate) const MAX_CRASHES: u64 = 5;
/// Distance of two marks.
const STEP: u64 = 16;
/// Distance to a mark at which an event is delivered past it. Several crashes during this would have to follow each other.
const NEAR: u64 = 4;
const CYCLE: u64 = STEP * (MAX_CRASHES + 1);
/// Time after which other events are handled too, although the attempt has not returned.
const TRIAL_TIME: Duration = Duration::from_secs(10);
/// The same for an event that was being handled at the last crash.
const SUSPECT_TRIAL_TIME: Duration = Duration::from_mins(1);
/// Time after which no attempt runs alone, so that new events are read although many handlers block.
const MAX_TIME: Duration = Duration::from_mins(2);
/// Time to remove a mark when the events in flight are abandoned.
const UNMARK_TIMEOUT: Duration = Duration::from_secs(2);

/// How a session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The first session of the process.
    AfterProcess,
    /// The first session of the process was interrupted before all its events were tried.
    Interrupted,
    /// This process has tried the events of the previous one.
    Normal,
}

/// The part of a session in which events are handled one at a time.
pub(crate) struct Recovery {
    start: Start,
    started: Instant,
    is_over: Cell<bool>,
    /// The attempt that runs has the permit.
    gate: Semaphore,
    /// Events in flight with a mark.
    marked: RefCell<Vec<Delivery>>,
    /// Events that were started and have no completed attempt.
    untried: Cell<usize>,
    changed: Notify,
    sources: Rc<[Source]>,
    /// Events that arrive while another one is delivered again.
    others: mpsc::UnboundedSender<Delivery>,
}

/// An event that has no completed attempt.
pub(crate) struct Untried(Rc<Recovery>);

/// Connects an attempt with the task of its handler.
pub(crate) struct Starting {
    reached: oneshot::Sender<()>,
    allowed: oneshot::Receiver<()>,
}

/// The right to run an attempt. Without a permit, others run at the same time.
#[derive(Default)]
pub(crate) struct Alone<'a>(Option<SemaphorePermit<'a>>);

impl Alone<'_> {
    /// Whether no other attempt runs at the same time.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.is_some()
    }
}

impl Recovery {
    pub(crate) fn new(start: Start, sources: Rc<[Source]>, others: mpsc::UnboundedSender<Delivery>) -> Self {
        Self {
            start,
            started: Instant::now(),
            is_over: Cell::new(start == Start::Normal),
            gate: Semaphore::new(1),
            marked: RefCell::default(),
            untried: Cell::new(0),
            changed: Notify::new(),
            sources,
            others,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// How the next session starts if this one is interrupted now.
    pub(crate) fn next_start(&self) -> Start {
        if self.is_over() { Start::Normal } else { Start::Interrupted }
    }

    /// Ends the recovery when all events of the previous process have arrived and were tried. Events that wait behind a failed one
    /// of their source need not be tried. An event that failed is tried again at the same time as others.
    pub(crate) fn update(&self) {
        if self.untried.get() == 0 && self.sources.iter().all(|source| source.due() == 0) {
            self.is_over.set(true);
        }
    }

    /// Waits until [`Recovery::update`] can have an effect.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Registers an event that will be handled.
    pub(crate) fn register(self: &Rc<Self>) -> Option<Untried> {
        (!self.is_over()).then(|| {
            self.untried.set(self.untried.get() + 1);
            Untried(Rc::clone(self))
        })
    }

    /// Number of crashes of consecutive processes while they handled this event.
    pub(crate) fn crashes(&self, delivery: &Delivery) -> u64 {
        match self.start {
            Start::AfterProcess => crashes(delivery.number),
            // The mark was set by this process, which has not crashed.
            Start::Interrupted => crashes(delivery.number).saturating_sub(1),
            Start::Normal => 0,
        }
    }

    /// Runs an attempt. The first one of an event that is `untried` runs alone, and the event is marked. The result contains the
    /// right to run alone, for the acknowledgement.
    pub(crate) async fn attempt<E, A>(
        &self,
        delivery: &mut Delivery,
        crashes: u64,
        untried: &mut Option<Untried>,
        attempt: impl FnOnce(Option<Starting>) -> A,
    ) -> (Result<(), E>, Alone<'_>)
    where
        A: Future<Output = Result<(), E>>,
    {
        let permit = if untried.is_some() { self.gate.acquire().await.ok() } else { None };
        let Some(permit) = permit.filter(|_| self.started.elapsed() < MAX_TIME) else {
            drop(untried.take());
            return (attempt(None).await, Alone::default());
        };
        let (reached, is_reached) = oneshot::channel();
        let (allow, allowed) = oneshot::channel();
        let mut attempt = pin!(attempt(Some(Starting { reached, allowed })));
        // Not marked before its task runs: the runtime can be blocked by the handler of another event.
        tokio::select! {
            biased;
            result = &mut attempt => return (result, Alone(Some(permit))),
            _ = is_reached => {}
            () = sleep(TRIAL_TIME) => {
                // It waits for a thread of the runtime, or for a handler of an earlier session.
                drop(permit);
                drop(untried.take());
                let _ = allow.send(());
                return (attempt.await, Alone::default());
            }
        }
        self.redeliver(delivery, marked(delivery.number, crashes)).await;
        self.marked.borrow_mut().push(delivery.clone());
        // Fails only if the task has ended.
        let _ = allow.send(());
        let result = tokio::select! {
            result = &mut attempt => Some(result),
            () = sleep(if crashes > 0 { SUSPECT_TRIAL_TIME } else { TRIAL_TIME }) => None,
        };
        // The mark of a first crash remains while others run: the process can still crash. The event then runs alone for longer.
        if matches!(result, Some(Err(_))) || (result.is_none() && crashes > 0) {
            self.redeliver(delivery, delivery.number + 1).await;
            self.forget(delivery);
        }
        if let Some(result) = result {
            return (result, Alone(Some(permit)));
        }
        drop(permit);
        drop(untried.take());
        (attempt.await, Alone::default())
    }

    /// The event has no mark any more.
    pub(crate) fn forget(&self, delivery: &Delivery) {
        self.marked.borrow_mut().retain(|marked| marked.position != delivery.position);
    }

    /// Removes all marks, after the attempts were dropped: a stop is no crash.
    pub(crate) async fn abandon(&self) {
        let remove_all = async {
            for mut delivery in self.marked.take() {
                let number = delivery.number + 1;
                self.redeliver(&mut delivery, number).await;
            }
        };
        if timeout(UNMARK_TIMEOUT, remove_all).await.is_err() {
            tracing::debug!("failed to remove the marks of events");
        }
    }

    /// Changes the number of deliveries.
    async fn redeliver(&self, delivery: &mut Delivery, number: u64) {
        if let Some(source) = self.sources.get(delivery.position.0) {
            source.redeliver(delivery, number, &self.others).await;
        }
    }
}

impl Starting {
    /// Waits in the task until the handler may be called.
    pub(crate) async fn wait(self) {
        // Fails only if the attempt was dropped, and the task with it.
        let _ = self.reached.send(());
        let _ = self.allowed.await;
    }
}

impl Drop for Untried {
    fn drop(&mut self) {
        self.0.untried.set(self.0.untried.get() - 1);
        self.0.changed.notify_one();
    }
}

/// Number of crashes that a delivery with this number shows.
fn crashes(number: u64) -> u64 {
    let number = number % CYCLE;
    if number % STEP == 1 { number / STEP } else { 0 }
}

/// Returns the next number of deliveries that marks an attempt after this number of crashes.
fn marked(number: u64, crashes: u64) -> u64 {
    let mark = STEP * (crashes + 1);
    number + 1 + (mark + CYCLE - (number + 1) % CYCLE) % CYCLE
}

/// Returns the number of deliveries that an event with this number must have before it waits: near a mark, a number after it.
pub(crate) fn unmarked(number: u64) -> u64 {
    let before_mark = (STEP - number % STEP) % STEP;
    if before_mark < NEAR { number + before_mark + 2 } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_of_a_marked_attempt_adds_one_and_nothing_else_does() {
        for first in 1..200 {
            // The number after a crash of another event.
            let mut number = first;
            for expected in 1..=MAX_CRASHES {
                let before = marked(number, expected - 1);
                assert!(before > number && before <= number + CYCLE, "{number}");
                // Returned: the next delivery shows no crash.
                assert_eq!(crashes(before + 1 + 1), 0, "{before}");
                number = before + 1;
                assert_eq!(crashes(number), expected, "{number}");
            }
        }
        assert_eq!((0..=STEP).map(crashes).max(), Some(0));
    }

    #[test]
    fn deliveries_without_an_attempt_show_no_crash() {
        for lost in 0..NEAR {
            let mut number = 1;
            for restart in 0..1000 {
                assert_eq!(crashes(number), 0, "{number}");
                // Some processes end before they deliver it past the mark.
                number = if restart % NEAR < lost { number } else { unmarked(number) } + 1;
            }
        }
    }

    #[test]
    fn an_event_that_was_marked_is_not_near_the_next_mark() {
        for crashes_before in 0..MAX_CRASHES {
            let number = marked(1, crashes_before) + 1;
            assert_eq!(unmarked(number), number);
        }
    }

    #[test]
    fn without_dead_letters_the_count_starts_again() {
        let number = marked(STEP * MAX_CRASHES + 1, MAX_CRASHES);
        assert_eq!(crashes(number + 1), 0);
    }

    #[test]
    fn an_interrupted_mark_shows_at_most_the_earlier_crashes() {
        for crashes_before in 0..MAX_CRASHES {
            let first = STEP * crashes_before + 1;
            for number in first..marked(first, crashes_before) {
                assert!(crashes(number) <= crashes_before, "{number}");
            }
        }
    }
}
