//! Hints of revocations over a real nats-server: heard in order, never in the way, and missed ones are noticed.

use std::sync::Arc;
use std::time::Duration;

use bus::{
    Config, FeedEvent, Invalidation, InvalidationListener, InvalidationMessage, InvalidationPublisher,
};
use service::Tasks;
use service::clock::SystemClock;
use tenancy::UserId;
use testkit::nats::NatsServer;
use tokio::time::timeout;

/// Far beyond what anything here takes; only a defect lasts longer.
const PATIENCE: Duration = Duration::from_secs(30);

struct Fixture {
    server: NatsServer,
    tasks: Tasks,
    publisher: InvalidationPublisher,
    listener: InvalidationListener,
}

impl Fixture {
    /// A listener that has heard the publisher.
    async fn start() -> anyhow::Result<(Self, InvalidationMessage)> {
        let server = NatsServer::start().await?;
        let (config, tasks) = (Config::new(&server.url, "test"), Tasks::default());
        let mut listener = InvalidationListener::start(&config).await?;
        assert!(matches!(next(&mut listener).await?, FeedEvent::Connected));
        let publisher = InvalidationPublisher::start(config, Arc::new(SystemClock), &tasks)?;
        let first = hint(&mut listener).await?;
        Ok((Self { server, tasks, publisher, listener }, first))
    }

    /// The next hint that says something.
    async fn news(&mut self) -> anyhow::Result<InvalidationMessage> {
        loop {
            let hint = hint(&mut self.listener).await?;
            if !hint.revoked.is_empty() || hint.last {
                return Ok(hint);
            }
        }
    }
}

async fn next(listener: &mut InvalidationListener) -> anyhow::Result<FeedEvent> {
    Ok(timeout(PATIENCE, listener.next()).await?)
}

async fn hint(listener: &mut InvalidationListener) -> anyhow::Result<InvalidationMessage> {
    match next(listener).await? {
        FeedEvent::InvalidationMessage(hint) => Ok(hint),
        other => anyhow::bail!("{other:?}"),
    }
}

fn somebody() -> Invalidation {
    Invalidation::User(UserId::generate())
}

#[tokio::test]
async fn every_message_has_the_next_number_also_a_heartbeat_and_the_farewell() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let revoked = somebody();
    fixture.publisher.publish([revoked.clone()]);
    let (mut number, mut told) = (first.number, false);
    for _ in 0..3 {
        let hint = hint(&mut fixture.listener).await?;
        number += 1;
        assert_eq!((hint.publisher, hint.number, hint.last), (first.publisher, number, false));
        told |= hint.revoked == [revoked.clone()];
    }
    assert!(told, "one of them was no heartbeat");
    fixture.publisher.publish([somebody()]);
    fixture.tasks.shut_down().await;
    let (news, farewell) = (fixture.news().await?, fixture.news().await?);
    assert_eq!(news.revoked.len(), 1, "what was committed before the end is told before it");
    assert_eq!((farewell.number, farewell.last), (news.number + 1, true));
    Ok(())
}

#[tokio::test]
async fn publishers_are_told_apart() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    let config = Config::new(&fixture.server.url, "test");
    let other = InvalidationPublisher::start(config, Arc::new(SystemClock), &fixture.tasks)?;
    let hint = loop {
        let hint = hint(&mut fixture.listener).await?;
        if hint.publisher != first.publisher {
            break hint;
        }
    };
    assert_eq!(hint.number, 1);
    other.publish([somebody()]);
    assert_eq!(fixture.news().await?.publisher, hint.publisher);
    Ok(())
}

#[tokio::test]
async fn a_broker_that_goes_holds_nobody_up_and_what_was_missed_shows() -> anyhow::Result<()> {
    let (mut fixture, first) = Fixture::start().await?;
    fixture.server.stop();
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Missed) {}
    for _ in 0..10_000 {
        fixture.publisher.publish([somebody()]);
    }
    fixture.server.restart().await?;
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Connected) {}
    let hint = hint(&mut fixture.listener).await?;
    assert_eq!(hint.publisher, first.publisher);
    assert!(hint.number > first.number + 1, "a gap: {} after {}", hint.number, first.number);
    Ok(())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "somebody else's message is what is tested")]
async fn a_message_that_cannot_be_understood_may_have_said_anything() -> anyhow::Result<()> {
    let (mut fixture, _) = Fixture::start().await?;
    let client = bus::connect(&Config::new(&fixture.server.url, "test")).await?;
    client.publish(bus::INVALIDATION_SUBJECT, "{}".into()).await?;
    while !matches!(next(&mut fixture.listener).await?, FeedEvent::Missed) {}
    Ok(())
}
