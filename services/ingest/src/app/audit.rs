//! Lists the audit events of one tenant or of all tenants.

use std::time::Duration;

use bus::{AuditFilter, AuditReader, MemoryBudget, Place, ReadError, ReadFrom, Reservation, StoredAudit};
use chrono::{DateTime, Utc};
use contract::audit::{AuditRecord, EventName};
use contract::{Page, ProblemKind};
use ratelimit::{LocalLimiter, Source};
use serde_json::{Map, Value};
use service::Problem;
use service::http::Paging;
use tenancy::{Actor, KeyId, TenantId, UserId};
use tokio::time::Instant;

use super::{App, PositionKey, Stream};

/// Maximum number of events that one request reads, and the time after which it reads no further one. A filter by user or API key
/// is not applied by the broker.
const MAX_READ: usize = 1_000;
const MAX_DURATION: Duration = Duration::from_secs(2);
/// Requests at the same time. A tenant can have a quarter of them.
const MAX_REQUESTS: usize = 32;

/// Reasons against a position.
const FOREIGN: &str = "must be a position of an earlier response about the same tenant";
const RESTORED: &str =
    "the stream was restored to a time before this position; list the events again with `since`";

/// Reads audit events. Clones share the limit of requests.
#[derive(Clone)]
pub(crate) struct Audit {
    reader: AuditReader,
    requests: MemoryBudget,
    /// Requests of a tenant: the broker does work for each event that is read.
    started: LocalLimiter,
}

/// The audit events to list.
pub(crate) struct AuditRequest {
    /// `None`: all tenants.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) kind: Option<EventName>,
    pub(crate) user_id: Option<UserId>,
    pub(crate) key_id: Option<KeyId>,
    /// The member who reads.
    pub(crate) member: Option<UserId>,
    pub(crate) after: Option<String>,
    pub(crate) since: Option<DateTime<Utc>>,
}

impl Audit {
    pub(crate) fn new(reader: AuditReader, started: LocalLimiter) -> Self {
        Self { reader, requests: MemoryBudget::with_max_reservations(MAX_REQUESTS, MAX_REQUESTS), started }
    }

    /// Counts a request of a caller for which the broker reads or lists messages. Those of the platform administrator, who has no tenant,
    /// are not limited, also for one tenant.
    ///
    /// # Errors
    /// 429 above the rate limit of the tenant, 503 for too many requests of the tenant or of all at the same time.
    pub(crate) fn admit(&self, caller: Option<&TenantId>) -> Result<Option<Reservation>, Problem> {
        let Some(tenant_id) = caller else { return Ok(None) };
        self.started.check_and_count(&Source::from(tenant_id.as_str()))?;
        self.requests.reserve(tenant_id, 1).map(Some).map_err(|_| ProblemKind::Overloaded.into())
    }
}

impl App {
    /// Returns a page of audit events in the order of the stream. The page ends early after [`MAX_READ`] events.
    ///
    /// # Errors
    /// 422 for a position of another tenant, 503 without the broker.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn list_audit(
        &self,
        request: AuditRequest,
        paging: &Paging<String>,
    ) -> Result<Page<AuditRecord>, Problem> {
        let reader = &self.audit.reader;
        let key = self.positions.key(Stream::Audit, request.tenant.as_ref());
        let cursor = place(&key, "/cursor", paging.after.as_deref())?;
        let after = place(&key, "/after", request.after.as_deref())?;
        for (pointer, place) in [("/cursor", cursor), ("/after", after)] {
            if let Some(place) = place
                && reader.is_replaced(place).await.map_err(unavailable)?
            {
                return Err(invalid_position(pointer, RESTORED));
            }
        }
        let filter = AuditFilter::new(request.tenant.clone(), request.kind.map(EventName::as_str))
            .map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))?;
        let begun = Instant::now();
        let last_read = cursor.into_iter().chain(after).map(Place::sequence).max();
        let mut from = match (last_read, request.since) {
            (Some(after), _) => ReadFrom::Sequence(after.saturating_add(1)),
            (None, Some(since)) => ReadFrom::Time(since),
            (None, None) => ReadFrom::Sequence(1),
        };
        let (mut items, mut last) = (Vec::new(), None);
        for _ in 0..MAX_READ {
            if items.len() > paging.limit() || begun.elapsed() > MAX_DURATION {
                break;
            }
            let stored = reader.first(&filter, from).await.map_err(unavailable)?;
            let Some(stored) = stored else {
                return Ok(paging.page(items, |record| record.position.clone()));
            };
            from = ReadFrom::Sequence(stored.place.sequence().saturating_add(1));
            last = Some(stored.place);
            items.extend(
                record(&stored, &key)
                    .filter(|record| request.selects(record))
                    .map(|record| request.redact(record)),
            );
        }
        if items.len() > paging.limit() {
            return Ok(paging.page(items, |record| record.position.clone()));
        }
        Ok(Page { items, next_cursor: last.map(|last| paging.cursor(key.seal(&last.to_bytes()))) })
    }
}

impl AuditRequest {
    /// Removes the address of another person: a member does not see where an administrator works.
    fn redact(&self, mut record: AuditRecord) -> AuditRecord {
        let is_of_another = match record.actor {
            Actor::Anonymous => false,
            Actor::User { user_id } => self.member != Some(user_id),
            Actor::ApiKey { .. } | Actor::PlatformAdmin | Actor::System => true,
        };
        if self.member.is_some() && is_of_another {
            record.ip = None;
        }
        record
    }

    fn selects(&self, record: &AuditRecord) -> bool {
        let is_of_user = |user_id| record.user_id == Some(user_id) || record.actor == Actor::User { user_id };
        let is_of_key = |key_id| record.key_id == Some(key_id) || record.actor == Actor::ApiKey { key_id };
        self.user_id.is_none_or(is_of_user) && self.key_id.is_none_or(is_of_key)
    }
}

/// Returns the place of a position that a client sent in this parameter.
fn place(key: &PositionKey, pointer: &str, text: Option<&str>) -> Result<Option<Place>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let bytes = key.open(text).and_then(|bytes| <[u8; Place::BYTES]>::try_from(bytes).ok());
    bytes.map(|bytes| Some(Place::from_bytes(&bytes))).ok_or_else(|| invalid_position(pointer, FOREIGN))
}

fn invalid_position(pointer: &str, reason: &str) -> Problem {
    Problem::new(ProblemKind::ValidationFailed)
        .detail("Correct the query parameters listed in `errors`.")
        .field(pointer, "invalid_value", reason)
}

fn unavailable(error: ReadError) -> Problem {
    Problem::new(ProblemKind::DependencyUnavailable).caused_by(error)
}

/// Returns the record of a stored event. Logs and omits one of an unknown form, so that it does not hide the others.
fn record(stored: &StoredAudit, key: &PositionKey) -> Option<AuditRecord> {
    let parsed = serde_json::from_slice(&stored.payload).and_then(|mut event: Map<String, Value>| {
        event.insert("position".to_owned(), key.seal(&stored.place.to_bytes()).into());
        serde_json::from_value(event.into())
    });
    parsed
        .inspect_err(|error| {
            tracing::error!(sequence = stored.place.sequence(), %error, "failed to read audit event; omitted");
        })
        .ok()
}
