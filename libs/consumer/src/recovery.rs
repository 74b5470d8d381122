//! The start of a process: the previous one may have been ended by the handler of an event that it was handling. The events that
//! were in flight are then handled one at a time, so that only the one that was running at a crash can become a dead letter.
//!
//! The number of deliveries of an event records its crashes ([`marks`]).

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::lanes::Delivery;
use crate::marks;
use crate::source::Source;

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
            Start::AfterProcess => marks::crashes(delivery.number),
            // The mark was set by this process, which has not crashed.
            Start::Interrupted => marks::crashes(delivery.number).saturating_sub(1),
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
        self.redeliver(delivery, marks::marked(delivery.number, crashes)).await;
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
