//! The use cases and the dependencies that they share. An event is validated and published, and the response waits for the
//! acknowledgement of the stream. A tenant reads its own events.

mod audit;
mod batch_plan;
mod changes;
mod consumers;
mod dead_letters;
mod ingest_batch;
mod managed_consumers;
mod open_streams;
mod over_quota;
mod paced;
mod positions;
mod quarantine;
mod quotas;
mod read_events;
mod stored_bytes;
mod stream_share;
mod tenant_limits;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use authn::{Caller, CredentialVerifier, PlatformSecret, SessionClient};
use bus::{Connection, EventContext, EventStreams, MemoryBudget, Message, PublishError, Publisher};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use contract::ProblemKind;
use contract::events::{AcceptedEvent, EventResult, EventStatus, InvalidItems};
use contract::internal::Credential;
use service::{Clock, Problem};
use tokio::time::Instant;
use udm::{Event, ParseError};
use uuid::Uuid;

pub(crate) use audit::{Audit, AuditRequest};
pub(crate) use batch_plan::{BatchError, Format, split_problem};
pub(crate) use over_quota::OverQuota;
pub(crate) use positions::{Numbers, PositionKey, PositionKeys, Stream};
pub(crate) use quarantine::Quarantine;
pub(crate) use quotas::{Allowance, Quotas};
pub(crate) use read_events::{OpenStream, ReadRequest, Readers};
pub(crate) use stream_share::StreamShare;
pub(crate) use tenant_limits::TenantLimits;

use over_quota::Admit;
use tenant_limits::EventSize;

/// Timeout of a request for the acknowledgements of the stream, counted from the complete body.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum memory for the request bodies of the process.
const MAX_BODY_BUDGET: usize = 256 * 1024 * 1024;
/// Minimum memory for the request bodies of the process. One tenant can use a quarter of it, which must be enough for
/// the largest body: 1 MiB compressed, 10 MiB decompressed, and 10 MiB while it is decompressed; then 10 MiB for its items.
const MIN_BODY_BUDGET: usize = 96 * 1024 * 1024;

/// Returns the memory for the request bodies of a process: half of its memory limit, between 96 and 256 MiB.
pub(crate) fn body_budget(memory_limit: Option<u64>) -> usize {
    let half = memory_limit.and_then(|bytes| usize::try_from(bytes / 2).ok()).unwrap_or(usize::MAX);
    half.clamp(MIN_BODY_BUDGET, MAX_BODY_BUDGET)
}

/// The use cases. A clone for each request shares the dependencies.
#[derive(Clone)]
pub(crate) struct App(Arc<Dependencies>);

/// The dependencies of the use cases.
pub(crate) struct Dependencies {
    pub(crate) verifier: Arc<dyn CredentialVerifier>,
    /// Records the audit events of changes of consumers and dead letters.
    pub(crate) sessions: SessionClient,
    pub(crate) publisher: Publisher,
    pub(crate) quarantine: Quarantine,
    pub(crate) limits: TenantLimits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) body_budget: MemoryBudget,
    pub(crate) platform_secret: PlatformSecret,
    /// The broker, for the management of consumers.
    pub(crate) nats: Connection,
    /// Its addresses, at which logins of consumers are checked.
    pub(crate) nats_config: bus::Config,
    pub(crate) streams: EventStreams,
    pub(crate) readers: Readers,
    pub(crate) positions: PositionKeys,
    pub(crate) audit: Audit,
}

/// The caller of a request and what its events have in common.
pub(crate) struct Submission {
    pub(crate) caller: Caller,
    received_at: DateTime<Utc>,
    context: EventContext,
}

/// The ids in the result of an event.
struct EventIds {
    event_id: String,
    server_event_id: Uuid,
}

impl Deref for App {
    type Target = Dependencies;

    fn deref(&self) -> &Dependencies {
        &self.0
    }
}

impl App {
    pub(crate) fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(dependencies))
    }

    /// Validates and publishes an event. Returns after the stream has stored it.
    ///
    /// # Errors
    /// 400, 413 or 422 for an invalid event, 403 for a source that the API key does not allow, 429 above a limit of the tenant,
    /// 503 without acknowledgement.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn ingest_event(
        &self,
        submission: &Submission,
        body: Bytes,
        allowance: Allowance,
    ) -> Result<AcceptedEvent, Problem> {
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        let caller = &submission.caller;
        let quota = &caller.subject().quota;
        let event = udm::parse(&body).map_err(|error| invalid_event(error, &body));
        let message = event.and_then(|event| Ok(submission.message(&event, random_id, body.clone())?));
        let (ids, message) =
            message.inspect_err(|_| self.limits.take_events(caller.tenant_id(), quota, 1))?;
        let size = self.size(&message);
        let admission = self.limits.admit(caller.tenant_id(), quota, allowance, &[size], Admit::First);
        if let Some(over_quota) = admission.over_quota {
            return Err(over_quota.into());
        }
        let published = self.publisher.publish(caller.tenant_id(), message, deadline).await;
        self.limits.settle(caller.tenant_id(), [(size, &published)]);
        let ack = published.map_err(|error| Problem::new(problem_kind(&error)))?;
        Ok(AcceptedEvent {
            event_id: ids.event_id,
            server_event_id: ids.server_event_id,
            status: EventStatus::Accepted,
            duplicate: ack.duplicate,
            received_at: submission.received_at,
            code: None,
            message: None,
            pointer: None,
        })
    }

    /// Publishes an event, or quarantines it if it is invalid.
    ///
    /// # Errors
    /// As of [`Self::ingest_event`], for an invalid event if the quarantine is full.
    pub(crate) async fn ingest_or_quarantine(
        &self,
        submission: Submission,
        body: Bytes,
        allowance: Allowance,
    ) -> Result<AcceptedEvent, Problem> {
        let (submission, invalid) = (Arc::new(submission), Some(InvalidItems::Quarantine));
        let ingested = self
            .ingest_batch(Arc::clone(&submission), body.clone(), allowance, Format::Single, invalid)
            .await;
        let internal = || Problem::new(ProblemKind::Internal);
        let (batch, over_quota, _memory) = ingested.map_err(|error| match error {
            BatchError::Overloaded(_) => Problem::new(ProblemKind::Overloaded),
            error => internal().caused_by(error),
        })?;
        let result = batch.results.into_iter().next().ok_or_else(internal)?;
        if let Some(over_quota) = over_quota {
            return Err(over_quota.into());
        }
        let EventResult { event_id, server_event_id, status, duplicate, code, message, pointer, .. } = result;
        match (status, event_id.zip(server_event_id)) {
            (EventStatus::Accepted | EventStatus::Quarantined, Some((event_id, server_event_id))) => {
                let (duplicate, received_at) = (duplicate == Some(true), submission.received_at);
                let result = AcceptedEvent {
                    event_id,
                    server_event_id,
                    status,
                    duplicate,
                    received_at,
                    code,
                    message,
                    pointer,
                };
                Ok(result)
            }
            _ if result.retryable == Some(true) => {
                let kind = code.as_deref().and_then(ProblemKind::from_code);
                Err(Problem::new(kind.unwrap_or(ProblemKind::Internal)))
            }
            _ => {
                let rejected = self.ingest_event(&submission, body, allowance).await;
                rejected
                    .map_err(|problem| problem.detail("The event is invalid, and the quarantine is full."))
            }
        }
    }

    fn size(&self, message: &Message) -> EventSize {
        EventSize { bytes: message.payload().len(), stream: Some(self.publisher.stream_number(message)) }
    }
}

impl Submission {
    pub(crate) fn new(
        caller: Caller,
        received_at: DateTime<Utc>,
        request_id: &str,
        traceparent: Option<&str>,
    ) -> Self {
        let (tenant_id, credential) = (caller.tenant_id().clone(), caller.credential_label());
        let context = EventContext::new(tenant_id, received_at, request_id, &credential, traceparent);
        Self { caller, received_at, context }
    }

    /// Returns the ids and the message of a validated event. `generate` returns the id of an event without one, `payload` is the bytes of
    /// the event.
    fn message(
        &self,
        event: &Event<'_>,
        generate: impl FnOnce() -> String,
        payload: Bytes,
    ) -> Result<(EventIds, Message), ProblemKind> {
        if !self.allows_source(&event.source_id) {
            return Err(ProblemKind::SourceNotAllowed);
        }
        let event_id = event.event_id.as_ref().map_or_else(generate, ToString::to_string);
        // A validated event always has a valid subject and valid headers, so an error is a defect of this service.
        let message = Message::event(&self.context, event, &event_id, payload).map_err(|error| {
            tracing::error!(%error, "failed to build the message of a validated event");
            ProblemKind::Internal
        })?;
        Ok((self.ids(&event.source_id, event_id), message))
    }

    fn ids(&self, source_id: &str, event_id: String) -> EventIds {
        let tenant_id = self.caller.tenant_id().as_str();
        let server_event_id = udm::server_event_id(tenant_id, source_id, &event_id);
        EventIds { event_id, server_event_id }
    }

    /// Returns whether the credential can send events of this source.
    fn allows_source(&self, source_id: &str) -> bool {
        match &self.caller.subject().credential {
            Credential::Session { .. } => true,
            Credential::ServiceAccount { source_ids, .. } => {
                source_ids.iter().any(|allowed| allowed == source_id)
            }
            Credential::ApiKey { source_ids, .. } => {
                source_ids.is_empty() || source_ids.iter().any(|allowed| allowed == source_id)
            }
        }
    }
}

/// Returns the id of an event without one.
fn random_id() -> String {
    Uuid::now_v7().to_string()
}

/// The broker is not connected, or did not answer.
fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Problem {
    Problem::new(ProblemKind::DependencyUnavailable).caused_by(error)
}

/// Returns the problem of an event that was not acknowledged. All of these problems are retryable, and the event id makes a
/// retry safe.
fn problem_kind(error: &PublishError) -> ProblemKind {
    match error {
        PublishError::Overloaded => ProblemKind::Overloaded,
        PublishError::Unavailable => ProblemKind::DependencyUnavailable,
        PublishError::StreamFull => ProblemKind::StreamFull,
        PublishError::AckTimeout => ProblemKind::AckTimeout,
        PublishError::Misconfigured { .. } => {
            tracing::error!(%error, "failed to publish event");
            ProblemKind::DependencyUnavailable
        }
    }
}

fn invalid_event(error: ParseError, body: &[u8]) -> Problem {
    match error {
        ParseError::NotJson(_) => {
            let hint = if udm::is_followed_by_object(body) {
                "; send several events as lines with application/x-ndjson to /events/batch"
            } else {
                ""
            };
            Problem::new(ProblemKind::MalformedJson).detail(format!("{error}{hint}"))
        }
        ParseError::TooLarge => ProblemKind::EventTooLarge.into(),
        ParseError::Invalid { errors, .. } => {
            let problem = Problem::new(ProblemKind::ValidationFailed).fields(errors);
            if body.trim_ascii_start().starts_with(b"[") {
                return problem.detail("This route accepts one event. Send a list to /events/batch.");
            }
            problem
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_budget_is_half_of_the_memory_limit_between_96_and_256_mib() {
        let mebibytes = |limit: u64| body_budget(Some(limit << 20)) >> 20;
        assert_eq!([64, 300, 512, 4096].map(mebibytes), [96, 150, 256, 256]);
        assert_eq!(body_budget(None), MAX_BODY_BUDGET);
    }
}
