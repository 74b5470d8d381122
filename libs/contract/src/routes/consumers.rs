//! Durable consumers of the event stream, managed by the platform administrator.

use super::{Access, Operation, PAGING, RateLimit, Route, RouteResponse, routes};
use crate::consumers::{
    Consumer, CreateConsumer, DeadLetter, DeadLetterSequences, DeletedDeadLetters, ReplayedDeadLetters,
};
use crate::{Page, ProblemKind};

const PLATFORM_ADMIN: &[Access] = &[Access::PlatformAdmin];

routes! {
    CONSUMERS = "Consumers", "Durable consumers of the event stream, which read over NATS.":

    /// Create a consumer
    ///
    /// Creates a durable pull consumer with explicit acknowledgement, and returns the permissions of its NATS user. An event
    /// without an acknowledgement is delivered again after 30 s, without limit; at most 1,000 events can be unacknowledged.
    /// A consumer without `tenant_id` reads the events of all tenants. A repeated request with the same definition changes nothing.
    CREATE_CONSUMER = Operation::post("/consumers")
        .idempotent()
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .json::<CreateConsumer>()
        .responses(&[
            RouteResponse::json::<Consumer>(201, "The consumer."),
            RouteResponse::json::<Consumer>(200, "The consumer, which exists with this definition."),
        ])
        .problems(&[ProblemKind::ConsumerExists]);

    /// List the consumers
    ///
    /// Lists the consumers that were created with this API, with their progress.
    LIST_CONSUMERS = Operation::get("/consumers")
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<Consumer>>(200, "A page of consumers, ordered by name.")]);

    /// Delete a consumer
    ///
    /// Deletes its position in the stream. Its NATS user remains, without access to events.
    DELETE_CONSUMER = Operation::delete("/consumers/{consumer_name}")
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .responses(&[RouteResponse::empty(204, "The consumer is deleted.")]);

    /// List the dead letters of a consumer
    ///
    /// Lists the events that a consumer could not handle, the oldest first. A page ends early when its events exceed 4 MiB. A
    /// deleted consumer keeps its dead letters.
    LIST_DEAD_LETTERS = Operation::get("/consumers/{consumer_name}/dead-letters")
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .query(&[PAGING])
        .responses(&[RouteResponse::json::<Page<DeadLetter>>(200, "A page of dead letters, ordered by number.")]);

    /// Send dead letters to their consumer again
    ///
    /// Stores each event as a new message of its tenant, with the header `Udm-Replay-For`, and deletes the dead letter. Other
    /// consumers get the event again too. A request without a response can be repeated.
    REPLAY_DEAD_LETTERS = Operation::post("/consumers/{consumer_name}/dead-letters/replay")
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .json::<DeadLetterSequences>()
        .responses(&[RouteResponse::json::<ReplayedDeadLetters>(200, "The replayed and the skipped dead letters.")]);

    /// Delete dead letters
    ///
    /// The events themselves remain until their retention ends.
    DELETE_DEAD_LETTERS = Operation::post("/consumers/{consumer_name}/dead-letters/delete")
        .idempotent()
        .access(PLATFORM_ADMIN)
        .rate_limit(RateLimit::Unlimited)
        .json::<DeadLetterSequences>()
        .responses(&[RouteResponse::json::<DeletedDeadLetters>(200, "The deleted and the skipped dead letters.")]);
}
