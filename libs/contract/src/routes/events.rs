//! `/events` and `/health`.

use super::{Access, Answer, Body, Route, routes};
use crate::events::{AcceptedEvent, BatchResponse, Health};
use crate::{ProblemKind, Scope};

const WRITER: &[Access] = &[Access::Member, Access::Key(Scope::EventsWrite)];

routes! {
    "Events", "Send UDM events into the stream.":

    /// Send an event
    ///
    /// Answered once the stream holds it. Sending the same event again, with the same `source_id` and `event_id`, makes no
    /// second one. At most 256 KiB; `Content-Encoding` may be `gzip` or `zstd`.
    SEND_EVENT = Route::post("/events")
        .access(WRITER)
        .takes_body(Body::Event)
        .answers(&[Answer::json::<AcceptedEvent>(202, "The stream holds the event.")])
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
    /// At most 1,000 events and 10 MiB; `Content-Encoding` may be `gzip` or `zstd`. Each event has a result of its own.
    /// Where some can be retried, `Retry-After` says when, and `retryable` which.
    SEND_EVENTS = Route::post("/events/batch")
        .access(WRITER)
        .takes_body(Body::Events)
        .answers(&[
            Answer::json::<BatchResponse>(202, "The stream holds every event."),
            Answer::json::<BatchResponse>(207, "The stream holds some of the events."),
            Answer::json::<BatchResponse>(422, "None of the events can be taken as it is."),
            Answer::json::<BatchResponse>(429, "The quota holds every event back."),
            Answer::json::<BatchResponse>(503, "One passing fault holds every event back."),
        ])
        .problems(&[
            ProblemKind::EmptyBatch,
            ProblemKind::BatchTooLarge,
            ProblemKind::Overloaded,
        ]);

    /// Read the JSON Schema of an event
    GET_EVENT_SCHEMA = Route::get("/events/schema")
        .access(&[Access::Anybody])
        .answers(&[Answer::document("A JSON Schema (draft 2020-12).")]);

    /// Ask whether events can be accepted now
    GET_HEALTH = Route::get("/health")
        .access(&[Access::Anybody])
        .answers(&[Answer::json::<Health>(200, "They can.")])
        .problems(&[ProblemKind::DependencyUnavailable]);
}
