//! Invalidation feed: publishes that credentials, users or tenants changed, so that caches stop using old results.
//!
//! Publishing never delays the change itself, and core NATS does not guarantee delivery. Every message therefore has a
//! sequence number, each publisher sends a heartbeat per second, and a listener detects missing messages.
//!
//! NATS permissions do not authenticate a message: the server publishes replies to any subject. Every message therefore has a
//! signature with the service token, and the time at which it was sent, so that a listener can drop repeated messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::HeaderName;
use async_nats::{Client, Event, HeaderMap, Message, Subscriber};
use chrono::{DateTime, Utc};
use data_encoding::HEXLOWER;
use futures::StreamExt as _;
use hashing::TokenDigest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use service::{Clock, Tasks};
use sha2::Sha256;
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
    /// Time at which the message was sent.
    pub sent_at: DateTime<Utc>,
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

/// Header of a signature: HMAC-SHA256 as 64 hexadecimal digits. A message has one per key of its publisher.
const SIGNATURE: HeaderName = HeaderName::from_static("Svc-Signature");
/// Maximum number of signatures that a listener checks: more than a publisher has keys.
const MAX_SIGNATURES: usize = 4;

/// Keys of the feed and of replica announcements: the service token, and the previous one during a rotation. A publisher signs with
/// all of its keys, and a listener accepts each of its keys, so the processes can change the token one after the other.
#[derive(Clone)]
pub struct InvalidationKeys(Arc<dyn Fn() -> Vec<TokenDigest> + Send + Sync>);

impl InvalidationKeys {
    /// Returns the keys for the digests of these tokens.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a TokenDigest>) -> Self {
        let tokens: Vec<_> = tokens.into_iter().copied().collect();
        Self::following(move || tokens.clone())
    }

    /// Returns keys that change with the digests of the tokens.
    pub fn following(tokens: impl Fn() -> Vec<TokenDigest> + Send + Sync + 'static) -> Self {
        Self(Arc::new(tokens))
    }

    /// Returns the headers that authenticate a payload on [`INVALIDATION_SUBJECT`].
    pub fn sign(&self, payload: &[u8]) -> HeaderMap {
        self.sign_for(INVALIDATION_SUBJECT, payload)
    }

    /// Returns the headers that authenticate a payload on a subject.
    pub(crate) fn sign_for(&self, subject: &str, payload: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for mac in self.macs(subject, payload) {
            headers.append(SIGNATURE, HEXLOWER.encode(&mac.finalize().into_bytes()).as_str());
        }
        headers
    }

    /// Returns whether a message has the signature of one of the keys for its subject.
    pub(crate) fn verify(&self, message: &Message) -> bool {
        let Some(headers) = &message.headers else { return false };
        let signatures: Vec<_> = headers
            .get_all(SIGNATURE)
            .take(MAX_SIGNATURES)
            .filter_map(|text| HEXLOWER.decode(text.as_str().as_bytes()).ok())
            .collect();
        // Compares in constant time.
        self.macs(&message.subject, &message.payload)
            .any(|mac| signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok()))
    }

    fn macs<'a>(&self, subject: &'a str, payload: &'a [u8]) -> impl Iterator<Item = Hmac<Sha256>> + use<'a> {
        // HMAC accepts keys of any length.
        let keys = (self.0)().into_iter().filter_map(|digest| Hmac::new_from_slice(digest.as_bytes()).ok());
        // The subject, so that a message is not valid on another one.
        keys.map(move |key: Hmac<Sha256>| key.chain_update(subject).chain_update([0]).chain_update(payload))
    }
}

/// What a listener receives.
#[derive(Debug)]
pub enum FeedEvent {
    /// The connection was established.
    Connected,
    /// A message arrived.
    Message(InvalidationMessage),
    /// A message without a valid signature arrived.
    Unauthenticated,
    /// The connection broke. No messages arrive until it is established again.
    Disconnected,
    /// Messages may be lost although the connection is up: the listener was too slow, or a message was malformed.
    Gap,
}

/// A subscription to the feed. It reconnects by itself.
pub struct InvalidationListener {
    keys: InvalidationKeys,
    messages: Subscriber,
    connection_events: mpsc::UnboundedReceiver<FeedEvent>,
}

impl InvalidationListener {
    /// Subscribes to the feed. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub async fn start(config: &Config, keys: InvalidationKeys) -> Result<Self, ConnectError> {
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
        Ok(Self { keys, messages, connection_events })
    }

    /// Returns the next event; `None` if the client has stopped. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        tokio::select! {
            // Connection events first: messages that follow a gap must not hide it.
            biased;
            Some(event) = self.connection_events.recv() => Some(event),
            message = self.messages.next() => Some(self.event(&message?)),
        }
    }

    fn event(&self, message: &Message) -> FeedEvent {
        if !self.keys.verify(message) {
            return FeedEvent::Unauthenticated;
        }
        serde_json::from_slice(&message.payload).map_or(FeedEvent::Gap, FeedEvent::Message)
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
    pub fn start(
        mut config: Config,
        keys: InvalidationKeys,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
    ) -> Result<Self, ConnectError> {
        config.wait_for_broker = true;
        connect::connect_options(&config)?;
        let (queue, changes) = mpsc::channel(QUEUE_CAPACITY);
        let publisher = Self { queue, dropped: Arc::default(), clock: Arc::clone(&clock) };
        let (stop, dropped) = (tasks.stopping().clone(), Arc::clone(&publisher.dropped));
        tasks.spawn("invalidation publisher", async move {
            match connect::connect(&config).await {
                Ok(client) => {
                    let sender = Sender { client, keys, clock, publisher: Uuid::now_v7(), sequence: 0 };
                    sender.run(changes, &dropped, &stop).await;
                }
                // An error of the configuration. The client library retries all others.
                Err(error) => {
                    tracing::error!(error = service::chain(&error), "failed to connect to NATS");
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
    keys: InvalidationKeys,
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
        let sent_at = self.clock.now();
        let committed_at = changes.iter().map(|change| change.committed_at).min().unwrap_or(sent_at);
        let invalidations = changes.drain(..).map(|change| change.invalidation).collect();
        if !connected {
            // The client library would queue the message and send it late. Listeners detect the skipped sequence number instead.
            return;
        }
        let Self { publisher, sequence, .. } = *self;
        let message = InvalidationMessage { publisher, sequence, sent_at, committed_at, invalidations, last };
        let payload = serde_json::to_vec(&message).unwrap_or_default(); // a struct of strings always serialises
        let headers = self.keys.sign(&payload);
        let publish = self.client.publish_with_headers(INVALIDATION_SUBJECT, headers, payload.into());
        let sent = timeout(SEND_TIMEOUT, publish).await;
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
                r#""sent_at":"2026-01-31T12:00:00.251Z","committed_at":"2026-01-31T12:00:00.250Z","invalidations":[{{"credential":"{}"}},"#,
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
        let heartbeat = r#"{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","sequence":8,"sent_at":"2026-01-31T12:00:01Z","committed_at":"2026-01-31T12:00:01Z","later":1}"#;
        assert_eq!(serde_json::from_str::<InvalidationMessage>(heartbeat).unwrap().invalidations, []);
        assert!(serde_json::from_str::<Invalidation>(r#"{"credential":"ab"}"#).is_err());
    }

    /// A message as it arrives at a listener.
    fn received(payload: &'static [u8], headers: HeaderMap) -> Message {
        Message {
            subject: INVALIDATION_SUBJECT.into(),
            reply: None,
            payload: payload.into(),
            headers: Some(headers),
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn messages_are_accepted_with_the_current_and_the_previous_token_and_no_other() {
        let digests = ["new", "old", "other"].map(TokenDigest::of_text);
        let keys = |used: &[usize]| InvalidationKeys::new(used.iter().map(|index| &digests[*index]));
        for (publisher, listener, accepted) in [
            (&[0][..], &[0][..], true),
            (&[0, 1], &[1], true),
            (&[1], &[0, 1], true),
            (&[0, 1], &[0, 1], true),
            (&[0, 1], &[2], false),
            (&[2], &[0, 1], false),
            (&[], &[0], false),
            (&[0], &[], false),
        ] {
            let message = received(b"{}", keys(publisher).sign(b"{}"));
            assert_eq!(keys(listener).verify(&message), accepted, "{publisher:?} {listener:?}");
        }
    }

    #[test]
    fn changed_payloads_and_malformed_signatures_are_rejected() {
        let keys = InvalidationKeys::new([&TokenDigest::of_text("token")]);
        let signed = keys.sign(b"{}");
        assert!(!keys.verify(&received(b"{ }", signed.clone())));
        assert!(!keys.verify(&Message { headers: None, ..received(b"{}", HeaderMap::new()) }));
        assert!(!keys.verify(&Message { subject: "other".into(), ..received(b"{}", signed.clone()) }));
        for text in ["", "zz", &HEXLOWER.encode(&[0; 32]), &signed.get(SIGNATURE).unwrap().as_str()[..62]] {
            let mut headers = HeaderMap::new();
            headers.append(SIGNATURE, text);
            assert!(!keys.verify(&received(b"{}", headers)), "{text}");
        }
    }
}
