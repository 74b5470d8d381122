//! Collects concurrent sends into one request, which costs a fraction of a request for each.
//!
//! The first send opens a group and starts the task that sends it. The senders own the task: it ends when all of them have their
//! result, or are dropped.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use contract::ProblemKind;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::retry::milliseconds;
use super::{TransportState, batch, current_runtime};
use crate::{OutgoingEvent, SendResult, TransportError, TransportErrorKind};

/// A group with this number of events is sent at once.
const MAX_EVENTS: usize = 500;
/// A group with this number of bytes is sent at once.
const MAX_BYTES: usize = 1024 * 1024;

/// Collects concurrent sends.
pub(super) struct Linger {
    /// Maximum delay of an event.
    delay: Duration,
    open: Mutex<OpenGroup>,
}

/// The group that collects events. The task owns the group, and the senders own the task.
#[derive(Default)]
struct OpenGroup {
    group: Weak<Group>,
    task: Weak<JoinSet<()>>,
    /// Only sends of this runtime join, because another one can stop earlier.
    runtime: Option<runtime::Id>,
}

struct Group {
    /// `None` after the task has taken the events.
    entries: Mutex<Option<Entries>>,
    /// Ends the delay.
    send_now: Notify,
}

/// An event and its sender.
struct Entry {
    event: OutgoingEvent,
    reply: oneshot::Sender<SendResult>,
}

/// The events of a group, in the order of the sends.
#[derive(Default)]
struct Entries {
    list: Vec<Entry>,
    ids: HashSet<String>,
    bytes: usize,
}

impl Linger {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, open: Mutex::default() }
    }

    /// Sends an event together with others.
    pub(super) async fn send(&self, shared: &TransportState, event: OutgoingEvent) -> SendResult {
        let (started, event_id) = (shared.clock.now(), event.event_id().to_owned());
        let runtime = match current_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return SendResult::fail(event_id, error),
        };
        let (reply, result) = oneshot::channel();
        // Dropping the last reference stops the task.
        let _task = self.add(shared, Entry { event, reply }, runtime);
        let Ok(mut result) = result.await else {
            let message = "the task of the request ended: the runtime has stopped, or a function of `on_request` has panicked";
            let error = TransportError::new(TransportErrorKind::Connection, message);
            return SendResult::fail(event_id, error);
        };
        // Includes the delay.
        let response_time = milliseconds(shared.clock.now() - started);
        result.response_time_ms = result.success.then_some(response_time);
        result
    }

    /// Adds an event to the open group, or opens one.
    fn add(&self, shared: &TransportState, entry: Entry, runtime: runtime::Id) -> Arc<JoinSet<()>> {
        let mut open = self.open.lock();
        let entry = match (open.group.upgrade(), open.task.upgrade()) {
            (Some(group), Some(task)) if open.runtime == Some(runtime) => match group.add(entry) {
                Ok(()) => return task,
                Err(entry) => entry,
            },
            _ => entry,
        };
        let group = Arc::new(Group::new(entry));
        let mut task = JoinSet::new();
        task.spawn(Arc::clone(&group).run(self.delay, shared.clone()));
        let task = Arc::new(task);
        let (group, open_task) = (Arc::downgrade(&group), Arc::downgrade(&task));
        *open = OpenGroup { group, task: open_task, runtime: Some(runtime) };
        task
    }
}

impl Group {
    fn new(entry: Entry) -> Self {
        let mut entries = Entries::default();
        entries.push(entry);
        Self { entries: Mutex::new(Some(entries)), send_now: Notify::new() }
    }

    /// Adds an event. Returns it if the group is closed or full, or has an event with the same id: in one request, a second
    /// event with other bytes is a conflict, and in another request it is a duplicate.
    fn add(&self, entry: Entry) -> Result<(), Entry> {
        let mut entries = self.entries.lock();
        let Some(entries) = &mut *entries else {
            return Err(entry);
        };
        let rejected = if entries.is_full() || entries.ids.contains(entry.event.event_id()) {
            Some(entry)
        } else {
            entries.push(entry);
            None
        };
        if rejected.is_some() || entries.is_full() {
            self.send_now.notify_one();
        }
        rejected.map_or(Ok(()), Err)
    }

    /// Waits for the end of the delay or for a full group, and sends its events.
    async fn run(self: Arc<Self>, delay: Duration, shared: TransportState) {
        // An error is the end of the delay.
        let _ = timeout(delay, self.send_now.notified()).await;
        let entries = self.entries.lock().take().unwrap_or_default().list;
        let (events, replies) =
            entries.into_iter().filter(|entry| !entry.reply.is_closed()).map(Entry::into_parts).unzip();
        deliver(&shared, events, replies).await;
    }
}

impl Entry {
    fn into_parts(self) -> (OutgoingEvent, Option<oneshot::Sender<SendResult>>) {
        (self.event, Some(self.reply))
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.event.body().len();
        self.ids.insert(entry.event.event_id().to_owned());
        self.list.push(entry);
    }

    fn is_full(&self) -> bool {
        self.list.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }
}

/// Sends events. A sender gets its result as soon as it is final: it does not wait for the retries of other events.
async fn deliver(
    shared: &TransportState,
    events: Vec<OutgoingEvent>,
    mut replies: Vec<Option<oneshot::Sender<SendResult>>>,
) {
    if let ([event], [reply]) = (&events[..], &mut replies[..]) {
        let result = shared.send(event).await;
        reply_with(reply, || result);
        return;
    }
    let mut on_change = |_, results: &[Option<SendResult>]| {
        for (result, reply) in results.iter().zip(&mut replies) {
            if let Some(result) = result {
                reply_with(reply, || as_of_one_event(result.clone()));
            }
        }
    };
    // The senders have the results.
    let _ = batch::deliver(shared, &events, &mut on_change).await;
}

fn reply_with(reply: &mut Option<oneshot::Sender<SendResult>>, result: impl FnOnce() -> SendResult) {
    if let Some(reply) = reply.take() {
        // An error means that the send was dropped.
        let _ = reply.send(result());
    }
}

/// Replaces the status of the batch in an error by the status that a request with only this event has.
fn as_of_one_event(mut result: SendResult) -> SendResult {
    if let Some(error) = &mut result.error
        && let Some(kind) = error.code.as_deref().and_then(ProblemKind::from_code)
    {
        error.status = Some(kind.status());
        error.retry_after = error.retry_after.filter(|_| error.retryable);
    }
    result
}
