//! Verification of existing streams, creation of missing ones, and updates of the settings that may change.

use std::fmt;

use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Compression, Config, PersistenceMode};
use async_nats::jetstream::{Context, ErrorCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use service::chain;

use super::StreamDefinition;
use crate::subject::EventSubject;

/// The settings that `ensure` changes.
const UPDATED_SETTINGS: [&str; 9] = [
    "max_age",
    "max_bytes",
    "compression",
    "num_replicas",
    "duplicate_window",
    "max_msg_size",
    "allow_atomic",
    "max_msgs_per_subject",
    "discard_new_per_subject",
];

/// What to check if a server rejects a size.
const STORAGE_RULE: &str = "SVC_STREAM_MAX_BYTES is at most 75 % of max_file_store of each server";

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
        /// `<setting>: expected <x>, found <y>`.
        differences: Vec<String>,
    },
    /// Other streams have the subjects of events, because the number of streams was changed.
    #[error(
        "the subjects of events belong to {}, but SVC_STREAMS={count} needs {}: set SVC_STREAMS to the previous number, or \
            follow \"Number of streams\" in docs/streams.md",
        .found.join(", "), .expected.join(", ")
    )]
    Division {
        /// The configured number of streams.
        count: usize,
        /// Names of the streams with this number.
        expected: Vec<String>,
        /// Names of the other streams.
        found: Vec<String>,
    },
    /// The server rejected a new stream.
    #[error("failed to create stream {stream}; {STORAGE_RULE}")]
    Create {
        /// Name of the stream.
        stream: String,
        /// Error of the client library.
        #[source]
        source: async_nats::Error,
    },
    /// The server rejected the change of an existing stream.
    #[error("failed to update stream {stream} ({}); {STORAGE_RULE}", .differences.join("; "))]
    Update {
        /// Name of the stream.
        stream: String,
        /// `<setting>: expected <x>, found <y>`.
        differences: Vec<String>,
        /// Error of the client library.
        #[source]
        source: async_nats::Error,
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

/// Checks that all streams exist and fulfil the guarantees of their definitions. Other retention, sizes or compression than in the
/// definitions are logged as a warning.
///
/// # Errors
/// The first stream that cannot be used.
pub async fn verify(
    context: &Context,
    definitions: impl Into<Vec<StreamDefinition>>,
) -> Result<(), StreamError> {
    let definitions = definitions.into();
    check_division(context, &definitions).await?;
    let mut warnings = Vec::new();
    for definition in definitions {
        let Found { config, .. } =
            definition.find(context).await?.ok_or_else(|| StreamError::Missing(definition.name()))?;
        definition.check(&config)?;
        warnings.push((definition.name(), definition.limit_differences(&config)));
    }
    for (stream, differences) in warnings {
        if !differences.is_empty() {
            tracing::warn!(
                stream,
                differences = differences.join("; "),
                "stream limits differ from the configuration"
            );
        }
    }
    Ok(())
}

/// Creates missing streams and verifies existing ones, which it does not change.
///
/// # Errors
/// The first stream that cannot be used.
pub async fn create(
    context: &Context,
    definitions: impl Into<Vec<StreamDefinition>>,
) -> Result<(), StreamError> {
    let definitions = definitions.into();
    for definition in &definitions {
        if definition.find(context).await?.is_none() {
            definition.create(context).await?;
        }
    }
    verify(context, definitions).await
}

/// Creates missing streams, and updates retention, size and compression of existing ones. Also raises the number of replicas, the
/// duplicate window and the maximum message size, and sets the limit of dead letters. Other settings are never changed. A stream that
/// fulfils the guarantees keeps its limits if the server rejects others, for example because they do not fit into its storage.
///
/// # Errors
/// The first stream that cannot be used.
pub async fn ensure(
    context: &Context,
    definitions: impl Into<Vec<StreamDefinition>>,
) -> Result<(), StreamError> {
    let definitions = definitions.into();
    check_division(context, &definitions).await?;
    for definition in definitions {
        definition.ensure(context).await?;
    }
    Ok(())
}

/// Checks that no other stream has the subjects of events. A stream of another division cannot be replaced: its events would be
/// lost for consumers, and the server rejects streams with overlapping subjects.
async fn check_division(context: &Context, definitions: &[StreamDefinition]) -> Result<(), StreamError> {
    #[derive(Deserialize)]
    struct Names {
        #[serde(default)]
        streams: Option<Vec<String>>,
    }
    let expected: Vec<_> =
        definitions.iter().filter(|definition| definition.has_events()).map(StreamDefinition::name).collect();
    if expected.is_empty() {
        return Ok(());
    }
    let filter = serde_json::json!({ "subject": EventSubject::ALL });
    let Names { streams: names } =
        request(context, "STREAM.NAMES".to_owned(), &filter).await.map_err(|error| {
            StreamError::Unreachable { stream: EventSubject::ALL.to_owned(), source: error.into() }
        })?;
    let found: Vec<_> = names.into_iter().flatten().filter(|name| !expected.contains(name)).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(StreamError::Division { count: expected.len(), expected, found })
}

/// An existing stream.
struct Found {
    config: Config,
    /// The configuration as the server returned it.
    raw: Value,
}

#[derive(Deserialize)]
struct StreamInfo {
    config: Value,
}

#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("no reply; check the permissions of the NATS user")]
    Failed(#[from] async_nats::jetstream::context::RequestError),
    #[error("rejected by the server")]
    Rejected(#[from] async_nats::jetstream::Error),
}

/// Sends a request to the API of `JetStream`. `subject` has no prefix.
async fn request<T: DeserializeOwned>(
    context: &Context,
    subject: String,
    body: &Value,
) -> Result<T, RequestError> {
    match context.request(subject, body).await? {
        Response::Ok(reply) => Ok(reply),
        Response::Err { error } => Err(error.into()),
    }
}

impl StreamDefinition {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn has_events(&self) -> bool {
        let of_events = EventSubject::ALL.trim_end_matches('>');
        self.0.subjects.iter().all(|subject| subject.starts_with(of_events))
    }

    /// Returns the configuration of the existing stream.
    async fn find(&self, context: &Context) -> Result<Option<Found>, StreamError> {
        let subject = format!("STREAM.INFO.{}", self.0.name);
        match request(context, subject, &serde_json::json!({})).await {
            Ok(StreamInfo { config }) => Ok(Some(self.parse(config)?)),
            Err(RequestError::Rejected(error)) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            Err(error) => Err(StreamError::Unreachable { stream: self.name(), source: error.into() }),
        }
    }

    fn parse(&self, raw: Value) -> Result<Found, StreamError> {
        let config = Config::deserialize(&raw)
            .map_err(|error| StreamError::Unreachable { stream: self.name(), source: error.into() })?;
        Ok(Found { config, raw })
    }

    async fn ensure(&self, context: &Context) -> Result<(), StreamError> {
        let found = match self.find(context).await? {
            Some(found) => found,
            None => self.create(context).await?,
        };
        let updated = self.updated(&found.config);
        // Settings that cannot be updated are reported before anything changes.
        self.check(&updated)?;
        if updated == found.config {
            return Ok(());
        }
        let mut differences = self.limit_differences(&found.config);
        differences.extend(self.minimum_differences(&found.config));
        let failed = |source: async_nats::Error| StreamError::Update {
            stream: self.name(),
            differences: differences.clone(),
            source,
        };
        // The other settings are sent as the server returned them, because the client library does not know all of them.
        let mut raw = found.raw.clone();
        let changed = serde_json::to_value(&updated).map_err(|error| failed(error.into()))?;
        for setting in UPDATED_SETTINGS {
            if let Some(value) = changed.get(setting) {
                raw[setting] = value.clone();
            }
        }
        let subject = format!("STREAM.UPDATE.{}", self.0.name);
        let StreamInfo { config } = match request(context, subject, &raw).await {
            Ok(updated) => updated,
            // The stream fulfils the guarantees as it is, so a limit that the server rejects does not stop the service.
            Err(error @ RequestError::Rejected(_)) if self.check(&found.config).is_ok() => {
                let (error, differences) = (chain(&failed(error.into())), differences.join("; "));
                tracing::warn!(stream = self.0.name, differences, error, "stream keeps its limits");
                return Ok(());
            }
            Err(error) => return Err(failed(error.into())),
        };
        tracing::info!(stream = self.0.name, differences = differences.join("; "), "stream updated");
        self.check(&self.parse(config)?.config)
    }

    async fn create(&self, context: &Context) -> Result<Found, StreamError> {
        let created = context.create_stream(self.0.clone()).await;
        // Another replica of the service can have created the stream meanwhile.
        match (self.find(context).await?, created) {
            (Some(found), _) => Ok(found),
            (None, Err(error)) => Err(StreamError::Create { stream: self.name(), source: error.into() }),
            (None, Ok(_)) => Err(StreamError::Missing(self.name())),
        }
    }

    /// Returns the configuration of an existing stream with the changes that `ensure` makes.
    fn updated(&self, found: &Config) -> Config {
        let expected = &self.0;
        let mut updated = found.clone();
        updated.max_age = expected.max_age;
        updated.max_bytes = expected.max_bytes;
        let is_compressed = |config: &Config| config.compression == Some(Compression::S2);
        if is_compressed(expected) != is_compressed(found) {
            updated.compression.clone_from(&expected.compression);
        }
        updated.num_replicas = found.num_replicas.max(expected.num_replicas);
        updated.duplicate_window = found.duplicate_window.max(expected.duplicate_window);
        // A negative size is unlimited.
        if (0..expected.max_message_size).contains(&found.max_message_size) {
            updated.max_message_size = expected.max_message_size;
        }
        updated.allow_atomic_publish |= expected.allow_atomic_publish;
        if expected.discard_new_per_subject {
            updated.max_messages_per_subject = expected.max_messages_per_subject;
            updated.discard_new_per_subject = true;
        }
        updated
    }

    /// Checks the settings that the guarantees of the service depend on.
    fn check(&self, found: &Config) -> Result<(), StreamError> {
        let mut differences = self.fixed_differences(found);
        differences.extend(self.minimum_differences(found));
        if differences.is_empty() {
            return Ok(());
        }
        Err(StreamError::Mismatch { stream: self.name(), differences })
    }

    /// Returns the differences of settings that only an administrator changes.
    fn fixed_differences(&self, found: &Config) -> Vec<String> {
        let expected = &self.0;
        let mut list = Differences::default();
        list.compare("subjects", &sorted(&expected.subjects), &sorted(&found.subjects));
        list.compare("retention", &expected.retention, &found.retention);
        list.compare("storage", &expected.storage, &found.storage);
        list.compare("discard", &expected.discard, &found.discard);
        list.compare("max_msgs", &expected.max_messages, &found.max_messages);
        list.compare(
            "max_msgs_per_subject",
            &expected.max_messages_per_subject,
            &found.max_messages_per_subject,
        );
        list.compare(
            "discard_new_per_subject",
            &expected.discard_new_per_subject,
            &found.discard_new_per_subject,
        );
        list.compare("no_ack", &false, &found.no_ack);
        list.compare("sealed", &false, &found.sealed);
        list.compare("mirror", &false, &found.mirror.is_some());
        list.compare("subject_transform", &false, &found.subject_transform.is_some());
        // Other modes acknowledge before the message is stored.
        list.compare("persist_mode", &PersistenceMode::Default, &found.persist_mode.unwrap_or_default());
        list.0
    }

    /// Returns the differences of settings that must have at least the defined value.
    fn minimum_differences(&self, found: &Config) -> Vec<String> {
        let (expected, mut list) = (self.updated(found), Differences::default());
        list.at_least("duplicate_window", &expected.duplicate_window, &found.duplicate_window);
        list.at_least("num_replicas", &expected.num_replicas, &found.num_replicas);
        list.at_least("allow_atomic", &expected.allow_atomic_publish, &found.allow_atomic_publish);
        list.at_least("max_msg_size", &expected.max_message_size, &found.max_message_size);
        list.0
    }

    /// Returns the differences of limits, which have no influence on the guarantees.
    fn limit_differences(&self, found: &Config) -> Vec<String> {
        let (expected, mut list) = (self.updated(found), Differences::default());
        list.compare("max_age", &expected.max_age, &found.max_age);
        list.compare("max_bytes", &expected.max_bytes, &found.max_bytes);
        list.compare("compression", &expected.compression, &found.compression);
        list.0
    }
}

fn sorted(subjects: &[String]) -> Vec<&String> {
    let mut sorted: Vec<_> = subjects.iter().collect();
    sorted.sort();
    sorted
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: PartialEq + fmt::Debug>(&mut self, setting: &str, expected: &T, found: &T) {
        if expected != found {
            self.0.push(format!("{setting}: expected {expected:?}, found {found:?}"));
        }
    }

    fn at_least<T: PartialOrd + fmt::Debug>(&mut self, setting: &str, expected: &T, found: &T) {
        if found < expected {
            self.0.push(format!("{setting}: expected at least {expected:?}, found {found:?}"));
        }
    }
}
