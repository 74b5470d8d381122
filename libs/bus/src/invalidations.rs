//! Invalidation feed: publishes that credentials, users or tenants changed, so that caches stop using old results.
//!
//! Publishing never delays the change itself, and core NATS does not guarantee delivery. Every message therefore has a
//! sequence number, each publisher sends a heartbeat per second, and a listener detects missing messages.
//!
//! Messages have no signature: the accounts of NATS permit only session to publish them (`deploy/nats/accounts.conf`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::client::SubscribeError;
use async_nats::{Message, Subscriber};
use chrono::{DateTime, Utc};
use futures::{FutureExt as _, StreamExt as _};
use hashing::TokenDigest;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use service::{Clock, Tasks};
use tenancy::{TenantId, UserId};
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::connect::{self, Config, ConnectError, Connection};

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
    /// Commit time of the changes.
    pub committed_at: DateTime<Utc>,
    /// The changes; empty in a heartbeat.
    #[serde(default)]
    pub invalidations: Vec<Invalidation>,
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
    /// A message arrived.
    Message(InvalidationMessage),
    /// Messages can be lost: the connection broke, or a message was malformed.
    Lost,
}

/// A subscription to the feed. It continues after a reconnection.
pub struct InvalidationListener {
    messages: Subscriber,
    disconnects: watch::Receiver<()>,
}

impl InvalidationListener {
    /// Subscribes to the feed. No server need be reachable yet.
    ///
    /// # Errors
    /// The client has stopped.
    pub async fn start(connection: &Connection) -> Result<Self, SubscribeError> {
        let disconnects = connection.later_disconnects();
        Ok(Self { messages: connection.client.subscribe(INVALIDATION_SUBJECT).await?, disconnects })
    }

    /// Returns the next event; `None` if the client has stopped. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        let parse = |message: Message| serde_json::from_slice(&message.payload);
        tokio::select! {
            // Disconnections first: messages that follow one must not hide it.
            biased;
            Ok(()) = self.disconnects.changed() => Some(FeedEvent::Lost),
            message = self.messages.next() => Some(parse(message?).map_or(FeedEvent::Lost, FeedEvent::Message)),
        }
    }
}

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Timeout for sending the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Publishes invalidations. Clones share the sequence.
#[derive(Clone)]
pub struct InvalidationPublisher(Arc<Sender>);

struct Sender {
    /// Unset until the task has started.
    connection: OnceLock<Connection>,
    clock: Arc<dyn Clock>,
    id: Uuid,
    /// Number of the last message.
    sequence: Mutex<u64>,
}

impl InvalidationPublisher {
    /// Starts the task that connects and sends heartbeats. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(config: Config, clock: Arc<dyn Clock>, tasks: &Tasks) -> Result<Self, ConnectError> {
        connect::connect_options(&config)?;
        let (connection, sequence) = (OnceLock::new(), Mutex::default());
        let sender = Arc::new(Sender { connection, clock, id: Uuid::now_v7(), sequence });
        let (publisher, stop) = (Self(Arc::clone(&sender)), tasks.stopping().clone());
        tasks.spawn("invalidation publisher", async move {
            // Fails only if the configuration is invalid.
            if let Ok(connection) = Connection::open(&config).await {
                sender.run(connection, &stop).await;
            }
        });
        Ok(publisher)
    }

    /// Publishes changes that were committed just now. Never blocks. If a change cannot be published, listeners detect the
    /// gap.
    pub fn publish(&self, invalidations: impl IntoIterator<Item = Invalidation>) {
        let invalidations = invalidations.into_iter().collect::<Vec<_>>();
        if !invalidations.is_empty() {
            self.0.send(invalidations);
        }
    }
}

impl Sender {
    async fn run(&self, connection: Connection, stop: &CancellationToken) {
        let connection = self.connection.get_or_init(|| connection);
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(heartbeat.tick()).await.is_some() {
            self.send(Vec::new());
        }
        // Without a connection the last messages are lost, and listeners detect the silence.
        let _ = timeout(FLUSH_TIMEOUT, connection.client.flush()).await;
    }

    /// Passes a message to the client library, or skips its sequence number if the library cannot send it now: it would queue
    /// the message and send it late.
    #[expect(
        clippy::disallowed_methods,
        reason = "an invalidation needs no acknowledgement: listeners detect a missing sequence number"
    )]
    fn send(&self, invalidations: Vec<Invalidation>) {
        let committed_at = self.clock.now();
        // Locked until the message is passed on, so that messages have the order of their numbers.
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        let Some(Ok(client)) = self.connection.get().map(Connection::connected) else { return };
        let message =
            InvalidationMessage { publisher: self.id, sequence: *sequence, committed_at, invalidations };
        let payload = serde_json::to_vec(&message).unwrap_or_default(); // a struct of strings always serialises
        let publish = client.publish(INVALIDATION_SUBJECT, payload.into());
        if !matches!(unconstrained(publish).now_or_never(), Some(Ok(()))) {
            tracing::debug!("failed to send invalidations");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_wire_format() {
        let digest = TokenDigest::from_text("token").to_hex();
        let text = format!(
            concat!(
                r#"{{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","sequence":7,"#,
                r#""committed_at":"2026-01-31T12:00:00.250Z","invalidations":[{{"credential":"{}"}},"#,
                r#"{{"user":"018f2e6e-7c1d-7000-8000-000000000002"}},{{"tenant":"acme"}}]}}"#
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
