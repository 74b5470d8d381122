//! Event ingestion, and reading of stored events. Memory budgets and quotas of tenants apply instead of a rate limit per address.

use super::{Access, Operation, PAGING, RateLimit, RequestBody, Route, RouteResponse, SchemaRef, routes};
use crate::consumers::{DeadLetter, DeadLetterSequences, HandledDeadLetters, TenantQuery};
use crate::events::{AcceptedEvent, BatchResponse, Health, ReadEvents, SendEvents, StreamedEvent};
use crate::{Page, ProblemKind, Scope};

const WRITER: &[Access] = &[Access::Member, Access::Key(Scope::EventsWrite)];
const ADMINS: &[Access] = &[Access::Admin, Access::PlatformAdmin];

routes! {
    EVENTS = "Events", "Send UDM events into the stream, and read them.":

    /// Send an event
    ///
    /// Responds once the stream has stored the event. Events with the same `source_id` and `event_id` within two minutes
    /// are stored once. At most 256 KiB; `Content-Encoding` may be `gzip` or `zstd`. Each name of a known field can be written in
    /// `snake_case` or `lowerCamelCase`: `event_type` and `eventType` are the same field. With `invalid=quarantine`, an invalid event of at
    /// most 10 MiB is stored as a dead letter of the tenant, with at most 256 KiB of it, and the response is 202 too.
    SEND_EVENT = Operation::post("/events")
        .access(WRITER)
        .rate_limit(RateLimit::Credential)
        .query(&[SchemaRef::new::<SendEvents>()])
        .body(RequestBody::Event)
        .responses(&[RouteResponse::json::<AcceptedEvent>(202, "The event is stored or quarantined.")])
        .problems(&[
            ProblemKind::SourceNotAllowed,
            ProblemKind::EventTooLarge,
            ProblemKind::QuotaExceeded,
            ProblemKind::Overloaded,
            ProblemKind::StreamFull,
            ProblemKind::AckTimeout,
        ]);

    /// Send several events
    ///
    /// At most 10,000 events and 10 MiB; `Content-Encoding` may be `gzip` or `zstd`. The response contains one result per event. If
    /// `retryable` is true for some of them, send those again after `Retry-After`. With the header `Prefer: return=minimal` (RFC 7240),
    /// the response contains only the numbers, for senders that accept no large response. Of a batch above the quota of the tenant, the
    /// first events are stored and the others are rejected with `quota_exceeded`, which is retryable. If the tenant has used its quota,
    /// the request is rejected before the body is read.
    ///
    /// With `invalid=quarantine`, an invalid item is stored as a dead letter of the tenant and counts as success, and so is a body that is
    /// not a batch. If any item fails for a temporary reason, the response is 429 or 503. Then send the same body again: events without an
    /// id get one that follows from their bytes and their number among equal items of the request, so that nothing is stored twice. A
    /// request is then admitted as a whole if the tenant has any quota left.
    SEND_EVENTS = Operation::post("/events/batch")
        .access(WRITER)
        .rate_limit(RateLimit::Credential)
        .query(&[SchemaRef::new::<SendEvents>()])
        .body(RequestBody::Events)
        .responses(&[
            RouteResponse::json::<BatchResponse>(202, "All events are stored, or quarantined with `invalid=quarantine`."),
            RouteResponse::json::<BatchResponse>(207, "Some of the events are stored."),
            RouteResponse::json::<BatchResponse>(422, "No event is stored: all are invalid."),
            RouteResponse::json::<BatchResponse>(
                429,
                "Some events exceed a limit of the tenant. None is stored; with `invalid=quarantine`, others can be.",
            ),
            RouteResponse::json::<BatchResponse>(
                503,
                "A temporary error affects some events. None is stored; with `invalid=quarantine`, others can be.",
            ),
        ])
        .problems(&[
            ProblemKind::EmptyBatch,
            ProblemKind::BatchTooLarge,
            ProblemKind::QuotaExceeded,
            ProblemKind::Overloaded,
        ]);

    /// Read events of the tenant
    ///
    /// Returns server-sent events: stored ones after `after` or `since`, then new ones. The types are `udm`, with a stored event as
    /// data; `gap`, if events before the next one are not stored any more; `position`, at the start and at least every 15 seconds;
    /// `end`, after the stored events if `follow` is false; and `replaced`, before the end of a response if another tenant
    /// with fewer streams needs its place. To continue after the end of a response, send the last `id` in the header `Last-Event-ID` or in
    /// `after`: no event is lost or repeated. A response ends when the credential is revoked or expires, when the server restarts, and
    /// when the client does not read for 30 seconds. An API key with a list of sources reads the events of these sources.
    READ_EVENTS = Operation::get("/events/stream")
        .access(&[Access::Admin, Access::Key(Scope::EventsRead)])
        .rate_limit(RateLimit::Credential)
        .query(&[SchemaRef::new::<ReadEvents>()])
        .responses(&[RouteResponse::event_stream::<StreamedEvent>("The events.")])
        .problems(&[ProblemKind::SourceNotAllowed, ProblemKind::TooManyStreams, ProblemKind::Overloaded]);

    /// List quarantined items
    ///
    /// Lists the items that were sent with `invalid=quarantine` and are not valid events, the oldest first. An administrator of
    /// a tenant gets those of this tenant. A page ends early when its items exceed 4 MiB.
    LIST_QUARANTINED = Operation::get("/events/quarantine")
        .access(ADMINS)
        .rate_limit(RateLimit::Credential)
        .query(&[PAGING, SchemaRef::new::<TenantQuery>()])
        .responses(&[RouteResponse::json::<Page<DeadLetter>>(200, "A page of quarantined items, the oldest first.")])
        .problems(&[ProblemKind::Overloaded]);

    /// Get a quarantined item
    ///
    /// The field `quarantine.payload` contains the stored bytes. To send the item, correct it and send it as a new event.
    GET_QUARANTINED = Operation::get("/events/quarantine/{sequence}")
        .access(ADMINS)
        .rate_limit(RateLimit::Credential)
        .responses(&[RouteResponse::json::<DeadLetter>(200, "The quarantined item.")])
        .problems(&[ProblemKind::Overloaded]);

    /// Delete quarantined items
    ///
    /// An administrator of a tenant deletes items of this tenant only.
    DELETE_QUARANTINED = Operation::post("/events/quarantine/delete")
        .idempotent()
        .access(ADMINS)
        .rate_limit(RateLimit::Credential)
        .json::<DeadLetterSequences>()
        .responses(&[RouteResponse::json::<HandledDeadLetters>(200, "The deleted and the skipped items.")])
        .problems(&[ProblemKind::Overloaded]);

    /// Get the JSON Schema of an event
    GET_EVENT_SCHEMA = Operation::get("/events/schema")
        .access(&[Access::Public])
        .rate_limit(RateLimit::Unlimited)
        .responses(&[RouteResponse::document("A JSON Schema (draft 2020-12).")]);

    /// Check whether events can be accepted
    GET_HEALTH = Operation::get("/health")
        .access(&[Access::Public])
        .rate_limit(RateLimit::Unlimited)
        .responses(&[RouteResponse::json::<Health>(200, "Events can be accepted.")])
        .problems(&[ProblemKind::DependencyUnavailable]);
}
