//! Ingests a batch: one result per event, in the order of the request. An invalid event does not prevent the publication of
//! the valid ones.

use std::sync::Arc;

use bus::{Ack, Message, PublishError, Reservation};
use bytes::Bytes;
use contract::events::{BatchResponse, EventResult, EventStatus, InvalidItems};
use tenancy::TenantId;
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use super::batch_plan::{BatchError, Format, Plan, Planned, plan_batch, plan_body, rejected};
use super::over_quota::Admit;
use super::tenant_limits::EventSize;
use super::{Allowance, App, EventIds, OverQuota, PUBLISH_TIMEOUT, Submission, problem_kind};

/// A larger body is validated on another thread. Validation cannot yield within an item, so this limits the time of one item.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// The outcomes of the admitted messages of a batch.
struct Outcomes {
    messages: Vec<Result<Ack, PublishError>>,
    dead_letters: Vec<Result<Ack, PublishError>>,
    over_quota: Option<OverQuota>,
}

impl App {
    /// Returns one result per event after the streams have replied for each item, or the deadline has passed. Also returns
    /// the limit of the tenant that the batch exceeds, and the memory of the results. The first events up to the limit are published.
    ///
    /// If invalid items are quarantined, a body that is not a batch is one invalid item, and none is published above the limit.
    ///
    /// # Errors
    /// The body is not a batch, and is not quarantined, or no memory is left for its items.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn ingest_batch(
        &self,
        submission: Arc<Submission>,
        body: Bytes,
        allowance: Allowance,
        format: Format,
        invalid: Option<InvalidItems>,
    ) -> Result<(BatchResponse, Option<OverQuota>, Reservation), BatchError> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        let inline = body.len() <= MAX_INLINE_BYTES;
        let mut memory = self.body_budget.reserve(submission.caller.tenant_id(), 0)?;
        let (sender, sent) = (Arc::clone(&submission), body.clone());
        let plan = async move {
            let planned = plan_batch(sender, sent, format, invalid, &mut memory).await;
            (planned, memory)
        };
        let (planned, memory) = if inline {
            plan.await
        } else {
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(plan)).await?
        };
        let (planned, unreadable) = match planned {
            Err(BatchError::Split { error, items }) if invalid.is_some() => {
                (plan_body(&submission, &body, &error, items)?, Some(BatchError::Split { error, items }))
            }
            Err(error) => {
                let tenant_id = submission.caller.tenant_id();
                if matches!(error, BatchError::Overloaded(_)) {
                    self.limits.give_back_bytes(tenant_id, body.len());
                } else {
                    let items = if let BatchError::Split { items, .. } = error { items } else { 1 };
                    self.limits.take_events(tenant_id, &submission.caller.subject().quota, items);
                }
                return Err(error);
            }
            Ok(planned) => (planned, None),
        };
        let admit = if invalid.is_some() { Admit::AllOrNone } else { Admit::First };
        let limits = (allowance, admit);
        let (plans, outcomes) = self.publish_batch(&submission, planned, limits, deadline).await;
        let (tenant_id, results) = (submission.caller.tenant_id(), plans.into_iter().enumerate());
        let results: Vec<_> =
            results.map(|(index, plan)| self.result(tenant_id, index, plan, &outcomes)).collect();
        let is_final = |result: &EventResult| result.retryable == Some(false);
        if let Some(error) = unreadable.filter(|_| results.iter().any(is_final)) {
            return Err(error);
        }
        let count = |status| results.iter().filter(|result| result.status == status).count();
        let quarantined_events = invalid.map(|_| count(EventStatus::Quarantined));
        let successful_events = count(EventStatus::Accepted) + quarantined_events.unwrap_or_default();
        let response = BatchResponse {
            batch_id: Uuid::now_v7(),
            total_events: results.len(),
            successful_events,
            quarantined_events,
            failed_events: results.len() - successful_events,
            results,
        };
        Ok((response, outcomes.over_quota, memory))
    }

    /// Publishes the messages of a batch that are within the limits of the tenant.
    async fn publish_batch(
        &self,
        submission: &Submission,
        planned: Planned,
        (allowance, admit): (Allowance, Admit),
        deadline: Instant,
    ) -> (Vec<Plan>, Outcomes) {
        let Planned { plans, mut messages, mut dead_letters, parts, others } = planned;
        let (tenant_id, quota) = (submission.caller.tenant_id(), &submission.caller.subject().quota);
        let dead_letter = |message: &Message| EventSize { bytes: message.payload().len(), stream: None };
        let mut sizes: Vec<_> = messages.iter().map(|message| self.size(message)).collect();
        sizes.extend(dead_letters.iter().map(dead_letter));
        let admission = self.limits.admit(tenant_id, quota, allowance, &sizes, admit);
        self.limits.take_events(tenant_id, quota, others);
        let events = messages.len();
        messages.truncate(admission.admitted);
        dead_letters.truncate(admission.admitted.saturating_sub(events));
        let publish = async {
            if messages.is_empty() {
                return Vec::new();
            }
            self.publisher.publish_all(tenant_id, messages, deadline).await
        };
        let quarantine = self.quarantine.store(tenant_id, dead_letters, &parts, deadline);
        let (messages, dead_letters) = tokio::join!(publish, quarantine);
        self.limits.settle(tenant_id, sizes.into_iter().zip(messages.iter().chain(&dead_letters)));
        (plans, Outcomes { messages, dead_letters, over_quota: admission.over_quota })
    }

    /// Returns the result of an item.
    fn result(&self, tenant_id: &TenantId, index: usize, plan: Plan, outcomes: &Outcomes) -> EventResult {
        let unavailable = Err(PublishError::Unavailable);
        let event =
            |ids, message: usize, repeated| match (outcomes.messages.get(message), &outcomes.over_quota) {
                (None, Some(over_quota)) => rejected_by_quota(index, ids, over_quota),
                (outcome, _) => published(index, ids, outcome.unwrap_or(&unavailable), repeated),
            };
        match plan {
            Plan::Rejected(result) => result,
            Plan::Published { ids, message } => event(ids, message, false),
            Plan::Duplicate { ids, message } => event(ids, message, true),
            Plan::Quarantined { ids, dead_letters, result } => {
                let stored = outcomes.dead_letters.get(dead_letters).unwrap_or_default();
                match (outcome_of_parts(stored), &outcomes.over_quota) {
                    (None, Some(over_quota)) => rejected_by_quota(index, ids, over_quota),
                    (outcome, _) => self.quarantined(tenant_id, ids, outcome.unwrap_or(&unavailable), result),
                }
            }
        }
    }

    /// Returns the result of an item that was to be quarantined. `result` is that of a full quarantine.
    fn quarantined(
        &self,
        tenant_id: &TenantId,
        ids: EventIds,
        outcome: &Result<Ack, PublishError>,
        result: EventResult,
    ) -> EventResult {
        self.quarantine.count(result.code.as_deref().unwrap_or_default(), outcome);
        match outcome {
            Ok(ack) => EventResult {
                event_id: Some(ids.event_id),
                status: EventStatus::Quarantined,
                duplicate: Some(ack.duplicate),
                server_event_id: Some(ids.server_event_id),
                retryable: None,
                ..result
            },
            Err(PublishError::StreamFull) => {
                self.limits.quarantine_is_full(tenant_id);
                let message = result.message.map(|message| format!("{message}; the quarantine is full"));
                EventResult { message, ..result }
            }
            Err(_) => published(result.index, ids, outcome, false),
        }
    }
}

/// Returns the outcome of an item with these outcomes of its parts: the first error, or a part that was not stored before. A repeated
/// request stores only the parts that are missing.
fn outcome_of_parts(parts: &[Result<Ack, PublishError>]) -> Option<&Result<Ack, PublishError>> {
    parts.iter().min_by_key(|part| part.as_ref().map_or(0, |ack| 1 + u8::from(ack.duplicate)))
}

fn published(
    index: usize,
    ids: EventIds,
    outcome: &Result<Ack, PublishError>,
    repeated: bool,
) -> EventResult {
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
            let kind = problem_kind(error);
            rejected(index, Some(ids.event_id), kind, kind.title().to_owned(), None)
        }
    }
}

fn rejected_by_quota(index: usize, ids: EventIds, over_quota: &OverQuota) -> EventResult {
    rejected(index, Some(ids.event_id), over_quota.limit.kind(), over_quota.to_string(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_in_parts_fails_with_a_part_and_is_a_duplicate_only_with_all_of_them() {
        let part = |duplicate| -> Result<Ack, PublishError> {
            Ok(Ack { stream: "UDM_DLQ".into(), sequence: 1, duplicate })
        };
        let (stored, duplicate) = (part(false), part(true));
        let failed: Result<Ack, PublishError> = Err(PublishError::AckTimeout);
        for (parts, outcome) in [
            ([duplicate.clone(), stored.clone()], &stored),
            ([stored.clone(), duplicate.clone()], &stored),
            ([duplicate.clone(), duplicate.clone()], &duplicate),
            ([stored.clone(), failed.clone()], &failed),
            ([failed.clone(), Err(PublishError::StreamFull)], &failed),
        ] {
            assert_eq!(outcome_of_parts(&parts), Some(outcome), "{parts:?}");
        }
        assert_eq!(outcome_of_parts(&[]), None);
    }
}
