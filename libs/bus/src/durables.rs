//! Durable pull consumers of the event streams, and the accounts of their logins at the broker. The definition of a durable is in its
//! metadata; durables without it belong to others and are neither listed nor deleted.

mod accounts;
mod api_requests;
mod definition;
mod filter;
mod keep;
mod lag;
mod login;
mod message_rates;
mod requests;
mod reset;
mod suspension;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, Info, IntoConsumerConfig, pull};
use async_nats::jetstream::context::{RequestError, RequestErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::ConsumerCreateStrictErrorKind;
use async_nats::jetstream::{Context, ErrorCode};
use chrono::{DateTime, Utc};
use contract::consumers::ConsumerSuspension;
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use hashing::{Entropy, RawToken};
use serde_json::json;
use tokio::time::{sleep, timeout};

pub use accounts::{ACCOUNTS_HEADER, accounts_file};
pub use definition::DurableDefinition;
pub use filter::DurableFilter;
pub use keep::{AccountsFile, CONSUMERS_SUBJECT, ConsumerLogins, MessageLimit};
pub use login::Login;
pub use requests::ConsumerRequests;

use definition::policy;
use login::free_account;

use crate::stored::{nats_time, request_optional, utc};
use crate::{Connection, EventStreams, NotConnected};

/// Maximum time that a pull request can wait. The broker forgets the reply subject of another account after 65 seconds
/// (`response_threshold` in `deploy/nats/accounts.conf`).
const MAX_PULL_WAIT: Duration = Duration::from_mins(1);
/// End of a pause: the year 2200. The broker has no pause without an end.
const PAUSE_END: i64 = 7_258_118_400;
/// Maximum time that the broker needs for a reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(2);
const RELOAD_POLL: Duration = Duration::from_millis(20);
/// Key of the metadata with the definition.
const DEFINITION: &str = "svc-definition";
/// Key of the metadata with the owner.
const OWNER: &str = "svc-owner";

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
    /// What it reads and how.
    pub definition: DurableDefinition,
    /// Its login. `None` for a durable without it in its metadata.
    pub login: Option<Login>,
    /// The last suspension of the login.
    pub suspension: Option<ConsumerSuspension>,
    /// The owner of a durable that is managed, as [`Durables::put_owned`] got it.
    pub owner: Option<String>,
    /// Streams that contain it.
    pub streams: Vec<String>,
    /// Subjects that it reads, in all streams together.
    pub filter_subjects: Vec<String>,
    /// For each stream, the number up to which all events are acknowledged.
    pub ack_floors: Vec<u64>,
    /// Number of deliveries, with repeated ones.
    pub deliveries: u64,
    /// The numbers up to which events were delivered, added up for all streams.
    pub delivered_to: u64,
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
    /// Whether the broker delivers nothing until it is resumed.
    pub is_paused: bool,
}

/// The result of [`Durables::create`].
pub struct Created {
    /// The durable.
    pub durable: Durable,
    /// The password of a new durable. `None` if the durable existed with this definition.
    pub password: Option<RawToken>,
}

/// A request for a durable failed.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// A consumer of this name has another definition.
    #[error("a consumer with another definition has this name")]
    Exists,
    /// All numbers of accounts are used.
    #[error("the broker has no account for another consumer: delete unused consumers")]
    NoAccount,
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

impl DurableError {
    /// Returns whether the broker has no such stream: ingest creates the streams when it starts for the first time.
    pub(crate) fn is_missing_stream(&self) -> bool {
        std::iter::successors(std::error::Error::source(self), |error| error.source())
            .filter_map(|error| error.downcast_ref::<async_nats::jetstream::Error>())
            .any(|error| error.error_code() == ErrorCode::STREAM_NOT_FOUND)
    }
}

impl Durables {
    /// Uses the connection for a few requests. Does not wait for a broker that is down. A broker that is reloaded does not accept
    /// requests for up to a second: waits until it does.
    ///
    /// # Errors
    /// No server is connected.
    pub async fn over(connection: &Connection, streams: EventStreams) -> Result<Self, NotConnected> {
        let context = connection.jetstream()?;
        // Otherwise, the first request fails.
        let _ = timeout(RELOAD_TIMEOUT, accepts_requests(&context)).await;
        Ok(Self { context, streams: streams.with_ranges().collect() })
    }

    /// Creates a durable in each stream that stores events of the filter, with a login. A request that failed halfway can be repeated.
    ///
    /// # Errors
    /// [`DurableError::Exists`] if a consumer of this name has another definition.
    pub async fn create(
        &self,
        name: &str,
        definition: &DurableDefinition,
        entropy: &dyn Entropy,
    ) -> Result<Created, DurableError> {
        let (text, found) = (json!(definition).to_string(), self.find_all(name).await?);
        if found.iter().flatten().any(|info| info.config.metadata.get(DEFINITION) != Some(&text)) {
            return Err(DurableError::Exists);
        }
        self.put(name, definition, None, found, entropy).await
    }

    /// Creates a durable with an owner as [`Durables::create`] does, or changes the filter, the limits and the owner of one that has an
    /// owner. It keeps its position and its login.
    ///
    /// # Errors
    /// [`DurableError::Exists`] if a consumer of this name has no owner.
    pub async fn put_owned(
        &self,
        name: &str,
        definition: &DurableDefinition,
        owner: &str,
        entropy: &dyn Entropy,
    ) -> Result<Created, DurableError> {
        let found = self.find_all(name).await?;
        if found.iter().flatten().any(|info| !info.config.metadata.contains_key(OWNER)) {
            return Err(DurableError::Exists);
        }
        self.put(name, definition, Some(owner), found, entropy).await
    }

    /// Creates the durable in each stream that misses it; with an owner, also changes the others.
    async fn put(
        &self,
        name: &str,
        definition: &DurableDefinition,
        owner: Option<&str>,
        found: Vec<Option<Info>>,
        entropy: &dyn Entropy,
    ) -> Result<Created, DurableError> {
        let existing = found.iter().flatten().find_map(|info| Login::read(&info.config.metadata));
        let (login, password) = if let Some(login) = existing {
            (login, None)
        } else {
            let (login, password) = self.new_login(entropy).await?;
            (login, Some(password))
        };
        let mut metadata = HashMap::from([(DEFINITION.to_owned(), json!(definition).to_string())]);
        metadata.extend(owner.map(|owner| (OWNER.to_owned(), owner.to_owned())));
        login.write(&mut metadata);
        let mut infos = Vec::new();
        for ((stream, partitions), found) in self.streams.iter().zip(found) {
            let subjects = definition.filter.subjects(partitions);
            match found {
                Some(info) if owner.is_none() => infos.push(info),
                Some(info) => {
                    let mut config = info.config;
                    let wanted = pull_config(name, definition, subjects, metadata.clone());
                    (config.filter_subject, config.filter_subjects) =
                        (wanted.filter_subject, wanted.filter_subjects);
                    (config.ack_wait, config.max_ack_pending) = (wanted.ack_wait, wanted.max_ack_pending);
                    config.metadata.extend(wanted.metadata);
                    infos.push(self.update_in(stream, config).await?);
                }
                None if subjects.is_empty() => {}
                None => {
                    let deliver_policy = policy(definition.start, &self.context, stream).await;
                    let config = pull::Config {
                        deliver_policy: deliver_policy.map_err(failed(stream))?,
                        ..pull_config(name, definition, subjects, metadata.clone())
                    };
                    infos.push(self.create_in(stream, config).await?);
                }
            }
        }
        let durable = merge(infos).remove(name).ok_or(DurableError::Exists)?;
        Ok(Created { durable, password })
    }

    /// Replaces the login of a durable. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The broker did not answer. The login may be replaced.
    pub async fn replace_login(
        &self,
        name: &str,
        entropy: &dyn Entropy,
    ) -> Result<Option<Created>, DurableError> {
        let Some(durable) = self.get(name).await? else { return Ok(None) };
        let (login, password) = match &durable.login {
            Some(Login { account, .. }) => Login::generate(*account, entropy),
            None => self.new_login(entropy).await?,
        };
        let durable = self.with_login(durable, Some(login)).await?;
        Ok(Some(Created { durable, password: Some(password) }))
    }

    /// Removes the login of a durable, which keeps its position.
    ///
    /// # Errors
    /// The broker did not answer. The login may be removed.
    pub async fn remove_login(&self, durable: Durable) -> Result<Durable, DurableError> {
        self.with_login(durable, None).await
    }

    /// Returns a login for an account without a durable.
    async fn new_login(&self, entropy: &dyn Entropy) -> Result<(Login, RawToken), DurableError> {
        let account = free_account(&self.list().await?).ok_or(DurableError::NoAccount)?;
        Ok(Login::generate(account, entropy))
    }

    async fn with_login(&self, durable: Durable, login: Option<Login>) -> Result<Durable, DurableError> {
        self.change_metadata(&durable, |metadata| match &login {
            Some(login) => login.write(metadata),
            None => Login::remove(metadata),
        })
        .await?;
        Ok(Durable { login, ..durable })
    }

    /// Suspends the login of a durable, if it is not suspended at the start of this suspension.
    ///
    /// # Errors
    /// The broker did not answer. The login may be suspended.
    pub async fn suspend(&self, name: &str, suspension: ConsumerSuspension) -> Result<(), DurableError> {
        let Some(durable) = self.get(name).await? else { return Ok(()) };
        self.change_metadata(&durable, |metadata| {
            let last = suspension::read(metadata);
            if !last.is_some_and(|last| last.is_active(suspension.since)) {
                suspension::write(&suspension, metadata);
            }
        })
        .await
    }

    async fn change_metadata(
        &self,
        durable: &Durable,
        change: impl Fn(&mut HashMap<String, String>),
    ) -> Result<(), DurableError> {
        for stream in &durable.streams {
            if let Some(mut info) = self.find(stream, &durable.name).await? {
                change(&mut info.config.metadata);
                self.update_in(stream, info.config).await?;
            }
        }
        Ok(())
    }

    /// Returns a durable that has a definition.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn get(&self, name: &str) -> Result<Option<Durable>, DurableError> {
        Ok(merge(self.find_all(name).await?.into_iter().flatten()).remove(name))
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
        Ok(self.find_all(name).await?.iter().any(Option::is_some))
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

    /// Returns the consumer of each stream.
    async fn find_all(&self, name: &str) -> Result<Vec<Option<Info>>, DurableError> {
        try_join_all(self.streams.iter().map(|(stream, _)| self.find(stream, name))).await
    }

    async fn find(&self, stream: &str, name: &str) -> Result<Option<Info>, DurableError> {
        let subject = format!("CONSUMER.INFO.{stream}.{name}");
        let (body, absent) = (json!({}), ErrorCode::CONSUMER_NOT_FOUND);
        let request = || request_optional(&self.context, subject.clone(), &body, absent);
        let mut found = request().await;
        // The reload of an earlier change can begin after `over`.
        if found.as_ref().is_err_and(|error| has_no_responder(error.downcast_ref())) {
            let _ = timeout(RELOAD_TIMEOUT, accepts_requests(&self.context)).await;
            found = request().await;
        }
        found.map_err(failed(stream))
    }

    async fn create_in(&self, stream: &str, config: impl IntoConsumerConfig) -> Result<Info, DurableError> {
        let config = config.into_consumer_config();
        match self.context.create_consumer_strict_on_stream(config, stream).await {
            Ok(consumer) => Ok(consumer.cached_info().clone()),
            // Another request created it meanwhile.
            Err(error) if error.kind() == ConsumerCreateStrictErrorKind::AlreadyExists => {
                Err(DurableError::Exists)
            }
            Err(error) => Err(failed(stream)(error)),
        }
    }

    async fn update_in(&self, stream: &str, config: consumer::Config) -> Result<Info, DurableError> {
        let updated = self.context.update_consumer_on_stream(config, stream).await;
        Ok(updated.map_err(failed(stream))?.cached_info().clone())
    }

    /// Stops or continues the delivery of a durable. The latter also ends a suspension. Returns whether it exists.
    ///
    /// # Errors
    /// The broker did not answer.
    pub async fn set_paused(&self, name: &str, is_paused: bool) -> Result<bool, DurableError> {
        let Some(durable) = self.get(name).await? else { return Ok(false) };
        if durable.suspension.is_some() && !is_paused {
            self.change_metadata(&durable, suspension::remove).await?;
        }
        for stream in &durable.streams {
            let handle = self.context.get_stream_no_info(stream).await.map_err(failed(stream))?;
            let changed = if is_paused {
                let end = DateTime::from_timestamp(PAUSE_END, 0).unwrap_or_default();
                handle.pause_consumer(name, nats_time(end)).await
            } else {
                handle.resume_consumer(name).await
            };
            changed.map_err(failed(stream))?;
        }
        Ok(true)
    }
}

/// Waits until a request for the API has a responder.
async fn accepts_requests(context: &Context) {
    let request = async || {
        let response: Result<Response<serde_json::Value>, RequestError> =
            context.request("STREAM.NAMES", &json!({})).await;
        has_no_responder(response.as_ref().err())
    };
    while request().await {
        sleep(RELOAD_POLL).await;
    }
}

fn has_no_responder(error: Option<&RequestError>) -> bool {
    error.is_some_and(|error| error.kind() == RequestErrorKind::NoResponders)
}

fn pull_config(
    name: &str,
    definition: &DurableDefinition,
    mut subjects: Vec<String>,
    metadata: HashMap<String, String>,
) -> pull::Config {
    // Filters of durables with one filter subject can be restricted by permissions of the broker, so it has its own field.
    let filter_subject = if subjects.len() == 1 { subjects.pop().unwrap_or_default() } else { String::new() };
    pull::Config {
        durable_name: Some(name.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: definition.ack_wait(),
        // The broker would drop an event after a limit.
        max_deliver: -1,
        max_ack_pending: definition.max_ack_pending.unwrap_or(DurableDefinition::MAX_ACK_PENDING).into(),
        max_expires: MAX_PULL_WAIT,
        filter_subject,
        filter_subjects: subjects,
        metadata,
        ..pull::Config::default()
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
        let Some(definition) = definition.and_then(|text| serde_json::from_str(text).ok()) else { continue };
        let found = Durable {
            name: info.name,
            definition,
            login: Login::read(&info.config.metadata),
            suspension: suspension::read(&info.config.metadata),
            owner: info.config.metadata.get(OWNER).cloned(),
            streams: vec![info.stream_name],
            filter_subjects: match info.config.filter_subject {
                subject if subject.is_empty() => info.config.filter_subjects,
                subject => vec![subject],
            },
            ack_floors: vec![info.ack_floor.stream_sequence],
            deliveries: info.delivered.consumer_sequence,
            delivered_to: info.delivered.stream_sequence,
            created_at: utc(info.created),
            pending: info.num_pending,
            ack_pending: info.num_ack_pending as u64,
            redelivered: info.num_redelivered as u64,
            last_delivered_at: info.delivered.last_active.map(utc),
            last_acknowledged_at: info.ack_floor.last_active.map(utc),
            is_paused: info.paused,
        };
        match durables.remove(&found.name) {
            None => durables.insert(found.name.clone(), found),
            Some(first) => durables.insert(found.name.clone(), first.and(found)),
        };
    }
    durables
}

impl Durable {
    /// Whether the broker rejects its login.
    pub fn is_suspended(&self, now: DateTime<Utc>) -> bool {
        self.suspension.is_some_and(|suspension| suspension.is_active(now))
    }

    /// Adds the same durable of another stream.
    fn and(mut self, other: Self) -> Self {
        self.streams.extend(other.streams);
        let other_subjects = other.filter_subjects.into_iter();
        let new: Vec<_> = other_subjects.filter(|subject| !self.filter_subjects.contains(subject)).collect();
        self.filter_subjects.extend(new);
        self.ack_floors.extend(other.ack_floors);
        Self {
            login: self.login.or(other.login),
            suspension: [self.suspension, other.suspension]
                .into_iter()
                .flatten()
                .max_by_key(|each| each.until),
            owner: self.owner.or(other.owner),
            deliveries: self.deliveries + other.deliveries,
            delivered_to: self.delivered_to + other.delivered_to,
            created_at: self.created_at.min(other.created_at),
            pending: self.pending + other.pending,
            ack_pending: self.ack_pending + other.ack_pending,
            redelivered: self.redelivered + other.redelivered,
            last_delivered_at: self.last_delivered_at.max(other.last_delivered_at),
            last_acknowledged_at: self.last_acknowledged_at.max(other.last_acknowledged_at),
            is_paused: self.is_paused || other.is_paused,
            ..self
        }
    }
}
