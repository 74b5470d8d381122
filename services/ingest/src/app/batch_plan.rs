//! The plan for a batch: which of its items are published, quarantined or rejected.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bus::{BudgetExceeded, Message, QuarantinedItem, Reservation};
use bytes::Bytes;
use contract::ProblemKind;
use contract::events::{EventResult, EventStatus, InvalidItems};
use futures::StreamExt as _;
use tokio::task::JoinError;
use udm::{Event, ParseError, SplitError, split_lines, split_list};

use super::paced::paced;
use super::{EventIds, Submission, random_id};

/// The least memory that an item counts as: its message or its error, its ids and its result take some 600 bytes, however short it is.
const MIN_ITEM_BYTES: usize = 1024;
/// A result in the response without its message and its pointer, which can be twice as long as the name that it contains.
const RESULT_BYTES: usize = 256;

/// Representation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One event.
    Single,
    /// A JSON list.
    List,
    /// One event per line.
    Lines,
}

/// The body is not a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error("{error}")]
    Split {
        error: SplitError,
        /// The number of items before the error, and the one with it.
        items: usize,
    },
    #[error("the batch contains no event")]
    Empty,
    #[error("no memory is left for the items")]
    Overloaded(#[from] BudgetExceeded),
    #[error("failed to build a message")]
    Headers,
    #[error("failed to validate the batch")]
    Panicked(#[from] JoinError),
}

/// The plan for one item of a batch.
pub(super) enum Plan {
    /// The item is rejected with this result.
    Rejected(EventResult),
    /// The item is stored as the dead letters with these indexes. If the quarantine is full, it is rejected with this result.
    Quarantined { ids: EventIds, dead_letters: Range<usize>, result: EventResult },
    /// The item is published as the message with this index.
    Published { ids: EventIds, message: usize },
    /// The item equals an earlier one and has the outcome of its message.
    Duplicate { ids: EventIds, message: usize },
}

/// The plans of the items, and the messages to publish.
#[derive(Default)]
struct BatchPlan<'a> {
    plans: Vec<Plan>,
    messages: Vec<Message>,
    dead_letters: Vec<Message>,
    parts: Vec<usize>,
    /// Bytes and message of the first item with each source and event id.
    seen: HashMap<(String, String), (&'a [u8], usize)>,
    /// The numbers of equal items, if invalid items are quarantined.
    equal: Option<HashMap<&'a [u8], usize>>,
}

/// The messages of a batch.
pub(super) struct Planned {
    pub(super) plans: Vec<Plan>,
    pub(super) messages: Vec<Message>,
    pub(super) dead_letters: Vec<Message>,
    /// The number of dead letters of each quarantined item.
    pub(super) parts: Vec<usize>,
    /// The number of the other items: rejected ones and copies.
    pub(super) others: usize,
}

/// Plans a batch. `memory` grows with the items that are shorter than they count or than their results. The body has a separate
/// reservation.
///
/// # Errors
/// The body is not a batch, or no memory is left for its items.
pub(super) async fn plan_batch(
    submission: Arc<Submission>,
    body: Bytes,
    format: Format,
    invalid: Option<InvalidItems>,
    memory: &mut Reservation,
) -> Result<Planned, BatchError> {
    let length = body.len();
    match format {
        Format::Single => plan_items(&submission, iter::once(Ok(&body[..])), length, invalid, memory).await,
        Format::List if invalid.is_none() || !body.trim_ascii().is_empty() => {
            plan_items(&submission, split_list(&body), length, invalid, memory).await
        }
        // A blank body has nothing to quarantine, and no lines.
        Format::List | Format::Lines => {
            plan_items(&submission, split_lines(&body), length, invalid, memory).await
        }
    }
}

async fn plan_items<'a>(
    submission: &Submission,
    items: impl Iterator<Item = Result<&'a [u8], SplitError>>,
    body_len: usize,
    invalid: Option<InvalidItems>,
    memory: &mut Reservation,
) -> Result<Planned, BatchError> {
    let mut batch = BatchPlan { equal: invalid.map(|_| HashMap::new()), ..BatchPlan::default() };
    let (mut items, mut missing) = (pin!(paced(items, body_len).enumerate()), 0);
    while let Some((index, item)) = items.next().await {
        let item = item.map_err(|error| BatchError::Split { error, items: index + 1 })?;
        let plan = match udm::parse(item) {
            Ok(event) => batch.plan_event(submission, index, &event),
            Err(error) => batch.plan_invalid(submission, item, InvalidItem::new(index, error)),
        };
        missing += MIN_ITEM_BYTES.max(plan.result_bytes()).saturating_sub(item.len());
        if let Err(exceeded) = memory.grow_to(missing) {
            // Released at once: otherwise, other batches of the tenant, which grow at the same time, would fail too.
            memory.shrink_to(0);
            return Err(exceeded.into());
        }
        batch.plans.push(plan);
    }
    if batch.plans.is_empty() && invalid.is_none() {
        return Err(BatchError::Empty);
    }
    let BatchPlan { plans, messages, dead_letters, parts, .. } = batch;
    let is_other = |plan: &&Plan| matches!(plan, Plan::Rejected(_) | Plan::Duplicate { .. });
    let others = plans.iter().filter(is_other).count();
    Ok(Planned { plans, messages, dead_letters, parts, others })
}

/// Plans to quarantine a body that is not a batch, with an error in the last one of `items`. All of its bytes are stored.
pub(super) fn plan_body(
    submission: &Submission,
    body: &[u8],
    error: &SplitError,
    items: usize,
) -> Result<Planned, BatchError> {
    let kind = split_problem(error);
    let reason = error.to_string();
    let result = rejected(0, None, kind, reason.clone(), None);
    let invalid = InvalidItem { source_id: None, reason, result };
    let content_id = bus::content_id(body, 0);
    let dead_letters = invalid.quarantine(&content_id, body).parts(&submission.context);
    let dead_letters = dead_letters.map_err(|_| BatchError::Headers)?;
    let (ids, parts) = (submission.ids("", content_id), dead_letters.len());
    let plans = vec![Plan::Quarantined { ids, dead_letters: 0..parts, result: invalid.result }];
    Ok(Planned { plans, messages: Vec::new(), dead_letters, parts: vec![parts], others: items - 1 })
}

/// Returns the problem of a body that is not a batch.
pub(crate) fn split_problem(error: &SplitError) -> ProblemKind {
    match error {
        SplitError::NotJson(_) => ProblemKind::MalformedJson,
        SplitError::NotAList => ProblemKind::ValidationFailed,
        SplitError::TooMany => ProblemKind::BatchTooLarge,
    }
}

impl Plan {
    /// Approximate size of the result that the plan contains, in the response.
    fn result_bytes(&self) -> usize {
        let (Self::Rejected(result) | Self::Quarantined { result, .. }) = self else { return 0 };
        let texts = [&result.pointer, &result.message].into_iter().flatten();
        RESULT_BYTES + texts.map(String::len).sum::<usize>()
    }
}

impl<'a> BatchPlan<'a> {
    fn plan_event(&mut self, submission: &Submission, index: usize, event: &Event<'a>) -> Plan {
        let item = event.raw;
        let number = event.event_id.is_none().then(|| self.number(item)).flatten();
        let generate = || number.map_or_else(random_id, |number| bus::content_id(item, number));
        // A copy: a slice would keep the whole body in memory until its last event is acknowledged.
        let (ids, message) = match submission.message(event, generate, Bytes::copy_from_slice(item)) {
            Ok(message) => message,
            Err(kind) => {
                let event_id = event.event_id.as_ref().map(ToString::to_string);
                let pointer =
                    (kind == ProblemKind::SourceNotAllowed).then(|| format!("/{}", event.source_id_name));
                return self.plan_invalid(
                    submission,
                    item,
                    InvalidItem::from_event(event, index, event_id, kind, pointer),
                );
            }
        };
        match self.seen.entry((event.source_id.to_string(), ids.event_id.clone())) {
            Entry::Occupied(first) if first.get().0 == item => {
                Plan::Duplicate { ids, message: first.get().1 }
            }
            Entry::Occupied(_) => {
                let pointer = Some(format!("/{}", event.event_id_path));
                let kind = ProblemKind::EventIdConflict;
                let invalid = InvalidItem::from_event(event, index, Some(ids.event_id), kind, pointer);
                self.plan_invalid(submission, item, invalid)
            }
            Entry::Vacant(entry) => {
                let at = self.messages.len();
                entry.insert((item, at));
                self.messages.push(message);
                Plan::Published { ids, message: at }
            }
        }
    }

    /// Plans to quarantine an item, if invalid items are quarantined.
    fn plan_invalid(&mut self, submission: &Submission, item: &'a [u8], invalid: InvalidItem) -> Plan {
        let is_permanent = invalid.result.retryable == Some(false);
        let Some(number) = self.number(item).filter(|_| is_permanent) else {
            return Plan::Rejected(invalid.result);
        };
        let content_id = bus::content_id(item, number);
        let Ok(messages) = invalid.quarantine(&content_id, item).messages(&submission.context) else {
            return Plan::Rejected(invalid.result);
        };
        let first = self.dead_letters.len();
        self.parts.push(messages.len());
        self.dead_letters.extend(messages);
        let dead_letters = first..self.dead_letters.len();
        let event_id = invalid.result.event_id.clone().unwrap_or(content_id);
        let ids = submission.ids(invalid.source_id.as_deref().unwrap_or_default(), event_id);
        Plan::Quarantined { ids, dead_letters, result: invalid.result }
    }

    /// Returns the number of an item among the equal ones, if invalid items are quarantined.
    fn number(&mut self, item: &'a [u8]) -> Option<usize> {
        let next = self.equal.as_mut()?.entry(item).or_default();
        *next += 1;
        Some(*next - 1)
    }
}

/// An item that is not a valid event of the sender.
struct InvalidItem {
    source_id: Option<String>,
    reason: String,
    /// The result if the item is rejected.
    result: EventResult,
}

impl InvalidItem {
    fn new(index: usize, error: ParseError) -> Self {
        let reason = match &error {
            ParseError::NotJson(_) | ParseError::TooLarge => error.to_string(),
            ParseError::Invalid { errors, .. } => {
                let errors = errors.iter().map(|error| reason_at(&error.pointer, &error.message));
                errors.collect::<Vec<_>>().join("; ")
            }
        };
        let source_id = match &error {
            ParseError::Invalid { source_id, .. } => source_id.clone(),
            ParseError::NotJson(_) | ParseError::TooLarge => None,
        };
        Self { source_id, reason, result: rejected_by_validation(index, error) }
    }

    /// Returns a valid event that its sender must not send.
    fn from_event(
        event: &Event<'_>,
        index: usize,
        event_id: Option<String>,
        kind: ProblemKind,
        pointer: Option<String>,
    ) -> Self {
        let reason = reason_at(pointer.as_deref().unwrap_or_default(), kind.title());
        let result = rejected(index, event_id, kind, kind.title().to_owned(), pointer);
        Self { source_id: Some(event.source_id.to_string()), reason, result }
    }

    fn quarantine<'a>(&'a self, content_id: &'a str, bytes: &'a [u8]) -> QuarantinedItem<'a> {
        QuarantinedItem {
            content_id,
            event_id: self.result.event_id.as_deref().unwrap_or(content_id),
            source_id: self.source_id.as_deref(),
            code: self.result.code.as_deref().unwrap_or_default(),
            reason: &self.reason,
            bytes,
        }
    }
}

/// Returns the reason of an error at a pointer. The pointer of the whole item is empty.
fn reason_at(pointer: &str, message: &str) -> String {
    if pointer.is_empty() { message.to_owned() } else { format!("{pointer}: {message}") }
}

fn rejected_by_validation(index: usize, error: ParseError) -> EventResult {
    let message = error.to_string();
    match error {
        ParseError::NotJson(_) => rejected(index, None, ProblemKind::MalformedJson, message, None),
        ParseError::TooLarge => rejected(index, None, ProblemKind::EventTooLarge, message, None),
        ParseError::Invalid { event_id, errors, .. } => {
            let kind = ProblemKind::ValidationFailed;
            match errors.into_iter().next() {
                Some(first) => rejected(index, event_id, kind, first.message, Some(first.pointer)),
                None => rejected(index, event_id, kind, message, None),
            }
        }
    }
}

pub(super) fn rejected(
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

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use authn::{Caller, CredentialVerifier, Introspection, Unavailable};
    use axum::extract::FromRequestParts as _;
    use bus::MemoryBudget;
    use chrono::DateTime;
    use contract::identity::Quota;
    use contract::internal::{Credential, Subject};
    use hashing::{RawToken, SystemEntropy, TokenDigest, TokenKind};
    use http::Request;
    use http::header::AUTHORIZATION;
    use tenancy::KeyId;

    use super::*;

    /// Knows one credential, with any token.
    struct OneCredential(Arc<Subject>);

    #[async_trait::async_trait]
    impl CredentialVerifier for OneCredential {
        async fn introspect(&self, _: TokenDigest) -> Result<Introspection, Unavailable> {
            Ok(Some(Arc::clone(&self.0)))
        }

        async fn review(&self, _: &str) -> Result<Option<TokenDigest>, Unavailable> {
            Ok(None)
        }
    }

    async fn submission() -> Submission {
        let subject = Subject {
            credential: Credential::ApiKey { key_id: KeyId::generate(), scopes: vec![], source_ids: vec![] },
            tenant_id: "acme".parse().unwrap(),
            quota: Quota::default(),
            expires_at: DateTime::UNIX_EPOCH,
        };
        let verifier: Arc<dyn CredentialVerifier> = Arc::new(OneCredential(Arc::new(subject)));
        let token = RawToken::generate(TokenKind::ApiKey, &SystemEntropy);
        let bearer = format!("Bearer {}", token.expose());
        let (mut parts, ()) = Request::builder().header(AUTHORIZATION, bearer).body(()).unwrap().into_parts();
        let caller = Caller::from_request_parts(&mut parts, &verifier).await.unwrap();
        Submission::new(caller, DateTime::UNIX_EPOCH, "request", None)
    }

    #[test]
    fn the_reason_of_an_invalid_item_names_the_field_if_there_is_one() {
        for (item, reason) in [
            ("[]", "expected an object"),
            ("7", "expected an object"),
            ("{}", "/source_id: an event must have a source_id"),
        ] {
            let error = udm::parse(item.as_bytes()).unwrap_err();
            assert_eq!(InvalidItem::new(0, error).reason, reason, "{item}");
        }
    }

    fn reserve(budget: &MemoryBudget) -> Reservation {
        budget.reserve(&"acme".parse().unwrap(), 0).unwrap()
    }

    #[tokio::test]
    async fn small_items_take_the_memory_of_their_results_and_none_after_too_many() {
        // A tenant has a quarter.
        let small = MIN_ITEM_BYTES - 1;
        let budget = MemoryBudget::new(4 * 100 * small);
        let large = format!("{{\"source_id\":\"{}\"}}\n", "x".repeat(MIN_ITEM_BYTES));
        for (items, reserved) in [(100, 100 * small), (101, 0)] {
            let (submission, mut memory) = (Arc::new(submission().await), reserve(&budget));
            let body = (large.repeat(items) + &"7\n".repeat(items)).into();
            let planned = plan_batch(submission, body, Format::Lines, None, &mut memory).await;
            assert_eq!(matches!(planned, Err(BatchError::Overloaded(_))), reserved == 0, "{items} items");
            assert_eq!(budget.reserved_bytes(), reserved);
        }
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn the_largest_batch_fits_into_the_share_of_a_tenant_of_the_smallest_budget() {
        let budget = MemoryBudget::new(crate::app::MIN_BODY_BUDGET);
        let (mut body, mut memory) = (reserve(&budget), reserve(&budget));
        body.grow_to(10 * 1024 * 1024 + 1024).unwrap();
        let (submission, lines) = (Arc::new(submission().await), "7\n".repeat(udm::MAX_BATCH_EVENTS).into());
        let planned = plan_batch(submission, lines, Format::Lines, None, &mut memory).await;
        assert_eq!(planned.unwrap().plans.len(), udm::MAX_BATCH_EVENTS);
    }

    #[tokio::test]
    async fn other_tasks_run_while_a_batch_is_validated() {
        for (events, bytes, expected) in [(1, 1024, 0..=0), (200, 1024, 8..=16), (900, 1, 8..=16)] {
            let padding = "x".repeat(bytes);
            let lines = format!(
                r#"{{"source_id":"s","additional":{{"padding":"{padding}"}}}}
"#
            )
            .repeat(events);
            let (submission, mut memory) =
                (Arc::new(submission().await), reserve(&MemoryBudget::new(1 << 30)));
            let mut plan = pin!(plan_batch(submission, lines.into(), Format::Lines, None, &mut memory));
            let mut yields = 0;
            let planned = loop {
                match futures::poll!(&mut plan) {
                    Poll::Pending => yields += 1,
                    Poll::Ready(planned) => break planned.unwrap(),
                }
            };
            assert_eq!(planned.plans.len(), events);
            assert!(expected.contains(&yields), "{yields} yields for {events} events of {bytes} bytes");
        }
    }
}
