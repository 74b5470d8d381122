//! Durable pull consumers of the event streams, and the permissions of their NATS users. The definition of a durable is in its
//! metadata; durables without it belong to others and are neither listed nor deleted.

mod filter;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Info, pull};
use async_nats::jetstream::context::RequestError;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::ConsumerCreateStrictErrorKind;
use async_nats::jetstream::{Context, ErrorCode};
use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use serde_json::json;

pub use filter::DurableFilter;

use crate::{Connection, EventStreams, NotConnected};

/// Prefix of the consumer API in the accounts of consumers, in place of `$JS.API` (`deploy/nats/consumers.conf`).
pub const CONSUMER_API_PREFIX: &str = "JS.API";
/// Time until an event without an acknowledgement is delivered again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Number of delivered events without an acknowledgement.
const MAX_ACK_PENDING: i64 = 1000;
/// Maximum time that a pull request can wait. The broker forgets the reply subject of another account after two minutes.
const MAX_PULL_WAIT: Duration = Duration::from_mins(1);
/// Key of the metadata with the definition.
const DEFINITION: &str = "svc-definition";

/// The durable consumers of the streams of events.
pub struct Durables {
    context: Context,
    /// Names and partitions.
    streams: Vec<(String, RangeInclusive<u8>)>,
}

/// One durable consumer: the sums and last times of its streams.
#[derive(Clone, Debug)]
pub struct Durable {
    /// Name.
    pub name: String,
    /// The events that it reads.
    pub filter: DurableFilter,
    /// Streams that contain it.
    pub streams: Vec<String>,
    /// Creation time of the oldest.
    pub created_at: DateTime<Utc>,
    /// Events that were not delivered yet.
    pub pending: u64,
    /// Delivered events without an acknowledgement.
    pub ack_pending: u64,
    /// Unacknowledged events that were delivered more than once.
    pub redelivered: u64,
    /// Last delivery.
    pub last_delivered_at: Option<DateTime<Utc>>,
    /// Last acknowledgement.
    pub last_acknowledged_at: Option<DateTime<Utc>>,
}

/// The result of [`Durables::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The durable is new.
    Created,
    /// The durable exists with this definition.
    Existing,
}

/// A request for a durable failed.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// A consumer of this name has another definition.
    #[error("a consumer with another definition has this name")]
    Exists,
    /// The broker did not answer, or rejected the request.
    #[error("failed to manage consumers of stream {stream}")]
    Failed {
        /// Name of the stream.
        stream: String,
        /// Error of the client library.
        #[source]
        source: async_nats::Error,
    },
}

impl Durables {
    /// Uses the connection for a few requests. Does not wait for a broker that is down.
    ///
    /// # Errors
    /// No server is connected.
    pub fn over(connection: &Connection, streams: EventStreams) -> Result<Self, NotConnected> {
        let context = async_nats::jetstream::new(connection.connected()?.clone());
        Ok(Self { context, streams: streams.with_ranges().collect() })
    }

    /// Creates a durable in each stream that stores events of the filter. A request that failed halfway can be repeated.
    ///
    /// # Errors
    /// [`DurableError::Exists`] if a consumer of this name has another definition.
    pub async fn create(
        &self,
        name: &str,
        filter: &DurableFilter,
    ) -> Result<(Durable, Creation), DurableError> {
        let definition = json!(filter).to_string();
        let found = try_join_all(self.streams.iter().map(|(stream, _)| self.find(stream, name))).await?;
        if found.iter().flatten().any(|info| info.config.metadata.get(DEFINITION) != Some(&definition)) {
            return Err(DurableError::Exists);
        }
        let (mut infos, mut creation) = (Vec::new(), Creation::Existing);
        for ((stream, partitions), found) in self.streams.iter().zip(found) {
            let subjects = filter.subjects(partitions);
            match found {
                Some(info) => infos.push(info),
                None if subjects.is_empty() => {}
                None => {
                    infos.push(self.create_in(stream, name, subjects, &definition).await?);
                    creation = Creation::Created;
                }
            }
        }
        let durable = merge(infos).remove(name).ok_or(DurableError::Exists)?;
        Ok((durable, creation))
    }

    /// Returns all durables that have a definition, ordered by name.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn list(&self) -> Result<Vec<Durable>, DurableError> {
        let lists = self.streams.iter().map(async |(stream, _)| {
            let stream_handle = self.context.get_stream_no_info(stream).await.map_err(failed(stream))?;
            stream_handle.consumers().try_collect::<Vec<_>>().await.map_err(failed(stream))
        });
        Ok(merge(try_join_all(lists).await?.into_iter().flatten()).into_values().collect())
    }

    /// Returns whether a stream has a durable of this name.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn exists(&self, name: &str) -> Result<bool, DurableError> {
        let found = try_join_all(self.streams.iter().map(|(stream, _)| self.find(stream, name))).await?;
        Ok(found.iter().any(Option::is_some))
    }

    /// Deletes a durable from all streams. Returns whether it existed.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn delete(&self, name: &str) -> Result<bool, DurableError> {
        let mut existed = false;
        for (stream, _) in &self.streams {
            let found = self.find(stream, name).await?;
            if found.is_some_and(|info| info.config.metadata.contains_key(DEFINITION)) {
                let deleted = self.context.delete_consumer_from_stream(name, stream).await;
                deleted.map_err(failed(stream))?;
                existed = true;
            }
        }
        Ok(existed)
    }

    async fn find(&self, stream: &str, name: &str) -> Result<Option<Info>, DurableError> {
        let subject = format!("CONSUMER.INFO.{stream}.{name}");
        let response: Result<Response<Info>, RequestError> = self.context.request(subject, &json!({})).await;
        match response.map_err(failed(stream))? {
            Response::Ok(info) => Ok(Some(info)),
            Response::Err { error } if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND => Ok(None),
            Response::Err { error } => Err(failed(stream)(error)),
        }
    }

    async fn create_in(
        &self,
        stream: &str,
        name: &str,
        mut subjects: Vec<String>,
        definition: &str,
    ) -> Result<Info, DurableError> {
        // Filters of durables with one filter subject can be restricted by permissions of the broker, so it has its own field.
        let filter_subject =
            if subjects.len() == 1 { subjects.pop().unwrap_or_default() } else { String::new() };
        let config = pull::Config {
            durable_name: Some(name.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            // The broker would drop an event after a limit.
            max_deliver: -1,
            max_ack_pending: MAX_ACK_PENDING,
            max_expires: MAX_PULL_WAIT,
            filter_subject,
            filter_subjects: subjects,
            metadata: HashMap::from([(DEFINITION.to_owned(), definition.to_owned())]),
            ..pull::Config::default()
        };
        match self.context.create_consumer_strict_on_stream(config, stream).await {
            Ok(consumer) => Ok(consumer.cached_info().clone()),
            // Another request created it meanwhile.
            Err(error) if error.kind() == ConsumerCreateStrictErrorKind::AlreadyExists => {
                Err(DurableError::Exists)
            }
            Err(error) => Err(failed(stream)(error)),
        }
    }
}

fn failed<E: Into<async_nats::Error>>(stream: &str) -> impl FnOnce(E) -> DurableError + use<'_, E> {
    move |source| DurableError::Failed { stream: stream.to_owned(), source: source.into() }
}

/// Combines the durables of the same name. Omits those without a definition.
fn merge(infos: impl IntoIterator<Item = Info>) -> BTreeMap<String, Durable> {
    let mut durables = BTreeMap::new();
    for info in infos {
        let definition = info.config.metadata.get(DEFINITION);
        let Some(filter) = definition.and_then(|text| serde_json::from_str(text).ok()) else { continue };
        let found = Durable {
            name: info.name,
            filter,
            streams: vec![info.stream_name],
            created_at: time(info.created),
            pending: info.num_pending,
            ack_pending: info.num_ack_pending as u64,
            redelivered: info.num_redelivered as u64,
            last_delivered_at: info.delivered.last_active.map(time),
            last_acknowledged_at: info.ack_floor.last_active.map(time),
        };
        match durables.remove(&found.name) {
            None => durables.insert(found.name.clone(), found),
            Some(first) => durables.insert(found.name.clone(), first.and(found)),
        };
    }
    durables
}

impl Durable {
    /// Adds the same durable of another stream.
    fn and(mut self, other: Self) -> Self {
        self.streams.extend(other.streams);
        Self {
            created_at: self.created_at.min(other.created_at),
            pending: self.pending + other.pending,
            ack_pending: self.ack_pending + other.ack_pending,
            redelivered: self.redelivered + other.redelivered,
            last_delivered_at: self.last_delivered_at.max(other.last_delivered_at),
            last_acknowledged_at: self.last_acknowledged_at.max(other.last_acknowledged_at),
            ..self
        }
    }

    /// Returns the prefix of the reply subjects of its NATS user.
    pub fn inbox_prefix(&self) -> String {
        format!("_INBOX.{}", self.name)
    }

    /// Returns the subjects that its NATS user may publish: requests for this durable, acknowledgements and dead letters.
    pub fn publish_permissions(&self) -> Vec<String> {
        let name = &self.name;
        let of_stream = |stream: &String| {
            [
                format!("{CONSUMER_API_PREFIX}.CONSUMER.INFO.{stream}.{name}"),
                format!("{CONSUMER_API_PREFIX}.CONSUMER.MSG.NEXT.{stream}.{name}"),
                format!("$JS.ACK.{stream}.{name}.>"),
            ]
        };
        let tenant = self.filter.tenant_id.as_ref().map_or("*", |tenant| tenant.as_str());
        let dead_letters = format!("udm.dlq.v1.{tenant}.{name}");
        self.streams.iter().flat_map(of_stream).chain([dead_letters]).collect()
    }
}

fn time(time: async_nats::datetime::DateTime) -> DateTime<Utc> {
    DateTime::from_timestamp(time.unix_timestamp(), time.nanosecond()).unwrap_or_default()
}
