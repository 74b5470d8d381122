//! Acknowledged publication: a message counts as published only after its stream has acknowledged it.
//!
//! It does not publish with the client library, but with a [separate connection](crate::wire):
//!
//! - The client library never removes a request that timed out from its map. This module has one reply inbox and a table of messages
//!   in flight; the reply subject contains the number of the message.
//! - It waits for permits without a deadline. This module reserves memory without waiting, and releases it with the
//!   outcome.
//! - It sends queued messages after a reconnect. This module drops the queue when the connection breaks.
//!
//! With [`Durability::Strict`], the messages of a call are first published as one atomic batch per stream.

mod ack;
mod active_connection;
mod in_flight;
mod metrics;
mod pending_message;
mod pending_reply;
mod reply_table;
mod subjects;
mod target;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use service::telemetry::Metrics;
use service::{Tasks, chain};
use tenancy::TenantId;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::MemoryBudget;
use crate::connect::{Config, ConnectError};
use crate::message::Message;
use crate::replicas::Replicas;
use crate::streams::{Durability, Profile, UDM_STREAM};
use crate::subject::{EventSubject, PARTITIONS};
use crate::wire::Dialer;

#[cfg(fuzzing)]
pub use ack::fuzzed as fuzzed_reply;
use active_connection::ActiveConnection;
use pending_message::{CallOutcomes, PendingMessage};
use subjects::BoundedSubjects;
use target::Target;

/// Acknowledgement: the stream stores the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Name of the stream.
    pub stream: Arc<str>,
    /// Sequence number in the stream. For a duplicate, the number of the first message.
    pub sequence: u64,
    /// Whether the stream already had a message with this id, and kept that one.
    pub duplicate: bool,
}

/// No acknowledgement arrived. After `Unavailable` and `AckTimeout` the stream may still have stored the message. Repeat
/// the message with the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The memory budget of the tenant or of the publisher is exhausted.
    #[error("too many messages in flight")]
    Overloaded,
    /// The server is not reachable, the stream has no leader or acknowledges nothing, or the connection broke before the reply.
    #[error("NATS is not available")]
    Unavailable,
    /// The stream has reached its maximum size.
    #[error("the stream is full")]
    StreamFull,
    /// The stream did not reply before the deadline.
    #[error("no acknowledgement before the deadline")]
    AckTimeout,
    /// The server rejects every such message: the stream, its subjects or the permissions are configured wrongly.
    #[error("NATS rejected the message: {description} ({code})")]
    Misconfigured {
        /// Error code of `JetStream`, or 0 for an error that is not from it.
        code: u64,
        /// Description by the server.
        description: String,
    },
}

/// Maximum number of messages of a call that are published at once.
const MAX_PUBLISHED: usize = 1_000;

/// Maximum number and size of messages in flight. One tenant can use a quarter, which must fit [`MAX_PUBLISHED`] messages and a complete
/// batch in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishLimits {
    /// Number of messages.
    pub messages: usize,
    /// Size of the messages in bytes, with 512 bytes per message for headers.
    pub bytes: usize,
}

impl Default for PublishLimits {
    /// Returns 16,384 messages and 64 MiB, which four complete batches have.
    fn default() -> Self {
        Self { messages: 16 * 1024, bytes: 64 * 1024 * 1024 }
    }
}

/// Number and size of the messages that wait for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Number of messages.
    pub messages: usize,
    /// Size of the messages in bytes, counted as in [`PublishLimits`].
    pub bytes: usize,
}

/// Size and retention of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Maximum size in bytes; `None` if it is unlimited.
    pub max_bytes: Option<u64>,
    /// Time after which a message is deleted; zero if it is never deleted.
    pub max_age: Duration,
    /// When the stream was queried.
    pub measured_at: Instant,
}

/// Size of a stream, and the part of its messages that some subjects have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamUsage {
    /// Maximum size in bytes; `None` if it is unlimited.
    pub max_bytes: Option<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
    /// Number of messages with one of the subjects.
    pub matching: u64,
}

/// The streams of a publisher: one, or several that divide the partitions into equal ranges.
#[derive(Clone, Debug)]
pub struct StreamSet {
    name: Arc<str>,
    streams: Vec<String>,
    /// Whether several messages are published as an atomic batch.
    atomic: bool,
    /// The processes that publish events; `None` for other streams.
    replicas: Option<Replicas>,
}

impl StreamSet {
    /// Divides the free subjects of a tenant among these replicas.
    #[must_use]
    pub fn with_replicas(self, replicas: Replicas) -> Self {
        Self { replicas: Some(replicas), ..self }
    }
}

impl From<&str> for StreamSet {
    fn from(stream: &str) -> Self {
        Self { name: stream.into(), streams: vec![stream.to_owned()], atomic: false, replicas: None }
    }
}

impl From<&Profile> for StreamSet {
    /// Returns the streams of events.
    fn from(profile: &Profile) -> Self {
        Self {
            name: UDM_STREAM.into(),
            streams: profile.streams.names(),
            atomic: profile.durability == Durability::Strict,
            replicas: Some(Replicas::fixed(1)),
        }
    }
}

/// Publishes to one stream or to the streams of events. Clones share the connection and the memory budget.
#[derive(Clone)]
pub struct Publisher(Arc<PublisherState>);

struct PublisherState {
    name: Arc<str>,
    /// The streams in the order of their partitions.
    targets: Vec<Arc<Target>>,
    atomic: bool,
    /// `None` if the streams do not contain events.
    subjects: Option<BoundedSubjects>,
    budget: MemoryBudget,
    durations: Histogram,
    /// The connection, or `None` while no stream replies.
    connection: watch::Sender<Option<Arc<ActiveConnection>>>,
}

impl Publisher {
    /// Starts the task that connects and reconnects. The server need not be reachable yet.
    ///
    /// At shutdown, the publisher accepts no new messages, and the task ends after the last outcome.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(
        config: Config,
        streams: impl Into<StreamSet>,
        limits: PublishLimits,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Result<Self, ConnectError> {
        let dialer = Dialer::new(config)?;
        let StreamSet { name, streams, atomic, replicas } = streams.into();
        let target = |(number, stream): (usize, &String)| Arc::new(Target::new(number, stream, metrics));
        let state = Arc::new(PublisherState {
            targets: streams.iter().enumerate().map(target).collect(),
            budget: MemoryBudget::with_max_reservations(limits.messages, limits.bytes),
            durations: metrics::durations(metrics, &name),
            name,
            atomic,
            subjects: replicas.map(|replicas| BoundedSubjects::new(replicas, metrics)),
            connection: watch::Sender::new(None),
        });
        tasks.spawn("publisher", Arc::clone(&state).run(dialer, tasks.stopping().clone()));
        let publisher = Self(state);
        metrics::register_gauges(metrics, &publisher);
        Ok(publisher)
    }

    /// Publishes one message and waits for the acknowledgement until the deadline.
    pub async fn publish(
        &self,
        tenant: &TenantId,
        message: Message,
        deadline: Instant,
    ) -> Result<Ack, PublishError> {
        let mut outcomes = self.publish_all(tenant, vec![message], deadline).await;
        outcomes.pop().unwrap_or(Err(PublishError::Unavailable))
    }

    /// Publishes messages of one tenant in order over one connection. Returns one outcome per message, in the same order.
    ///
    /// Publishes groups of up to a thousand messages, one after the other. Memory is reserved for a whole group or not at all. After a
    /// message of a stream failed, the messages of the stream in later groups are not published and get its error: otherwise they could be
    /// stored before it. An error of [`PublishError::Misconfigured`] stops no other message. Dropping the future does not cancel the
    /// publication of the current group.
    #[tracing::instrument(
        name = "stream.publish",
        skip_all,
        fields(otel.kind = "producer", messaging.system = "nats", messaging.destination.name = %self.0.name)
    )]
    pub async fn publish_all(
        &self,
        tenant: &TenantId,
        mut messages: Vec<Message>,
        deadline: Instant,
    ) -> Vec<Result<Ack, PublishError>> {
        let mut outcomes = Vec::with_capacity(messages.len());
        let mut failed: Vec<Option<PublishError>> = vec![None; self.0.targets.len()];
        while !messages.is_empty() {
            let others = messages.split_off(messages.len().min(MAX_PUBLISHED));
            let numbers: Vec<usize> = messages.iter().map(|message| self.0.target_number(message)).collect();
            let group = self.publish_group(tenant, messages, deadline, &failed).await;
            for (number, outcome) in numbers.into_iter().zip(&group) {
                if let Err(error) = outcome
                    && !matches!(error, PublishError::Misconfigured { .. })
                {
                    failed[number].get_or_insert_with(|| error.clone());
                }
            }
            outcomes.extend(group);
            messages = others;
        }
        outcomes
    }

    /// Publishes the messages of a group of the streams that have not failed.
    async fn publish_group(
        &self,
        tenant: &TenantId,
        mut messages: Vec<Message>,
        deadline: Instant,
        failed: &[Option<PublishError>],
    ) -> Vec<Result<Ack, PublishError>> {
        let Some(connection) = self.0.connection.borrow().clone() else {
            return self.0.reject_all(&messages, &PublishError::Unavailable);
        };
        let sizes: Vec<usize> = messages.iter().map(Message::size).collect();
        let Ok(reservations) = self.0.budget.reserve_all(tenant, &sizes) else {
            return self.0.reject_all(&messages, &PublishError::Overloaded);
        };
        if let Some(subjects) = &self.0.subjects {
            subjects.apply(tenant, &mut messages, self.0.subjects_of(tenant, &connection)).await;
        }
        let batch = CallOutcomes::new(messages.len(), &self.0.durations);
        let mut atomic: Vec<Vec<PendingMessage>> = self.0.targets.iter().map(|_| Vec::new()).collect();
        let mut admitted: Vec<Option<bool>> = vec![None; self.0.targets.len()];
        for (index, (message, reservation)) in messages.into_iter().zip(reservations).enumerate() {
            let number = self.0.target_number(&message);
            let target = Arc::clone(&self.0.targets[number]);
            let admitted = *admitted[number].get_or_insert_with(|| target.admits());
            let pending = PendingMessage::new(message, target, reservation, deadline, &batch, index);
            if let Some(error) = &failed[number] {
                pending.settle(Err(error.clone()));
            } else if !admitted {
                pending.settle(Err(PublishError::Unavailable));
            } else if self.0.atomic {
                atomic[number].push(pending);
            } else {
                connection.in_flight.send(pending);
            }
        }
        for messages in atomic {
            connection.in_flight.send_atomic(messages);
        }
        batch.outcomes().await
    }

    /// Returns the size of the first stream and the number of messages with a subject that matches the filter. NATS does not
    /// count their bytes.
    pub async fn usage(&self, filter: &str) -> Result<StreamUsage, PublishError> {
        self.usage_by_subject(filter).await.map(|(usage, _)| usage)
    }

    /// Returns also the subjects that match the filter, with the number of their messages.
    pub async fn usage_by_subject(
        &self,
        filter: &str,
    ) -> Result<(StreamUsage, HashMap<String, u64>), PublishError> {
        let connection = self.0.connection.borrow().clone().ok_or(PublishError::Unavailable)?;
        let target = self.0.targets.first().ok_or(PublishError::Unavailable)?;
        connection.usage(&target.name, filter).await.ok_or(PublishError::Unavailable)
    }

    /// Returns the size of each stream, which is measured every second; `None` before the first measurement.
    pub fn stream_sizes(&self) -> Vec<watch::Receiver<Option<StreamSize>>> {
        self.0.targets.iter().map(|target| target.size.subscribe()).collect()
    }

    /// Returns the counter of the messages for which a stream has no space, for each stream.
    pub fn full_counters(&self) -> Vec<Counter> {
        self.0.targets.iter().map(|target| target.metrics.stream_full.clone()).collect()
    }

    /// Returns the number of the stream of a message, from 0.
    pub fn stream_number(&self, message: &Message) -> usize {
        self.0.target_number(message)
    }

    /// Returns whether publishing is possible: connected, and at least one stream replied to the last probe and acknowledges
    /// messages. Messages for other streams are rejected at once, except for one call per second to a stream that only
    /// replied to the probe. If there was no such call for several seconds, the stream counts until the next one.
    pub fn is_ready(&self) -> bool {
        self.0.connection.borrow().is_some() && self.0.targets.iter().any(|target| target.is_ready())
    }

    /// Waits until publishing to every stream is possible.
    pub async fn ready(&self) {
        let all_available = |connection: &Option<_>| {
            connection.is_some() && self.0.targets.iter().all(|target| target.is_available())
        };
        // Fails only after the sender was dropped, and `self` holds the sender.
        let _ = self.0.connection.subscribe().wait_for(all_available).await;
    }

    /// Returns number and size of the messages in flight.
    pub fn in_flight(&self) -> InFlight {
        let budget = &self.0.budget;
        InFlight { messages: budget.reservations(), bytes: budget.reserved_bytes() }
    }
}

impl PublisherState {
    /// Returns the number of the stream of the message.
    fn target_number(&self, message: &Message) -> usize {
        usize::from(message.partition()) * self.targets.len() / usize::from(PARTITIONS)
    }

    /// Returns the subjects of a tenant in the streams, or `None` if a stream does not answer.
    async fn subjects_of(
        &self,
        tenant: &TenantId,
        connection: &ActiveConnection,
    ) -> Option<Vec<EventSubject>> {
        let filter = EventSubject::tenant_filter(tenant, None, None);
        let queries = self.targets.iter().map(|target| connection.usage(&target.name, &filter));
        let usages: Option<Vec<_>> = join_all(queries).await.into_iter().collect();
        let subjects = usages?.into_iter().flat_map(|(_, subjects)| subjects.into_keys());
        Some(subjects.filter_map(|subject| subject.parse().ok()).collect())
    }

    fn reject_all(&self, messages: &[Message], error: &PublishError) -> Vec<Result<Ack, PublishError>> {
        let outcome = Err(error.clone());
        for message in messages {
            self.targets[self.target_number(message)].metrics.messages(&outcome).inc();
        }
        vec![outcome; messages.len()]
    }

    /// Rejects new messages until the next connection has probed the streams.
    fn disconnect(&self) {
        for target in &self.targets {
            target.set_responsive(false);
        }
        self.connection.send_replace(None);
    }

    /// Connects, serves the connection until it breaks, and connects again. Ends when `stop` is cancelled.
    async fn run(self: Arc<Self>, mut dialer: Dialer, stop: CancellationToken) {
        let stream = &*self.name;
        while !stop.is_cancelled() {
            let failed = |error: ConnectError| {
                tracing::warn!(stream, error = chain(&error), "failed to connect to NATS; retrying");
            };
            let Some(connected) = stop.run_until_cancelled(dialer.connect(failed)).await else { return };
            let (connection, io) = ActiveConnection::new(connected);
            let reason = connection.run(&self, io, &stop).await;
            if !stop.is_cancelled() {
                tracing::warn!(stream, reason, "NATS connection lost; reconnecting");
            }
        }
    }
}
