//! NATS: the connection, the grammar of subjects, the streams, publication that ends with an acknowledgement, and invalidations of
//! revocations, which need none.

mod connect;
mod digest;
mod invalidations;
mod message;
mod publisher;
mod streams;
mod subject;

pub use connect::{Config, ConnectError, NATS_URL, connect};
pub use invalidations::{
    FeedEvent, INVALIDATION_SUBJECT, Invalidation, InvalidationListener, InvalidationMessage,
    InvalidationPublisher,
};
pub use message::{Message, Request};
pub use publisher::{Ack, Limits, PublishError, PublishMetrics, Publisher};
pub use streams::{
    Durability, Profile, StreamDefinition, StreamError, audit, dead_letters, ensure, events, verify,
};
pub use subject::{AuditSubject, EventSubject, InvalidSubject, PARTITIONS, partition};

/// Events of all tenants.
pub const UDM_STREAM: &str = "UDM";
/// Events that a consumer could not digest.
pub const DEAD_LETTER_STREAM: &str = "UDM_DLQ";
/// What happened to tenants, users and credentials.
pub const AUDIT_STREAM: &str = "AUDIT";
