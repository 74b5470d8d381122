//! Stream definitions: verification of existing streams and creation of missing ones.
//!
//! An existing stream is never changed. Differences are reported, and an administrator decides.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

/// Name of the stream of events of all tenants.
pub const UDM_STREAM: &str = "UDM";
/// Name of the stream of events that a consumer failed to process.
pub const DEAD_LETTER_STREAM: &str = "UDM_DLQ";
/// Name of the stream of audit events of tenants.
pub const AUDIT_STREAM: &str = "AUDIT";
/// Name of the stream of audit events that belong to no tenant.
pub const ANONYMOUS_AUDIT_STREAM: &str = "AUDIT_ANONYMOUS";

const DAY: Duration = Duration::from_hours(24);
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// The maximum size of `AUDIT` and `UDM_DLQ` is this fraction of the size of `UDM`.
const SIDE_STREAM_FRACTION: u64 = 8;
/// The maximum size of `AUDIT_ANONYMOUS` is this fraction of the size of `UDM`.
const ANONYMOUS_AUDIT_FRACTION: u64 = 64;
/// Allowance for headers in the maximum message size.
const HEADER_ALLOWANCE: usize = 16 * 1024;

/// Guarantee of a 202 response. A client cannot see how a server syncs, so `Strict` is declared by the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica synced the event to disk before the response (`sync_interval: always`).
    Strict,
    /// A majority of the replicas wrote the event. Replicas sync at the interval of the server.
    Standard,
    /// One server wrote the event. A power failure can lose events that are not synced yet.
    Dev,
}

/// Durability and size of the streams of this installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Guarantee of a 202 response.
    pub durability: Durability,
    /// Number of servers that store each message: 3 in a cluster, 1 standalone.
    pub replicas: usize,
    /// Maximum size of `UDM`. `AUDIT` and `UDM_DLQ` have an eighth of it each, `AUDIT_ANONYMOUS` a 64th. At most 75 % of the
    /// volume, so that all four fit.
    pub max_bytes: u64,
}

/// Required configuration of one stream.
#[derive(Clone, Debug)]
pub struct StreamDefinition(Config);

/// A stream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream does not exist.
    #[error("stream {0} does not exist: create it, or set SVC_STREAM_MODE=ensure")]
    Missing(String),
    /// The stream exists with another configuration.
    #[error("stream {stream} has the wrong configuration: {}; change it with `nats stream edit {stream}`", .differences.join("; "))]
    Mismatch {
        /// Name of the stream.
        stream: String,
        /// `<field>: expected <x>, found <y>`.
        differences: Vec<String>,
    },
    /// The server returned no information about the stream.
    #[error("failed to query stream {stream}")]
    Unreachable {
        /// Name of the stream.
        stream: String,
        /// Error of the client library.
        #[source]
        source: async_nats::Error,
    },
}

/// Returns the definition of `UDM`: events of all tenants, 72 hours.
pub fn events(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(UDM_STREAM, "udm.v1.>", 3 * DAY, profile.max_bytes, profile))
}

/// Returns the definition of `UDM_DLQ`: events that a consumer failed to process, 14 days.
pub fn dead_letters(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(
        DEAD_LETTER_STREAM,
        "udm.dlq.v1.>",
        14 * DAY,
        profile.max_bytes / SIDE_STREAM_FRACTION,
        profile,
    ))
}

/// Returns the definition of `AUDIT`: audit events of tenants, 400 days.
pub fn audit(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(
        AUDIT_STREAM,
        "audit.v1.>",
        400 * DAY,
        profile.max_bytes / SIDE_STREAM_FRACTION,
        profile,
    ))
}

/// Returns the definition of `AUDIT_ANONYMOUS`: audit events that belong to no tenant, 7 days. Unauthenticated clients cause
/// them, so the newest replace the oldest.
pub fn anonymous_audit(profile: &Profile) -> StreamDefinition {
    let max_bytes = profile.max_bytes / ANONYMOUS_AUDIT_FRACTION;
    let config = base(ANONYMOUS_AUDIT_STREAM, "audit.anonymous.v1.>", 7 * DAY, max_bytes, profile);
    StreamDefinition(Config { discard: DiscardPolicy::Old, ..config })
}

fn base(name: &str, subjects: &str, max_age: Duration, max_bytes: u64, profile: &Profile) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        // A full stream rejects new events. It never drops stored ones.
        discard: DiscardPolicy::New,
        max_age,
        max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_message_size: i32::try_from(udm::MAX_EVENT_BYTES + HEADER_ALLOWANCE).unwrap_or(i32::MAX),
        duplicate_window: DUPLICATE_WINDOW,
        compression: Some(Compression::S2),
        num_replicas: profile.replicas,
        ..Config::default()
    }
}

impl StreamDefinition {
    /// Name of the stream.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the differences of an existing stream as `<field>: expected <x>, found <y>`.
    fn differences(&self, found: &Config) -> Vec<String> {
        let expected = &self.0;
        let mut list = Differences(Vec::new());
        list.compare("subjects", &expected.subjects, &found.subjects);
        list.compare("retention", &expected.retention, &found.retention);
        list.compare("storage", &expected.storage, &found.storage);
        list.compare("discard", &expected.discard, &found.discard);
        list.compare("max_age", &expected.max_age, &found.max_age);
        list.compare("max_bytes", &expected.max_bytes, &found.max_bytes);
        list.compare("max_msgs", &expected.max_messages, &found.max_messages);
        list.compare(
            "max_msgs_per_subject",
            &expected.max_messages_per_subject,
            &found.max_messages_per_subject,
        );
        list.compare("max_msg_size", &expected.max_message_size, &found.max_message_size);
        list.compare("duplicate_window", &expected.duplicate_window, &found.duplicate_window);
        list.compare("compression", &expected.compression, &found.compression);
        list.compare("num_replicas", &expected.num_replicas, &found.num_replicas);
        list.compare("no_ack", &false, &found.no_ack);
        list.compare("sealed", &false, &found.sealed);
        list.compare("mirror", &false, &found.mirror.is_some());
        list.compare("subject_transform", &false, &found.subject_transform.is_some());
        // Other modes acknowledge before the message is stored.
        list.compare("persist_mode", &PersistenceMode::Default, &found.persist_mode.unwrap_or_default());
        list.0
    }
}

struct Differences(Vec<String>);

impl Differences {
    fn compare<T: PartialEq + fmt::Debug>(&mut self, field: &str, expected: &T, found: &T) {
        if expected != found {
            self.0.push(format!("{field}: expected {expected:?}, found {found:?}"));
        }
    }
}

/// Checks that the stream exists with the required configuration.
pub async fn verify(context: &Context, definition: &StreamDefinition) -> Result<(), StreamError> {
    let stream = || definition.name().to_owned();
    let found = context.get_stream(definition.name()).await.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(response) if response.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            StreamError::Missing(stream())
        }
        _ => StreamError::Unreachable { stream: stream(), source: error.into() },
    })?;
    let differences = definition.differences(&found.cached_info().config);
    if differences.is_empty() { Ok(()) } else { Err(StreamError::Mismatch { stream: stream(), differences }) }
}

/// Creates the stream if it is missing, and checks its configuration. Requires nats-server 2.12 or newer.
pub async fn ensure(context: &Context, definition: &StreamDefinition) -> Result<(), StreamError> {
    match verify(context, definition).await {
        Err(StreamError::Missing(_)) => {}
        result => return result,
    }
    if let Err(error) = context.create_stream(definition.0.clone()).await {
        // Another replica of the service can have created the stream meanwhile.
        return match verify(context, definition).await {
            Err(StreamError::Missing(stream)) => {
                Err(StreamError::Unreachable { stream, source: error.into() })
            }
            result => result,
        };
    }
    verify(context, definition).await
}
