//! The streams: what they must be, whether they are, and making those that are missing.
//!
//! An existing stream is never changed: what differs is reported, for somebody to decide.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, PersistenceMode, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

use crate::{AUDIT_STREAM, DEAD_LETTER_STREAM, UDM_STREAM};

const DAY: Duration = Duration::from_hours(24);
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// The streams beside `UDM` take this part of its bytes.
const BESIDE: u64 = 8;
/// Room for the headers of the largest event.
const HEADER_ALLOWANCE: usize = 16 * 1024;

/// What a 202 means. A client cannot see how a server syncs, so `Strict` is a declaration by whoever runs the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica synced the event to its disk before the answer (`sync_interval: always`).
    Strict,
    /// A majority of the replicas wrote the event; they sync on the server's interval.
    Standard,
    /// One server wrote the event. A power failure can lose what it has not synced.
    Dev,
}

/// How the streams are kept in this installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What a 202 means.
    pub durability: Durability,
    /// How many servers hold each message: 3 in a cluster, 1 standalone.
    pub replicas: usize,
    /// Where `UDM` is full; `AUDIT` and `UDM_DLQ` are at an eighth of it each. At most 80 % of the broker's volume, so that
    /// all three fit.
    pub max_bytes: u64,
}

/// What one stream must be.
#[derive(Clone, Debug)]
pub struct StreamDefinition(Config);

/// Why a stream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no such stream.
    #[error("stream {0} does not exist: create it, or set SVC_STREAM_MODE=ensure")]
    Missing(String),
    /// It exists but is not as it must be. Each line says what is expected and what was found.
    #[error("stream {stream} is not as it must be: {}; change it with `nats stream edit {stream}`", .differences.join("; "))]
    Mismatch {
        /// Its name.
        stream: String,
        /// `<field>: expected <x>, found <y>`.
        differences: Vec<String>,
    },
    /// The broker did not tell.
    #[error("the broker does not answer for stream {stream}")]
    Unreachable {
        /// Its name.
        stream: String,
        /// What the client library says.
        #[source]
        source: async_nats::Error,
    },
}

/// `UDM`: events of all tenants, 72 hours.
pub fn events(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(UDM_STREAM, "udm.v1.>", 3 * DAY, profile.max_bytes, profile))
}

/// `UDM_DLQ`: events that a consumer could not digest, 14 days.
pub fn dead_letters(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(DEAD_LETTER_STREAM, "udm.dlq.v1.>", 14 * DAY, profile.max_bytes / BESIDE, profile))
}

/// `AUDIT`: what happened to tenants, users and credentials, 400 days.
pub fn audit(profile: &Profile) -> StreamDefinition {
    StreamDefinition(base(AUDIT_STREAM, "audit.v1.>", 400 * DAY, profile.max_bytes / BESIDE, profile))
}

fn base(name: &str, subjects: &str, max_age: Duration, max_bytes: u64, profile: &Profile) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        // A full stream is a loud refusal, never a silent loss.
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
    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What differs in a stream that exists.
    fn differences(&self, found: &Config) -> Vec<String> {
        let want = &self.0;
        let mut list = Differences(Vec::new());
        list.compare("subjects", &want.subjects, &found.subjects);
        list.compare("retention", &want.retention, &found.retention);
        list.compare("storage", &want.storage, &found.storage);
        list.compare("discard", &want.discard, &found.discard);
        list.compare("max_age", &want.max_age, &found.max_age);
        list.compare("max_bytes", &want.max_bytes, &found.max_bytes);
        list.compare("max_msgs", &want.max_messages, &found.max_messages);
        list.compare("max_msgs_per_subject", &want.max_messages_per_subject, &found.max_messages_per_subject);
        list.compare("max_msg_size", &want.max_message_size, &found.max_message_size);
        list.compare("duplicate_window", &want.duplicate_window, &found.duplicate_window);
        list.compare("compression", &want.compression, &found.compression);
        list.compare("num_replicas", &want.num_replicas, &found.num_replicas);
        list.compare("no_ack", &false, &found.no_ack);
        list.compare("sealed", &false, &found.sealed);
        list.compare("mirror", &false, &found.mirror.is_some());
        list.compare("subject_transform", &false, &found.subject_transform.is_some());
        // Acknowledges before it stores.
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

/// Checks that the stream exists and is as it must be.
pub async fn verify(context: &Context, definition: &StreamDefinition) -> Result<(), StreamError> {
    let stream = || definition.name().to_owned();
    let found = context.get_stream(definition.name()).await.map_err(|fault| match fault.kind() {
        GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
            StreamError::Missing(stream())
        }
        _ => StreamError::Unreachable { stream: stream(), source: fault.into() },
    })?;
    let differences = definition.differences(&found.cached_info().config);
    if differences.is_empty() { Ok(()) } else { Err(StreamError::Mismatch { stream: stream(), differences }) }
}

/// Creates the stream when it is missing, and checks it either way. Needs nats-server 2.12 or newer.
pub async fn ensure(context: &Context, definition: &StreamDefinition) -> Result<(), StreamError> {
    match verify(context, definition).await {
        Err(StreamError::Missing(_)) => {}
        known => return known,
    }
    if let Err(fault) = context.create_stream(definition.0.clone()).await {
        // Another replica may have been quicker; if so, its stream is checked like any other.
        return match verify(context, definition).await {
            Err(StreamError::Missing(stream)) => {
                Err(StreamError::Unreachable { stream, source: fault.into() })
            }
            known => known,
        };
    }
    verify(context, definition).await
}
