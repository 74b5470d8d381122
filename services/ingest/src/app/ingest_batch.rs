//! Take a batch: one result an event, in the request's order; an invalid event never blocks a valid one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bus::{Ack, Message, PublishError};
use bytes::Bytes;
use contract::ProblemKind;
use contract::events::{BatchResponse, EventResult, EventStatus};
use tokio::task::JoinError;
use tokio::time::Instant;
use udm::{Event, Invalid, SplitError, split_lines, split_list};
use uuid::Uuid;

use super::{App, Ids, PUBLISH_LIMIT, Sending, kind_of};

/// Above this, splitting and checking would hold up other requests of the thread: a megabyte takes a few milliseconds.
const PLAN_INLINE: usize = 256 * 1024;

/// How the events of a batch are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A JSON list.
    List,
    /// A line each.
    Lines,
}

/// The body never became a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error("the batch holds no event")]
    Empty,
    #[error("the batch could not be looked at")]
    Defect(#[from] JoinError),
}

/// What is to become of one item.
enum Plan {
    /// It was refused.
    Refused(EventResult),
    /// It is the n-th message that is published.
    Published { ids: Ids, at: usize },
    /// It is the same event as an earlier item: whatever becomes of that becomes of it.
    Repeats { ids: Ids, at: usize },
}

/// The plans of a request's items, and the messages to publish for them.
#[derive(Default)]
struct Planned<'a> {
    plans: Vec<Plan>,
    messages: Vec<Message>,
    /// The first item with a key, for senders who use one twice in a batch.
    seen: HashMap<(String, String), (&'a [u8], usize)>,
}

impl App {
    /// Answers when the stream has answered for every event.
    pub(crate) async fn ingest_batch(
        &self,
        sending: Sending,
        body: Bytes,
        format: Format,
    ) -> Result<BatchResponse, BatchError> {
        let deadline = Instant::now() + PUBLISH_LIMIT;
        let tenant_id = sending.caller.tenant_id().clone();
        let aside = body.len() > PLAN_INLINE;
        let planning = move || plan_all(&sending, &body, format);
        let (plans, messages) =
            if aside { tokio::task::spawn_blocking(planning).await?? } else { planning()? };
        let outcomes = if messages.is_empty() {
            Vec::new()
        } else {
            self.publisher.publish_all(&tenant_id, messages, deadline).await
        };
        let results: Vec<_> = plans
            .into_iter()
            .enumerate()
            .map(|(index, plan)| match plan {
                Plan::Refused(result) => result,
                Plan::Published { ids, at } => published(index, ids, &outcomes[at], false),
                Plan::Repeats { ids, at } => published(index, ids, &outcomes[at], true),
            })
            .collect();
        let successful_events = results.iter().filter(|r| r.status == EventStatus::Accepted).count();
        Ok(BatchResponse {
            batch_id: Uuid::now_v7(),
            total_events: results.len(),
            successful_events,
            failed_events: results.len() - successful_events,
            results,
        })
    }
}

fn plan_all(sending: &Sending, body: &[u8], format: Format) -> Result<(Vec<Plan>, Vec<Message>), BatchError> {
    let items = match format {
        Format::List => split_list(body)?,
        Format::Lines => split_lines(body)?,
    };
    if items.is_empty() {
        return Err(BatchError::Empty);
    }
    let mut planned = Planned::default();
    for (index, item) in items.into_iter().enumerate() {
        planned.plan(sending, index, item);
    }
    Ok((planned.plans, planned.messages))
}

impl<'a> Planned<'a> {
    fn plan(&mut self, sending: &Sending, index: usize, item: &'a [u8]) {
        let plan = match udm::parse(item) {
            Ok(event) => self.plan_event(sending, index, &event),
            Err(invalid) => Plan::Refused(refused_by_check(index, invalid)),
        };
        self.plans.push(plan);
    }

    fn plan_event(&mut self, sending: &Sending, index: usize, event: &Event<'a>) -> Plan {
        let item = event.raw;
        // A copy: a slice would keep the whole body in memory until the last of its events is acknowledged.
        let (ids, message) = match sending.message(event, Bytes::copy_from_slice(item)) {
            Ok(made) => made,
            Err(kind) => {
                let event_id = event.event_id.as_ref().map(ToString::to_string);
                let pointer = (kind == ProblemKind::SourceNotAllowed).then(|| "/source_id".to_owned());
                return Plan::Refused(refused(index, event_id, kind, kind.title().to_owned(), pointer));
            }
        };
        let at = self.messages.len();
        match self.seen.entry((event.source_id.to_string(), ids.event_id.clone())) {
            Entry::Occupied(first) if first.get().0 == item => Plan::Repeats { ids, at: first.get().1 },
            Entry::Occupied(_) => {
                let kind = ProblemKind::EventIdConflict;
                let pointer = Some("/event_id".to_owned());
                Plan::Refused(refused(index, Some(ids.event_id), kind, kind.title().to_owned(), pointer))
            }
            Entry::Vacant(place) => {
                place.insert((item, at));
                self.messages.push(message);
                Plan::Published { ids, at }
            }
        }
    }
}

fn published(index: usize, ids: Ids, outcome: &Result<Ack, PublishError>, repeated: bool) -> EventResult {
    match outcome {
        Ok(ack) => EventResult {
            index,
            event_id: Some(ids.event_id),
            status: EventStatus::Accepted,
            duplicate: Some(ack.duplicate || repeated),
            server_event_id: Some(ids.server_event_id),
            code: None,
            message: None,
            pointer: None,
            retryable: None,
        },
        Err(error) => {
            let kind = kind_of(error);
            refused(index, Some(ids.event_id), kind, kind.title().to_owned(), None)
        }
    }
}

fn refused_by_check(index: usize, invalid: Invalid) -> EventResult {
    let message = invalid.to_string();
    match invalid {
        Invalid::NotJson(_) => refused(index, None, ProblemKind::MalformedJson, message, None),
        Invalid::TooLarge => refused(index, None, ProblemKind::EventTooLarge, message, None),
        Invalid::WrongShape { event_id, faults } => {
            let kind = ProblemKind::ValidationFailed;
            match faults.into_iter().next() {
                Some(first) => refused(index, event_id, kind, first.message, Some(first.pointer)),
                None => refused(index, event_id, kind, message, None),
            }
        }
    }
}

fn refused(
    index: usize,
    event_id: Option<String>,
    kind: ProblemKind,
    message: String,
    pointer: Option<String>,
) -> EventResult {
    EventResult {
        index,
        event_id,
        status: EventStatus::Rejected,
        duplicate: None,
        server_event_id: None,
        code: Some(kind.code().to_owned()),
        message: Some(message),
        pointer,
        retryable: Some(kind.is_retryable()),
    }
}
