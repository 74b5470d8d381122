//! `/events`.

use authn::Caller;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use contract::events::AcceptedEvent;
use contract::{ProblemKind, Scope};
use http::{HeaderMap, StatusCode};
use service::Problem;
use service::http::RequestId;
use service::http::body::media_type;
use service::telemetry;
use udm::{MAX_EVENT_BYTES, SplitError};

use super::{answer, body};
use crate::app::ingest_batch::{BatchError, Format};
use crate::app::{App, Sending};

/// What a batch may take after inflation.
const MAX_BATCH_BYTES: usize = 10 * 1024 * 1024;

/// `POST`: `events:write`.
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    request: Request,
) -> Result<(StatusCode, Json<AcceptedEvent>), Problem> {
    caller.require(Scope::EventsWrite)?;
    if format(request.headers()) != Some(Format::List) {
        return Err(Problem::new(ProblemKind::MediaType).detail("Send Content-Type: application/json."));
    }
    let sending = sending(&app, caller, &request_id);
    let held = app.room.of(sending.caller.tenant_id());
    let (body, _held) = body::events(held, request, MAX_EVENT_BYTES, ProblemKind::EventTooLarge).await?;
    Ok((StatusCode::ACCEPTED, Json(app.ingest_event(&sending, body).await?)))
}

/// `POST …/batch`: `events:write`.
pub(super) async fn batch(
    State(app): State<App>,
    caller: Caller,
    request_id: RequestId,
    request: Request,
) -> Result<Response, Problem> {
    caller.require(Scope::EventsWrite)?;
    let Some(format) = format(request.headers()) else {
        let detail = "Send Content-Type: application/json, or application/x-ndjson.";
        return Err(Problem::new(ProblemKind::MediaType).detail(detail));
    };
    let sending = sending(&app, caller, &request_id);
    let held = app.room.of(sending.caller.tenant_id());
    let (body, _held) = body::events(held, request, MAX_BATCH_BYTES, ProblemKind::BatchTooLarge).await?;
    let answered = app.ingest_batch(sending, body, format).await;
    Ok(answer::batch(answered.map_err(no_batch)?))
}

/// `GET …/schema`: anybody.
pub(super) async fn schema() -> Json<serde_json::Value> {
    Json(udm::schema().to_value())
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let media_type = media_type(headers)?;
    if media_type.eq_ignore_ascii_case("application/json") {
        return Some(Format::List);
    }
    media_type.eq_ignore_ascii_case("application/x-ndjson").then_some(Format::Lines)
}

fn sending(app: &App, caller: Caller, request_id: &RequestId) -> Sending {
    let traceparent = telemetry::traceparent();
    Sending::new(caller, app.clock.now(), request_id.as_str(), traceparent.as_deref())
}

fn no_batch(error: BatchError) -> Problem {
    let kind = match &error {
        BatchError::Split(SplitError::NotJson(_)) => ProblemKind::MalformedJson,
        BatchError::Split(SplitError::NotAList) => ProblemKind::ValidationFailed,
        BatchError::Split(SplitError::TooMany) => ProblemKind::BatchTooLarge,
        BatchError::Empty => return ProblemKind::EmptyBatch.into(),
        BatchError::Defect(_) => return Problem::new(ProblemKind::Internal).caused_by(error),
    };
    Problem::new(kind).detail(error.to_string())
}
