//! Durable consumers of the event stream, managed by the platform administrator.

use super::{Access, Operation, PAGING, RateLimit, Route, RouteResponse, SchemaRef, routes};
use crate::consumers::{
    Consumer, ConsumerAccounts, CreateConsumer, CreatedConsumer, DeadLetter, DeadLetterSequences,
    HandledDeadLetters, ResetConsumer, TenantQuery,
};
use crate::{Page, ProblemKind};

routes! {
    CONSUMERS = "Consumers", "Durable consumers of the event stream, which read over NATS.":

    /// Create a consumer
    ///
    /// Creates a durable pull consumer with explicit acknowledgement, and a login at the broker that can use this consumer only. Any NATS
    /// client reads with it and default options. An event without an acknowledgement is delivered again, without limit. A repeated
    /// request with the same definition changes nothing, and `login` is null.
    CREATE_CONSUMER = Operation::post("/consumers")
        .idempotent()
        .only_platform_admin()
        .json::<CreateConsumer>()
        .responses(&[
            RouteResponse::json::<CreatedConsumer>(201, "The consumer with its login."),
            RouteResponse::json::<CreatedConsumer>(200, "The consumer, which exists with this definition."),
        ])
        .problems(&[ProblemKind::ConsumerExists]);

    /// List the consumers
    ///
    /// Lists the consumers that were created with this API, with their progress. An administrator of a tenant gets those of the tenant.
    LIST_CONSUMERS = Operation::get("/consumers")
        .access(&[Access::Admin, Access::PlatformAdmin])
        .rate_limit(RateLimit::Credential)
        .query(&[PAGING, SchemaRef::new::<TenantQuery>()])
        .responses(&[RouteResponse::json::<Page<Consumer>>(200, "A page of consumers, ordered by name.")]);

    /// Get the accounts of all consumers
    ///
    /// Returns the file `consumers.conf` of the broker, derived from the consumers. It contains hashes of their logins.
    GET_CONSUMER_ACCOUNTS = Operation::get("/consumers/_accounts")
        .only_platform_admin()
        .responses(&[RouteResponse::json::<ConsumerAccounts>(200, "The file.")]);

    /// Get a consumer
    ///
    /// An administrator of a tenant can get the consumers of the tenant.
    GET_CONSUMER = Operation::get("/consumers/{consumer_name}")
        .access(&[Access::Admin, Access::PlatformAdmin])
        .rate_limit(RateLimit::Credential)
        .responses(&[RouteResponse::json::<Consumer>(200, "The consumer.")]);

    /// Delete a consumer
    ///
    /// Deletes its position in the stream and its login. It reads no more events at once. Its dead letters remain until they expire.
    DELETE_CONSUMER = Operation::delete("/consumers/{consumer_name}")
        .only_platform_admin()
        .responses(&[RouteResponse::empty(204, "The consumer is deleted.")]);

    /// Replace the login of a consumer
    ///
    /// The previous password is not valid any more, and its connections are closed. A suspension remains.
    ROTATE_CONSUMER_LOGIN = Operation::post("/consumers/{consumer_name}/rotate-login")
        .only_platform_admin()
        .responses(&[RouteResponse::json::<CreatedConsumer>(200, "The consumer with its login.")]);

    /// Pause a consumer
    ///
    /// The broker delivers no events to it until it is resumed. Events in flight can be acknowledged.
    PAUSE_CONSUMER = Operation::post("/consumers/{consumer_name}/pause")
        .idempotent()
        .only_platform_admin()
        .responses(&[RouteResponse::json::<Consumer>(200, "The consumer.")]);

    /// Resume a consumer
    ///
    /// Continues the delivery, and ends a suspension of its login.
    RESUME_CONSUMER = Operation::post("/consumers/{consumer_name}/resume")
        .idempotent()
        .only_platform_admin()
        .responses(&[RouteResponse::json::<Consumer>(200, "The consumer.")]);

    /// Read from another event
    ///
    /// The consumer reads all events again from this one, also those that it has acknowledged, or skips those before it. A client that
    /// waits for events gets the error 409 (consumer deleted): some read again, and programs with `Consume` of nats.go or `consume` of
    /// nats.js end.
    RESET_CONSUMER = Operation::post("/consumers/{consumer_name}/reset")
        .idempotent()
        .only_platform_admin()
        .json::<ResetConsumer>()
        .responses(&[RouteResponse::json::<Consumer>(200, "The consumer.")]);

    /// List the dead letters of a consumer
    ///
    /// Lists the events that a consumer could not handle, the oldest first. A page ends early when its events exceed 4 MiB. A
    /// deleted consumer keeps its dead letters. A new consumer of its name that reads one tenant gets only those of its tenant again.
    LIST_DEAD_LETTERS = Operation::get("/consumers/{consumer_name}/dead-letters")
        .only_platform_admin()
        .query(&[PAGING, SchemaRef::new::<TenantQuery>()])
        .responses(&[RouteResponse::json::<Page<DeadLetter>>(200, "A page of dead letters, ordered by number.")]);

    /// Send dead letters to their consumer again
    ///
    /// Stores each event as a new message of its tenant, with the header `Udm-Replay-For`, and deletes the dead letter. Other
    /// consumers get the event again too. A request without a response can be repeated.
    REPLAY_DEAD_LETTERS = Operation::post("/consumers/{consumer_name}/dead-letters/replay")
        .only_platform_admin()
        .json::<DeadLetterSequences>()
        .responses(&[RouteResponse::json::<HandledDeadLetters>(200, "The replayed and the skipped dead letters.")]);

    /// Delete dead letters
    ///
    /// The events themselves remain until their retention ends.
    DELETE_DEAD_LETTERS = Operation::post("/consumers/{consumer_name}/dead-letters/delete")
        .idempotent()
        .only_platform_admin()
        .json::<DeadLetterSequences>()
        .responses(&[RouteResponse::json::<HandledDeadLetters>(200, "The deleted and the skipped dead letters.")]);
}
