//! `GET /events/stream`: stored events as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use authn::Caller;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use bus::{Position, ReadItem, Start, StoredEvent};
use contract::events::{ReadEvents, StreamedEvent};
use contract::{ProblemKind, Scope};
use futures::StreamExt as _;
use futures::stream;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use service::Problem;
use service::http::{Filters, HeaderError};

use crate::app::{App, OpenStream, PositionKey, ReadRequest, Stream};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Makes nginx forward each event at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Delay of a client before it connects again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_EVENT_TYPES: usize = 20;
const INVALID_POSITION: &str = "must be the id of an event of this stream and tenant";

/// Requires `events:read`.
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    query: Result<Filters<ReadEvents>, Problem>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.require(Scope::EventsRead)?;
    let Filters(query) = query?;
    let key = app.positions.key(Stream::Events, Some(caller.tenant_id()));
    let opened = app.read_events(&caller, request(query, &headers, &key)?).await?;
    let mut response = Sse::new(frames(opened, key).map(Ok::<_, Infallible>)).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

/// Returns the request of a query.
fn request(query: ReadEvents, headers: &HeaderMap, key: &PositionKey) -> Result<ReadRequest, Problem> {
    let invalid = |pointer: &str, message: &str| {
        Problem::new(ProblemKind::ValidationFailed)
            .detail("Correct the query parameters listed in `errors`.")
            .field(pointer, "invalid_value", message)
    };
    if query.event_type.len() > MAX_EVENT_TYPES {
        return Err(invalid("/event_type", "must occur at most 20 times"));
    }
    if !query.event_type.iter().all(|name| bus::is_event_type(name)) {
        return Err(invalid(
            "/event_type",
            "must be 1 to 64 characters of A-Z, 0-9 and _, starting with a letter",
        ));
    }
    if query.source_id.as_ref().is_some_and(|source_id| !udm::is_source_id(source_id)) {
        return Err(invalid("/source_id", "must be 1 to 256 bytes, not blank, no control characters"));
    }
    if query.after.is_some() && query.since.is_some() {
        return Err(invalid("/since", "must not be sent together with `after`"));
    }
    let after =
        query.after.map(|text| position(key, &text).ok_or_else(|| invalid("/after", INVALID_POSITION)));
    let start = match (last_event_id(headers, key)?.or(after.transpose()?), query.since) {
        (Some(position), _) => Start::After(position),
        (None, Some(time)) => Start::Since(time),
        (None, None) => Start::New,
    };
    let follow = query.follow.unwrap_or(true);
    Ok(ReadRequest { event_types: query.event_type, source_id: query.source_id, start, follow })
}

/// Reads the position that a client sends when it connects again. It takes precedence over the query, which is that of the
/// first request.
fn last_event_id(headers: &HeaderMap, key: &PositionKey) -> Result<Option<Position>, HeaderError> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    let position = value.to_str().ok().and_then(|text| position(key, text));
    let invalid = || HeaderError::Invalid(LAST_EVENT_ID, INVALID_POSITION.to_owned());
    position.map(Some).ok_or_else(invalid)
}

/// Returns the position of an `id`.
fn position(key: &PositionKey, text: &str) -> Option<Position> {
    Position::from_bytes(&key.open(text)?)
}

/// Returns the server-sent events of a stream. Ends with the read, the credential or the process.
fn frames(opened: OpenStream, key: PositionKey) -> impl futures::Stream<Item = Event> + Send + 'static {
    let OpenStream { read, credential, draining, place } = opened;
    let ended = Box::pin(async move {
        tokio::select! {
            () = credential.ended() => tracing::info!("event stream ended: the credential is not valid any more"),
            () = draining.cancelled() => {}
        }
    });
    let state = Some((read, place, key, true));
    let frames = stream::unfold(state, async |state| {
        let (mut read, place, key, is_first) = state?;
        loop {
            let item = tokio::select! {
                biased;
                () = place.replaced() => return Some((empty("replaced", &key, read.position()), None)),
                item = read.next() => item,
            };
            let item = match item {
                Some(Ok(item)) => item,
                Some(Err(error)) => {
                    tracing::info!(%error, "event stream ended");
                    return None;
                }
                None => return Some((empty("end", &key, read.position()), None)),
            };
            let Some(mut frame) = frame(&item, &key, read.position()) else { continue };
            if matches!(item, ReadItem::Event(_)) {
                place.record_event();
            }
            if is_first {
                frame = frame.retry(RECONNECT_DELAY);
            }
            return Some((frame, Some((read, place, key, false))));
        }
    });
    frames.take_until(ended)
}

/// Returns the server-sent event of an item, or `None` for an event that is not JSON.
fn frame(item: &ReadItem, key: &PositionKey, position: &Position) -> Option<Event> {
    let named = |name: &str| Event::default().id(key.seal(&position.to_bytes())).event(name);
    Some(match item {
        ReadItem::Event(event) => named("udm").data(data(event)?),
        ReadItem::Idle => empty("position", key, position),
        ReadItem::Gap => empty("gap", key, position),
    })
}

/// Returns a server-sent event that is not a stored event. It has data, because clients ignore the others.
fn empty(name: &str, key: &PositionKey, position: &Position) -> Event {
    Event::default().id(key.seal(&position.to_bytes())).event(name).data("{}")
}

/// Returns an event as one line of JSON. Line breaks occur only between the values of the event, because strings contain them
/// escaped.
fn data(event: &StoredEvent) -> Option<String> {
    let text = std::str::from_utf8(&event.payload).ok()?.replace(['\n', '\r'], " ");
    let tenant = event.tenant.as_str();
    let data = StreamedEvent {
        event_id: event.event_id.clone(),
        server_event_id: udm::server_event_id(tenant, &event.source_id, &event.event_id),
        source_id: event.source_id.clone(),
        event_type: event.event_type.clone(),
        received_at: event.received_at,
        event: RawValue::from_string(text).ok()?,
    };
    serde_json::to_string(&data).ok()
}
