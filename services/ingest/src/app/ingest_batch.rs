//! Ingests a batch: one result per event, in the order of the request. An invalid event does not prevent the publication of
//! the valid ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;

use bus::{Ack, Message, PublishError};
use bytes::Bytes;
use contract::ProblemKind;
use contract::events::{BatchResponse, EventResult, EventStatus};
use futures::StreamExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use udm::{Event, ParseError, SplitError, split_lines, split_list};
use uuid::Uuid;

use super::paced::paced;
use super::{App, EventIds, OverQuota, PUBLISH_TIMEOUT, Submission, problem_kind};

/// A larger body is validated on another thread. Validation cannot yield within an item, so this limits the time of one item.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// Representation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A JSON list.
    List,
    /// One event per line.
    Lines,
}

/// The body is not a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error("the batch contains no event")]
    Empty,
    #[error("failed to validate the batch")]
    Panicked(#[from] JoinError),
}

/// The plan for one item of a batch.
enum Plan {
    /// The item is rejected with this result.
    Rejected(EventResult),
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
    /// Bytes and message of the first item with each source and event id.
    seen: HashMap<(String, String), (&'a [u8], usize)>,
}

impl App {
    /// Returns one result per event after the stream has replied for each valid event, or the deadline has passed. Also returns
    /// the limit of the tenant that the batch exceeds. The first events up to the limit are published.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn ingest_batch(
        &self,
        submission: Submission,
        body: Bytes,
        format: Format,
    ) -> Result<(BatchResponse, Option<OverQuota>), BatchError> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        let caller = submission.caller.clone();
        let inline = body.len() <= MAX_INLINE_BYTES;
        let plan = plan_batch(submission, body, format);
        let (plans, mut messages) = if inline {
            plan.await?
        } else {
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(plan)).await??
        };
        let sizes: Vec<_> = messages.iter().map(|message| self.size(message)).collect();
        let admission = self.limits.admit(caller.tenant_id(), &caller.subject().quota, &sizes);
        messages.truncate(admission.admitted);
        let outcomes = if messages.is_empty() {
            Vec::new()
        } else {
            self.publisher.publish_all(caller.tenant_id(), messages, deadline).await
        };
        self.limits.settle(caller.tenant_id(), sizes.into_iter().zip(&outcomes));
        let result =
            |index, ids, message: usize, repeated| match (outcomes.get(message), &admission.over_quota) {
                (None, Some(over_quota)) => rejected_by_quota(index, ids, over_quota),
                (outcome, _) => {
                    published(index, ids, outcome.unwrap_or(&Err(PublishError::Unavailable)), repeated)
                }
            };
        let results: Vec<_> = plans
            .into_iter()
            .enumerate()
            .map(|(index, plan)| match plan {
                Plan::Rejected(result) => result,
                Plan::Published { ids, message } => result(index, ids, message, false),
                Plan::Duplicate { ids, message } => result(index, ids, message, true),
            })
            .collect();
        let successful_events = results.iter().filter(|r| r.status == EventStatus::Accepted).count();
        let response = BatchResponse {
            batch_id: Uuid::now_v7(),
            total_events: results.len(),
            successful_events,
            failed_events: results.len() - successful_events,
            results,
        };
        Ok((response, admission.over_quota))
    }
}

async fn plan_batch(
    submission: Submission,
    body: Bytes,
    format: Format,
) -> Result<(Vec<Plan>, Vec<Message>), BatchError> {
    match format {
        Format::List => plan_items(submission, split_list(&body), body.len()).await,
        Format::Lines => plan_items(submission, split_lines(&body), body.len()).await,
    }
}

async fn plan_items<'a>(
    submission: Submission,
    items: impl Iterator<Item = Result<&'a [u8], SplitError>>,
    body_len: usize,
) -> Result<(Vec<Plan>, Vec<Message>), BatchError> {
    let mut batch = BatchPlan::default();
    let mut items = pin!(paced(items, body_len).enumerate());
    while let Some((index, item)) = items.next().await {
        let item = item?;
        let plan = match udm::parse(item) {
            Ok(event) => batch.plan_event(&submission, index, &event),
            Err(error) => Plan::Rejected(rejected_by_validation(index, error)),
        };
        batch.plans.push(plan);
    }
    if batch.plans.is_empty() {
        return Err(BatchError::Empty);
    }
    Ok((batch.plans, batch.messages))
}

impl<'a> BatchPlan<'a> {
    fn plan_event(&mut self, submission: &Submission, index: usize, event: &Event<'a>) -> Plan {
        let item = event.raw;
        // A copy: a slice would keep the whole body in memory until its last event is acknowledged.
        let (ids, message) = match submission.message(event, Bytes::copy_from_slice(item)) {
            Ok(message) => message,
            Err(kind) => {
                let event_id = event.event_id.as_ref().map(ToString::to_string);
                let pointer =
                    (kind == ProblemKind::SourceNotAllowed).then(|| format!("/{}", event.source_id_name));
                return Plan::Rejected(rejected(index, event_id, kind, kind.title().to_owned(), pointer));
            }
        };
        match self.seen.entry((event.source_id.to_string(), ids.event_id.clone())) {
            Entry::Occupied(first) if first.get().0 == item => {
                Plan::Duplicate { ids, message: first.get().1 }
            }
            Entry::Occupied(_) => {
                let kind = ProblemKind::EventIdConflict;
                let pointer = Some(format!("/{}", event.event_id_name));
                Plan::Rejected(rejected(index, Some(ids.event_id), kind, kind.title().to_owned(), pointer))
            }
            Entry::Vacant(entry) => {
                let at = self.messages.len();
                entry.insert((item, at));
                self.messages.push(message);
                Plan::Published { ids, message: at }
            }
        }
    }
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
    rejected(index, Some(ids.event_id), ProblemKind::QuotaExceeded, over_quota.to_string(), None)
}

fn rejected_by_validation(index: usize, error: ParseError) -> EventResult {
    let message = error.to_string();
    match error {
        ParseError::NotJson(_) => rejected(index, None, ProblemKind::MalformedJson, message, None),
        ParseError::TooLarge => rejected(index, None, ProblemKind::EventTooLarge, message, None),
        ParseError::Invalid { event_id, errors } => {
            let kind = ProblemKind::ValidationFailed;
            match errors.into_iter().next() {
                Some(first) => rejected(index, event_id, kind, first.message, Some(first.pointer)),
                None => rejected(index, event_id, kind, message, None),
            }
        }
    }
}

fn rejected(
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
    use std::sync::Arc;
    use std::task::Poll;

    use authn::{Caller, CredentialVerifier, Introspection, Unavailable};
    use axum::extract::FromRequestParts as _;
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

    #[tokio::test]
    async fn other_tasks_run_while_a_batch_is_validated() {
        for (events, bytes, expected) in [(1, 1024, 0..=0), (200, 1024, 8..=16), (900, 1, 8..=16)] {
            let padding = "x".repeat(bytes);
            let lines = format!(
                r#"{{"source_id":"s","additional":{{"padding":"{padding}"}}}}
"#
            )
            .repeat(events);
            let mut plan = pin!(plan_batch(submission().await, lines.into(), Format::Lines));
            let mut yields = 0;
            let (plans, _) = loop {
                match futures::poll!(&mut plan) {
                    Poll::Pending => yields += 1,
                    Poll::Ready(planned) => break planned.unwrap(),
                }
            };
            assert_eq!(plans.len(), events);
            assert!(expected.contains(&yields), "{yields} yields for {events} events of {bytes} bytes");
        }
    }
}
