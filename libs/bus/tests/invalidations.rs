//! The invalidation feed over a real nats-server: messages are numbered, publishing never blocks, and gaps are detected.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{
    Config, FeedEvent, Invalidation, InvalidationKeys, InvalidationListener, InvalidationMessage,
    InvalidationPublisher,
};
use hashing::TokenDigest;
use service::Tasks;
use service::clock::SystemClock;
use tenancy::UserId;
use testkit::nats::NatsServer;
use tokio::time::timeout;

/// Far above the duration of every step; only a defect exceeds it.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

struct Fixture {
    server: NatsServer,
    tasks: Tasks,
    publisher: InvalidationPublisher,
    listener: InvalidationListener,
}

impl Fixture {
    /// Returns a connected listener and publisher, and the first message.
    async fn start() -> anyhow::Result<(Self, InvalidationMessage)> {
        let server = NatsServer::start().await?;
        let (config, tasks) = (Config::new(&server.url, "test"), Tasks::default());
        let mut listener = InvalidationListener::start(&config, keys("token")).await?;
        assert!(matches!(next(&mut listener).await?, FeedEvent::Connected));
        let publisher = InvalidationPublisher::start(config, keys("token"), Arc::new(SystemClock), &tasks)?;
        let first = message(&mut listener).await?;
        Ok((Self { server, tasks, publisher, listener }, first))
    }

    /// Returns the next message that is not a heartbeat.
    async fn non_heartbeat(&mut self) -> anyhow::Result<InvalidationMessage> {
        loop {
            let message = message(&mut self.listener).await?;
            if !message.invalidations.is_empty() || message.last {
                return Ok(message);
            }
        }
    }
}

async fn next(listener: &mut InvalidationListener) -> anyhow::Result<FeedEvent> {
    timeout(STEP_TIMEOUT, listener.next()).await?.context("the client stopped")
}

async fn message(listener: &mut InvalidationListener) -> anyhow::Result<InvalidationMessage> {
    match next(listener).await? {
        FeedEvent::Message(message) => Ok(message),
        other => anyhow::bail!("{other:?}"),
    }
}

fn keys(token: &str) -> InvalidationKeys {
    InvalidationKeys::new([&TokenDigest::of_text(token)])
}

fn some_user() -> Invalidation {
    Invalidation::User(UserId::generate())
}

#[tokio::test]
async fn heartbeats_and_the_last_message_are_numbered_too() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let invalidation = some_user();
    fixture.publisher.publish([invalidation.clone()]);
    let (mut sequence, mut received) = (first.sequence, false);
    for _ in 0..3 {
        let message = message(&mut fixture.listener).await?;
        sequence += 1;
        assert_eq!((message.publisher, message.sequence, message.last), (first.publisher, sequence, false));
        received |= message.invalidations == [invalidation.clone()];
    }
    assert!(received);
    fixture.publisher.publish([some_user()]);
    fixture.tasks.shut_down().await;
    let (change, last) = (fixture.non_heartbeat().await?, fixture.non_heartbeat().await?);
    assert_eq!(
        change.invalidations.len(),
        1,
        "changes before the shutdown are published before the last message"
    );
    assert_eq!((last.sequence, last.last), (change.sequence + 1, true));
    Ok(())
}

#[tokio::test]
async fn each_publisher_has_its_own_sequence() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let config = Config::new(&fixture.server.url, "test");
    let other = InvalidationPublisher::start(config, keys("token"), Arc::new(SystemClock), &fixture.tasks)?;
    let message = loop {
        let message = message(&mut fixture.listener).await?;
        if message.publisher != first.publisher {
            break message;
        }
    };
    assert_eq!(message.sequence, 1);
    other.publish([some_user()]);
    assert_eq!(fixture.non_heartbeat().await?.publisher, message.publisher);
    Ok(())
}

#[tokio::test]
async fn publishing_does_not_block_during_an_outage_and_leaves_a_gap() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    fixture.server.stop();
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Disconnected) {}
    for _ in 0..10_000 {
        fixture.publisher.publish([some_user()]);
    }
    fixture.server.restart().await?;
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Connected) {}
    let message = message(&mut fixture.listener).await?;
    assert_eq!(message.publisher, first.publisher);
    assert!(message.sequence > first.sequence + 1, "{} after {}", message.sequence, first.sequence);
    Ok(())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test publishes malformed and forged messages")]
async fn forged_messages_are_rejected_and_a_malformed_message_is_a_gap() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let client = bus::connect(&Config::new(&fixture.server.url, "test")).await?;
    let forged = serde_json::to_vec(&InvalidationMessage { invalidations: vec![some_user()], ..first })?;
    client.publish(bus::INVALIDATION_SUBJECT, forged.clone().into()).await?;
    let headers = keys("another token").sign(&forged);
    client.publish_with_headers(bus::INVALIDATION_SUBJECT, headers, forged.into()).await?;
    client.publish_with_headers(bus::INVALIDATION_SUBJECT, keys("token").sign(b"{}"), "{}".into()).await?;
    let mut other_events = Vec::new();
    while other_events.len() < 3 {
        match next(&mut fixture.listener).await? {
            FeedEvent::Message(message) => assert_eq!(message.invalidations, []),
            other => other_events.push(other),
        }
    }
    let expected = [FeedEvent::Unauthenticated, FeedEvent::Unauthenticated, FeedEvent::Gap];
    assert_eq!(format!("{other_events:?}"), format!("{expected:?}"));
    Ok(())
}
