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
use udm::{MAX_EVENT_BYTES, SplitError, split_lines, split_list};

use super::{answer, body};
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
    if format(request.headers()) != Some(Format::Json) {
        return Err(Problem::new(ProblemKind::MediaType).detail("Send Content-Type: application/json."));
    }
    let sending = sending(&app, caller, &request_id);
    let body = body::events(request, MAX_EVENT_BYTES, ProblemKind::EventTooLarge).await?;
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
    let body = body::events(request, MAX_BATCH_BYTES, ProblemKind::BatchTooLarge).await?;
    let items = match format {
        Format::Json => split_list(&body),
        Format::Lines => split_lines(&body),
    };
    let items = items.map_err(|error| no_batch(&error))?;
    if items.is_empty() {
        return Err(ProblemKind::EmptyBatch.into());
    }
    Ok(answer::batch(app.ingest_batch(&sending, &body, &items).await))
}

/// `GET …/schema`: anybody.
pub(super) async fn schema() -> Json<serde_json::Value> {
    Json(udm::schema().to_value())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Lines,
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let media_type = media_type(headers)?;
    if media_type.eq_ignore_ascii_case("application/json") {
        return Some(Format::Json);
    }
    media_type.eq_ignore_ascii_case("application/x-ndjson").then_some(Format::Lines)
}

fn sending(app: &App, caller: Caller, request_id: &RequestId) -> Sending {
    let traceparent = telemetry::traceparent();
    Sending::new(caller, app.clock.now(), request_id.as_str(), traceparent.as_deref())
}

fn no_batch(error: &SplitError) -> Problem {
    let kind = match error {
        SplitError::NotJson(_) => ProblemKind::MalformedJson,
        SplitError::NotAList => ProblemKind::ValidationFailed,
        SplitError::TooMany => ProblemKind::BatchTooLarge,
    };
    Problem::new(kind).detail(error.to_string())
}
