//! Invalidation feed: publishes that credentials, users or tenants changed, so that caches stop using old results.
//!
//! Publishing never delays the change itself, and core NATS does not guarantee delivery. Every message therefore has a
//! sequence number, each publisher sends a heartbeat per second, and a listener detects missing messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, Subscriber};
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use hashing::TokenDigest;
use serde::{Deserialize, Serialize};
use service::{Clock, Tasks};
use tenancy::{TenantId, UserId};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::connect::{self, Config, ConnectError};

/// Subject of the feed.
pub const INVALIDATION_SUBJECT: &str = "svc.invalidations.v1";

/// The object that changed. A receiver must look up the new state, because the message does not contain it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalidation {
    /// One session or API key, by the digest of its token.
    Credential(#[serde(with = "hex_digest")] TokenDigest),
    /// A user: role, status or password changed, or all sessions were revoked.
    User(UserId),
    /// A tenant: status or quota changed.
    Tenant(TenantId),
}

/// A message on [`INVALIDATION_SUBJECT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidationMessage {
    /// Id of the publishing process.
    pub publisher: Uuid,
    /// Number of the message, counted per publisher from 1 without gaps.
    pub sequence: u64,
    /// Commit time of the oldest change.
    pub committed_at: DateTime<Utc>,
    /// The changes; empty in a heartbeat.
    #[serde(default)]
    pub invalidations: Vec<Invalidation>,
    /// Whether the publisher shuts down and this is its last message.
    #[serde(default)]
    pub last: bool,
}

/// The JSON form of a digest: 64 lower-case hexadecimal digits.
mod hex_digest {
    use hashing::TokenDigest;
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(digest: &TokenDigest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&digest.to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TokenDigest, D::Error> {
        let text = String::deserialize(deserializer)?;
        TokenDigest::from_hex(&text).ok_or_else(|| D::Error::custom("expected 64 hexadecimal digits"))
    }
}

/// What a listener receives.
#[derive(Debug)]
pub enum FeedEvent {
    /// The connection was established.
    Connected,
    /// A message arrived.
    Message(InvalidationMessage),
    /// The connection broke. No messages arrive until it is established again.
    Disconnected,
    /// Messages may be lost although the connection is up: the listener was too slow, or a message was malformed.
    Gap,
}

/// A subscription to the feed. It reconnects by itself.
pub struct InvalidationListener {
    messages: Subscriber,
    connection_events: mpsc::UnboundedReceiver<FeedEvent>,
}

impl InvalidationListener {
    /// Subscribes to the feed. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub async fn start(config: &Config) -> Result<Self, ConnectError> {
        let (sender, connection_events) = mpsc::unbounded_channel();
        let on_event = move |event| {
            let event = match event {
                Event::Connected => Some(FeedEvent::Connected),
                Event::Disconnected | Event::Closed => Some(FeedEvent::Disconnected),
                Event::SlowConsumer(_) => Some(FeedEvent::Gap),
                _ => None,
            };
            // The receiver is gone only if the listener was dropped.
            let _ = event.map(|event| sender.send(event));
            std::future::ready(())
        };
        let (options, servers) = connect::connect_options(config)?;
        let client = options
            .retry_on_initial_connect()
            .reconnect_delay_callback(connect::back_off)
            .event_callback(on_event)
            .connect(servers)
            .await?;
        let messages = client.subscribe(INVALIDATION_SUBJECT).await.map_err(|_| ConnectError::Address)?;
        Ok(Self { messages, connection_events })
    }

    /// Returns the next event. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> FeedEvent {
        tokio::select! {
            // Connection events first: messages that follow a gap must not hide it.
            biased;
            Some(event) = self.connection_events.recv() => event,
            Some(message) = self.messages.next() => {
                serde_json::from_slice(&message.payload).map_or(FeedEvent::Gap, FeedEvent::Message)
            }
            // Both channels end only when the client is dropped, and the subscription keeps it.
            else => std::future::pending().await,
        }
    }
}

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Capacity of the queue. It fills only while the broker accepts no messages. Changes are then dropped, and listeners
/// detect the gap.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum number of changes in one message.
const MAX_CHANGES: usize = 256;
/// Timeout for passing one message to the client library, and for flushing the last ones.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Publishes invalidations. Clones share the queue.
#[derive(Clone)]
pub struct InvalidationPublisher {
    queue: mpsc::Sender<Change>,
    /// Changes that were dropped because the queue was full. Each leaves a gap in the sequence.
    dropped: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

struct Change {
    invalidation: Invalidation,
    committed_at: DateTime<Utc>,
}

impl InvalidationPublisher {
    /// Starts the task that connects and publishes. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(mut config: Config, clock: Arc<dyn Clock>, tasks: &Tasks) -> Result<Self, ConnectError> {
        config.wait_for_broker = true;
        connect::connect_options(&config)?;
        let (queue, changes) = mpsc::channel(QUEUE_CAPACITY);
        let publisher = Self { queue, dropped: Arc::default(), clock: Arc::clone(&clock) };
        let (stop, dropped) = (tasks.stopping().clone(), Arc::clone(&publisher.dropped));
        tasks.spawn_short(async move {
            match connect::connect(&config).await {
                Ok(client) => {
                    let sender = Sender { client, clock, publisher: Uuid::now_v7(), sequence: 0 };
                    sender.run(changes, &dropped, &stop).await;
                }
                Err(error) => {
                    tracing::error!(
                        error = service::chain(&error),
                        "failed to connect to NATS; no invalidations are published"
                    );
                }
            }
        });
        Ok(publisher)
    }

    /// Publishes changes that were committed just now. Never blocks. If a change cannot be published, listeners detect the
    /// gap.
    pub fn publish(&self, invalidations: impl IntoIterator<Item = Invalidation>) {
        let committed_at = self.clock.now();
        for invalidation in invalidations {
            if self.queue.try_send(Change { invalidation, committed_at }).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// State of the publishing task.
struct Sender {
    client: Client,
    clock: Arc<dyn Clock>,
    publisher: Uuid,
    sequence: u64,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<Change>, dropped: &AtomicU64, stop: &CancellationToken) {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = Vec::new();
        while !stop.is_cancelled() {
            tokio::select! {
                _ = queue.recv_many(&mut changes, MAX_CHANGES) => {}
                _ = heartbeat.tick() => {}
                () = stop.cancelled() => break,
            }
            self.sequence += dropped.swap(0, Ordering::Relaxed);
            self.send(&mut changes, false).await;
        }
        queue.close();
        while queue.recv_many(&mut changes, MAX_CHANGES).await > 0 {
            self.send(&mut changes, false).await;
        }
        self.send(&mut changes, true).await;
        // Without a connection the last messages are lost, and listeners detect the silence.
        let _ = timeout(SEND_TIMEOUT, self.client.flush()).await;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an invalidation needs no acknowledgement: listeners detect a missing sequence number"
    )]
    async fn send(&mut self, changes: &mut Vec<Change>, last: bool) {
        let connected = self.client.connection_state() == State::Connected;
        if !connected && changes.is_empty() {
            return;
        }
        self.sequence += 1;
        let committed_at =
            changes.iter().map(|change| change.committed_at).min().unwrap_or_else(|| self.clock.now());
        let invalidations = changes.drain(..).map(|change| change.invalidation).collect();
        if !connected {
            // The client library would queue the message and send it late. Listeners detect the skipped sequence number instead.
            return;
        }
        let Self { publisher, sequence, .. } = *self;
        let message = InvalidationMessage { publisher, sequence, committed_at, invalidations, last };
        let payload = serde_json::to_vec(&message).unwrap_or_default(); // a struct of strings always serialises
        let sent = timeout(SEND_TIMEOUT, self.client.publish(INVALIDATION_SUBJECT, payload.into())).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!("failed to send invalidations");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_wire_format() {
        let digest = TokenDigest::of_text("token").to_hex();
        let text = format!(
            concat!(
                r#"{{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","sequence":7,"#,
                r#""committed_at":"2026-01-31T12:00:00.250Z","invalidations":[{{"credential":"{}"}},"#,
                r#"{{"user":"018f2e6e-7c1d-7000-8000-000000000002"}},{{"tenant":"acme"}}],"last":false}}"#
            ),
            digest
        );
        let message: InvalidationMessage = serde_json::from_str(&text).unwrap();
        assert_eq!(message.invalidations.len(), 3);
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
    }

    #[test]
    fn unknown_fields_are_ignored_and_a_malformed_digest_is_rejected() {
        let heartbeat = r#"{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","sequence":8,"committed_at":"2026-01-31T12:00:01Z","later":1}"#;
        assert_eq!(serde_json::from_str::<InvalidationMessage>(heartbeat).unwrap().invalidations, []);
        assert!(serde_json::from_str::<Invalidation>(r#"{"credential":"ab"}"#).is_err());
    }
}
