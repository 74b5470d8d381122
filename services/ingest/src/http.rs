//! The routes of the context: events, sent and read, their schema, health, consumers, and audit events.

mod audit;
mod body;
mod consumers;
mod content_type;
mod failed_credentials;
mod managed_consumers;
mod quarantine;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use authn::{AnyCaller, Caller, CredentialVerifier, OperatorAccess, PlatformSecret, operator_only};
use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bus::Reservation;
use contract::events::{
    AcceptedEvent, BatchResponse, EventResult, EventStatus, Health, HealthStatus, InvalidItems, SendEvents,
};
use contract::managed::CONSUMERS;
use contract::{ProblemKind, Scope, routes};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use service::Problem;
use service::http::{Api, Filters, HeldBody, RequestId, not_found};
use service::telemetry;
use tenancy::{Actor, TenantId};
use udm::MAX_EVENT_BYTES;

use body::Sender;
#[cfg(fuzzing)]
pub use body::fuzzed as fuzzed_body;
use content_type::format;
pub(crate) use failed_credentials::FailedCredentials;

use crate::app::{App, BatchError, Format, OverQuota, Submission, split_problem};

/// Maximum size of a batch after decompression.
const MAX_BATCH_BYTES: usize = 10 * 1024 * 1024;
/// Request and response header of the form of a response (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The preference for a response without results.
const MINIMAL: &str = "return=minimal";
/// The detail of a request with another type, by route.
const ONE_EVENT: &str = "Send one event with Content-Type: application/json. Send several to /events/batch, lines with Content-Type: \
    application/x-ndjson.";
const SEVERAL_EVENTS: &str =
    "Send a JSON list with Content-Type: application/json, or one event per line with application/x-ndjson.";
/// Minimum delay before a client retries events of a batch.
const RETRY_AFTER_BATCH: Duration = Duration::from_secs(1);

/// Returns the public API.
pub(crate) fn public(app: App, failed_credentials: FailedCredentials) -> Router {
    let router = Api::default()
        .on(&routes::SEND_EVENT, send_one)
        .on(&routes::SEND_EVENTS, send_batch)
        .on(&routes::READ_EVENTS, stream::read)
        .on(&routes::LIST_QUARANTINED, quarantine::list)
        .on(&routes::GET_QUARANTINED, quarantine::get)
        .on(&routes::DELETE_QUARANTINED, quarantine::delete)
        .on(&routes::GET_EVENT_SCHEMA, schema)
        .on(&routes::GET_HEALTH, health)
        .on(&routes::CREATE_CONSUMER, consumers::create)
        .on(&routes::LIST_CONSUMERS, consumers::list)
        .on(&routes::GET_CONSUMER_ACCOUNTS, consumers::accounts)
        .on(&routes::GET_CONSUMER, consumers::get)
        .on(&routes::DELETE_CONSUMER, consumers::delete)
        .on(&routes::ROTATE_CONSUMER_LOGIN, consumers::rotate_login)
        .on(&routes::PAUSE_CONSUMER, consumers::pause)
        .on(&routes::RESUME_CONSUMER, consumers::resume)
        .on(&routes::RESET_CONSUMER, consumers::reset)
        .on(&routes::LIST_DEAD_LETTERS, consumers::list_dead_letters)
        .on(&routes::REPLAY_DEAD_LETTERS, consumers::replay_dead_letters)
        .on(&routes::DELETE_DEAD_LETTERS, consumers::delete_dead_letters)
        .on(&routes::LIST_AUDIT, audit::list)
        .with_state(app);
    failed_credentials.wrap(router)
}

/// Returns the internal API, which only the operator uses.
pub(crate) fn internal(app: App, access: OperatorAccess) -> Router {
    Router::new()
        .route(CONSUMERS, get(managed_consumers::list))
        .route(&format!("{CONSUMERS}/{{uid}}"), put(managed_consumers::put).delete(managed_consumers::delete))
        .route(&format!("{CONSUMERS}/{{uid}}/login"), post(managed_consumers::renew_login))
        .fallback(not_found)
        .layer(from_fn_with_state(access, operator_only))
        .with_state(app)
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.verifier)
    }
}

impl FromRef<App> for PlatformSecret {
    fn from_ref(app: &App) -> Self {
        app.platform_secret.clone()
    }
}

/// The platform administrator, or an administrator of a tenant: `None` or the tenant, and who sent the request.
struct AnyAdmin(Option<TenantId>, Actor);

impl FromRequestParts<App> for AnyAdmin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, app).await? {
            AnyCaller::PlatformAdmin => Ok(Self(None, Actor::PlatformAdmin)),
            AnyCaller::Caller(caller) if caller.is_admin() => {
                Ok(Self(Some(caller.tenant_id().clone()), Actor::from(&caller)))
            }
            AnyCaller::Caller(_) => Err(ProblemKind::Forbidden.into()),
        }
    }
}

/// Returns the tenant that a request is limited to: that of the caller, else the requested one.
fn limited(own: Option<TenantId>, requested: Option<TenantId>) -> Result<Option<TenantId>, Problem> {
    match (own, requested) {
        (Some(own), Some(requested)) if own != requested => Err(ProblemKind::TenantMismatch.into()),
        (own, requested) => Ok(own.or(requested)),
    }
}

/// `POST /events`: requires `events:write`.
async fn send_one(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    query: Result<Filters<SendEvents>, Problem>,
    request: Request,
) -> Result<(StatusCode, Json<AcceptedEvent>), Problem> {
    caller.require(Scope::EventsWrite)?;
    let Filters(SendEvents { invalid }) = query?;
    if format(request.headers(), ONE_EVENT)? == Format::Lines {
        return Err(Problem::new(ProblemKind::MediaType).detail(ONE_EVENT));
    }
    let submission = submission(&app, caller, &request_id);
    // A larger event is quarantined.
    let max = if invalid.is_some() { MAX_BATCH_BYTES } else { MAX_EVENT_BYTES };
    let sender =
        Sender { budget: &app.body_budget, limits: &app.limits, caller: submission.caller.subject() };
    let body = sender.read(request, max, ProblemKind::EventTooLarge).await?;
    // The payload is stored as it was sent. Only an event that does not fit otherwise loses the white space around it.
    let is_large = body.bytes.len() > MAX_EVENT_BYTES;
    let json = if is_large { body::trimmed(&body.bytes) } else { body.bytes.clone() };
    let accepted = match invalid {
        None => app.ingest_event(&submission, json, body.allowance).await?,
        Some(InvalidItems::Quarantine) => app.ingest_or_quarantine(submission, json, body.allowance).await?,
    };
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// `POST /events/batch`: requires `events:write`.
async fn send_batch(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    query: Result<Filters<SendEvents>, Problem>,
    request: Request,
) -> Result<Response, Problem> {
    caller.require(Scope::EventsWrite)?;
    let Filters(SendEvents { invalid }) = query?;
    let format = format(request.headers(), SEVERAL_EVENTS)?;
    let minimal = prefers_minimal(request.headers());
    let submission = submission(&app, caller, &request_id);
    let sender =
        Sender { budget: &app.body_budget, limits: &app.limits, caller: submission.caller.subject() };
    let body = sender.read(request, MAX_BATCH_BYTES, ProblemKind::BatchTooLarge).await?;
    let ingested = app.ingest_batch(Arc::new(submission), body.bytes, body.allowance, format, invalid).await;
    let (batch, over_quota, mut memory) = ingested.map_err(|error| invalid_batch(error, invalid))?;
    // Large items take no memory beyond the body, but their results can be as long as they are.
    memory.absorb(body.reservation);
    // Another poll writes the response.
    tokio::task::yield_now().await;
    batch_response(batch, over_quota, invalid, minimal, memory)
}

/// `GET /events/schema`: public.
async fn schema() -> Json<serde_json::Value> {
    Json(udm::schema().to_value())
}

/// `GET /health`: returns whether events can be accepted, as far as ingest knows.
async fn health(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.publisher.is_ready() {
        return Ok(Json(Health { status: HealthStatus::Ok }));
    }
    Err(Problem::new(ProblemKind::DependencyUnavailable).detail("No stream of events is available."))
}

/// Returns whether the sender wants a response without the results of the events (RFC 7240, section 4.2).
fn prefers_minimal(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|preference| {
        let preference = preference.split(';').next().unwrap_or_default().replace(['"', ' ', '\t'], "");
        preference.eq_ignore_ascii_case(MINIMAL)
    })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|error| Problem::new(ProblemKind::Internal).caused_by(error))
}

/// Returns a response with JSON. Drops `held` when the connection has accepted all of it: a client can read slowly.
fn response(status: StatusCode, json: Vec<u8>, held: impl Send + Unpin + 'static) -> Response {
    let body = Body::new(HeldBody::new(json, held));
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn submission(app: &App, caller: Caller, request_id: &RequestId) -> Submission {
    let traceparent = telemetry::traceparent();
    Submission::new(caller, app.clock.now(), request_id.as_str(), traceparent.as_deref())
}

fn invalid_batch(error: BatchError, invalid: Option<InvalidItems>) -> Problem {
    let kind = match &error {
        BatchError::Split { error, .. } => split_problem(error),
        BatchError::Empty => return ProblemKind::EmptyBatch.into(),
        BatchError::Overloaded(_) => return ProblemKind::Overloaded.into(),
        BatchError::Headers | BatchError::Panicked(_) => {
            return Problem::new(ProblemKind::Internal).caused_by(error);
        }
    };
    let full = if invalid.is_some() { "; the quarantine is full" } else { "" };
    Problem::new(kind).detail(format!("{error}{full}"))
}

/// Returns the response to a batch. It keeps a reservation of its size until the connection has accepted it.
fn batch_response(
    mut batch: BatchResponse,
    over_quota: Option<OverQuota>,
    invalid: Option<InvalidItems>,
    minimal: bool,
    mut memory: Reservation,
) -> Result<Response, Problem> {
    let status = batch_status(&batch.results, invalid);
    let retryable = batch.results.iter().any(|result| result.retryable == Some(true));
    if minimal {
        batch.results.clear();
    }
    let json = json(&batch)?;
    memory.shrink_to(json.len());
    let mut response = response(status, json, memory);
    if minimal {
        response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static(MINIMAL));
    }
    if retryable {
        let delay = over_quota.map_or(RETRY_AFTER_BATCH, |over_quota| over_quota.retry_after);
        let seconds = delay.max(RETRY_AFTER_BATCH).as_millis().div_ceil(1000);
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
    }
    Ok(response)
}

/// Returns 202 if all events are accepted. If none is, the response is 429 or 503 if any failed for a temporary cause, because many senders
/// repeat only such a response, and else 422. If some are accepted, it is 207. If invalid items are quarantined, it is then 429 or 503 too
/// if any failed for a temporary cause. The body contains the results in every case.
fn batch_status(results: &[EventResult], invalid: Option<InvalidItems>) -> StatusCode {
    let accepted = results.iter().filter(|result| result.status != EventStatus::Rejected).count();
    let mut retryable = results.iter().filter(|result| result.retryable == Some(true)).peekable();
    if (invalid.is_some() || accepted == 0) && retryable.peek().is_some() {
        // An event that failed for another temporary cause may be stored. 429 means that none of those to repeat is.
        let over_quota = Some(ProblemKind::QuotaExceeded.code());
        let is_over_quota = retryable.all(|result| result.code.as_deref() == over_quota);
        return if is_over_quota { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    }
    match accepted {
        _ if accepted == results.len() => StatusCode::ACCEPTED,
        0 => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::MULTI_STATUS,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::HttpBody as _;
    use bus::MemoryBudget;
    use uuid::Uuid;

    use super::*;

    fn result(kind: Option<ProblemKind>) -> EventResult {
        EventResult {
            index: 0,
            event_id: None,
            status: if kind.is_some() { EventStatus::Rejected } else { EventStatus::Accepted },
            duplicate: None,
            server_event_id: None,
            code: kind.map(|kind| kind.code().to_owned()),
            message: None,
            pointer: None,
            retryable: kind.map(ProblemKind::is_retryable),
        }
    }

    #[test]
    fn a_preference_for_a_short_response_has_the_forms_of_the_standard() {
        let headers = |value: &'static str| [(PREFER, HeaderValue::from_static(value))].into_iter().collect();
        for value in
            ["return=minimal", "respond-async, Return = \"minimal\"", "return=minimal; foo=\"bar\", wait=10"]
        {
            assert!(prefers_minimal(&headers(value)), "{value}");
        }
        for value in ["", "return=representation", "minimal", "return=minimally"] {
            assert!(!prefers_minimal(&headers(value)), "{value}");
        }
    }

    #[test]
    fn a_response_takes_its_size_of_the_memory_until_it_is_sent() {
        let budget = MemoryBudget::new(1 << 30);
        let memory = budget.reserve(&"acme".parse().unwrap(), 1 << 20).unwrap();
        let batch = BatchResponse {
            batch_id: Uuid::nil(),
            total_events: 1000,
            successful_events: 1000,
            quarantined_events: None,
            failed_events: 0,
            results: (0..1000).map(|_| result(None)).collect(),
        };
        let response = batch_response(batch, None, None, false, memory).unwrap();
        let reserved = budget.reserved_bytes();
        assert_eq!(response.body().size_hint().exact(), Some(reserved as u64));
        assert!(reserved > 10_000, "{reserved}");
        drop(response);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn status_of_a_batch_follows_from_its_results() {
        use ProblemKind::{AckTimeout, EventTooLarge, Overloaded, QuotaExceeded, ValidationFailed};
        for (kinds, expected) in [
            (vec![None, None], 202),
            (vec![None, Some(ValidationFailed)], 207),
            (vec![None, Some(Overloaded)], 207),
            (vec![Some(ValidationFailed), Some(EventTooLarge)], 422),
            (vec![Some(Overloaded), Some(Overloaded)], 503),
            (vec![Some(QuotaExceeded), Some(QuotaExceeded)], 429),
            (vec![Some(ValidationFailed), Some(QuotaExceeded)], 429),
            (vec![Some(Overloaded), Some(AckTimeout)], 503),
            (vec![Some(ValidationFailed), Some(Overloaded)], 503),
            (vec![Some(AckTimeout), Some(QuotaExceeded), Some(ValidationFailed)], 503),
            (vec![None, Some(ValidationFailed), Some(QuotaExceeded)], 207),
        ] {
            let results: Vec<_> = kinds.iter().copied().map(result).collect();
            assert_eq!(batch_status(&results, None).as_u16(), expected, "{kinds:?}");
        }
    }

    #[test]
    fn with_quarantine_a_temporary_error_of_one_event_is_the_status_of_the_batch() {
        use ProblemKind::{Overloaded, QuotaExceeded, ValidationFailed};
        for (kinds, expected) in [
            (vec![], 202),
            (vec![None, None], 202),
            (vec![None, Some(Overloaded)], 503),
            (vec![None, Some(ValidationFailed), Some(Overloaded)], 503),
            (vec![Some(Overloaded), Some(QuotaExceeded)], 503),
            (vec![None, Some(ValidationFailed), Some(QuotaExceeded)], 429),
            (vec![None, Some(ValidationFailed)], 207),
            (vec![Some(ValidationFailed)], 422),
        ] {
            let results: Vec<_> = kinds.iter().copied().map(result).collect();
            let status = batch_status(&results, Some(InvalidItems::Quarantine));
            assert_eq!(status.as_u16(), expected, "{kinds:?}");
        }
    }
}
