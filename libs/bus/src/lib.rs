//! NATS: connection, subject grammar, stream definitions, durable consumers, dead letters, audit events, acknowledged
//! publication, the invalidation feed and the number of replicas.

mod audit;
mod budget;
mod connect;
mod dead_letters;
mod durables;
mod invalidations;
mod message;
mod publisher;
mod quarantine;
mod reader;
mod replicas;
mod stored;
mod streams;
mod subject;
mod wire;

pub use audit::{AuditFilter, AuditReader, StoredAudit};
pub use budget::{BudgetExceeded, MemoryBudget, Reservation};
pub use connect::{Config, ConnectError, Connection, NatsSettings, NotConnected, check_version, connect};
pub use dead_letters::{DeadLetter, DeadLetterError, DeadLetterSpace, DeadLetters, QUARANTINE};
pub use durables::{
    ACCOUNTS_HEADER, AccountsFile, CONSUMERS_SUBJECT, ConsumerLogins, ConsumerRequests, Created, Durable,
    DurableDefinition, DurableError, DurableFilter, Durables, Login, MessageLimit, accounts_file,
};
pub use invalidations::{
    FeedEvent, INVALIDATION_SUBJECT, Invalidation, InvalidationListener, InvalidationMessage,
    InvalidationPublisher,
};
pub use message::{EventContext, Message};
#[cfg(fuzzing)]
pub use publisher::fuzzed_reply;
pub use publisher::{
    Ack, InFlight, PublishError, PublishLimits, Publisher, StreamSet, StreamSize, StreamUsage,
};
pub use quarantine::{QuarantinedItem, content_id, quarantine_subject};
pub use reader::{
    EventFilter, EventRead, EventReader, Position, READ_BYTES, ReadError, ReadItem, Start, StoredEvent,
};
pub use replicas::{REPLICA_SUBJECT, Replicas};
pub use stored::{Place, ReadFrom};
pub use streams::{
    ANONYMOUS_AUDIT_STREAM, API_PREFIX, AUDIT_STREAM, AuditProfile, DEAD_LETTER_STREAM, Durability,
    EventStreams, FACADE_API_PREFIX, Profile, StreamDefinition, StreamError, StreamMode, StreamSettings,
    StreamsCommand, UDM_STREAM, create, ensure, retention, share_of_free, until_valid, verify,
};
pub use subject::{AuditSubject, EventSubject, InvalidSubject, PARTITIONS, is_event_type, partition};
#[cfg(fuzzing)]
pub use wire::fuzzed_operations;
