//! The invalidation feed over a real nats-server: messages are numbered, publishing never blocks, and gaps are detected.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::{
    Config, Connection, FeedEvent, Invalidation, InvalidationListener, InvalidationMessage,
    InvalidationPublisher,
};
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
        let mut listener = InvalidationListener::start(&Connection::open(&config).await?).await?;
        let publisher = InvalidationPublisher::start(config, Arc::new(SystemClock), &tasks)?;
        let first = message(&mut listener).await?;
        Ok((Self { server, tasks, publisher, listener }, first))
    }

    /// Returns the next message that is not a heartbeat.
    async fn non_heartbeat(&mut self) -> anyhow::Result<InvalidationMessage> {
        loop {
            let message = message(&mut self.listener).await?;
            if !message.invalidations.is_empty() {
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
        other @ FeedEvent::Lost => anyhow::bail!("{other:?}"),
    }
}

fn some_user() -> Invalidation {
    Invalidation::User(UserId::generate())
}

#[tokio::test]
async fn heartbeats_are_numbered_too() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let invalidation = some_user();
    fixture.publisher.publish([invalidation.clone()]);
    let (mut sequence, mut received) = (first.sequence, false);
    for _ in 0..3 {
        let message = message(&mut fixture.listener).await?;
        sequence += 1;
        assert_eq!((message.publisher, message.sequence), (first.publisher, sequence));
        received |= message.invalidations == [invalidation.clone()];
    }
    assert!(received);
    Ok(())
}

#[tokio::test]
async fn changes_before_a_shutdown_are_sent() -> anyhow::Result<()> {
    let (mut fixture, _) = Fixture::start().await?;
    let invalidations: Vec<_> = (0..100).map(|_| some_user()).collect();
    for invalidation in &invalidations {
        fixture.publisher.publish([invalidation.clone()]);
    }
    fixture.tasks.shut_down().await;
    for invalidation in invalidations {
        assert_eq!(fixture.non_heartbeat().await?.invalidations, [invalidation]);
    }
    Ok(())
}

#[tokio::test]
async fn each_publisher_has_its_own_sequence() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let (config, mut sequence) = (Config::new(&fixture.server.url, "test"), first.sequence);
    let other = InvalidationPublisher::start(config, Arc::new(SystemClock), &fixture.tasks)?;
    let mut others = Vec::new();
    while others.len() < 2 {
        let message = message(&mut fixture.listener).await?;
        if message.publisher == first.publisher {
            sequence += 1;
            assert_eq!(message.sequence, sequence);
        } else {
            others.push(message);
        }
    }
    assert_eq!(others[1].publisher, others[0].publisher);
    assert_eq!(others[1].sequence, others[0].sequence + 1);
    other.publish([some_user()]);
    assert_eq!(fixture.non_heartbeat().await?.publisher, others[0].publisher);
    Ok(())
}

#[tokio::test]
async fn publishing_does_not_block_during_an_outage_and_leaves_a_gap() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    fixture.server.stop();
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Lost) {}
    for _ in 0..10_000 {
        fixture.publisher.publish([some_user()]);
    }
    fixture.server.restart().await?;
    let message = message(&mut fixture.listener).await?;
    assert_eq!(message.publisher, first.publisher);
    assert!(message.sequence > first.sequence + 1, "{} after {}", message.sequence, first.sequence);
    Ok(())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test publishes a malformed message")]
async fn a_malformed_message_is_a_gap() -> anyhow::Result<()> {
    let (mut fixture, _) = Fixture::start().await?;
    let client = bus::connect(&Config::new(&fixture.server.url, "test")).await?;
    client.publish(bus::INVALIDATION_SUBJECT, "{}".into()).await?;
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Lost) {}
    Ok(())
}
