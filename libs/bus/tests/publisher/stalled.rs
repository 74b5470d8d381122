//! A stream that replies to probes and stores nothing: calls fail at once, and one call per second finds out when that has ended.

#![expect(clippy::unwrap_used, reason = "fixtures of tests")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::{
    AuditProfile, AuditSubject, EventStreams, Message, Profile, PublishError, PublishLimits, Publisher,
    StreamSet, partition,
};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use service::telemetry::Metrics;
use testkit::wait_until;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::broker::{self, Broker, SECOND, acme, deadline, event, event_of, events};
use crate::is_exposed;

/// A message with a shorter deadline is no evidence.
const PATIENCE: Duration = Duration::from_millis(1200);
/// Less than the deadline of any message.
const AT_ONCE: Duration = Duration::from_millis(200);

fn patient() -> Instant {
    Instant::now() + PATIENCE
}

/// Publishes three messages that have no reply.
async fn stall(publisher: &Publisher, messages: [Message; 3]) {
    let tenant = acme();
    let unanswered = messages.map(|message| publisher.publish(&tenant, message, patient()));
    assert_eq!(join_all(unanswered).await, vec![Err(PublishError::AckTimeout); 3]);
}

/// Publishes messages until one is rejected at once.
async fn until_rejected_at_once(publisher: &Publisher, message: &Message) {
    wait_until("a message is rejected at once", async || {
        let started_at = Instant::now();
        let outcome = publisher.publish(&acme(), message.clone(), patient()).await;
        let is_trial = started_at.elapsed() >= AT_ONCE;
        let expected = if is_trial { PublishError::AckTimeout } else { PublishError::Unavailable };
        assert_eq!(outcome, Err(expected));
        (!is_trial).then_some(())
    })
    .await;
}

async fn until_published(publisher: &Publisher, message: &Message) {
    wait_until("a message is stored", async || {
        publisher.publish(&acme(), message.clone(), deadline(5)).await.ok()
    })
    .await;
}

async fn until_ready(publisher: &Publisher) {
    wait_until("the publisher is ready", async || publisher.is_ready().then_some(())).await;
}

/// Gives the events of a stream to another client.
async fn divert(broker: &Broker, stream: &str) -> anyhow::Result<()> {
    let jetstream = broker.jetstream().await?;
    let mut config = jetstream.get_stream(stream).await?.cached_info().config.clone();
    config.subjects = vec![format!("elsewhere.{stream}")];
    jetstream.update_stream(config).await?;
    Ok(())
}

fn partition_of(message: &async_nats::Message) -> u8 {
    message.subject.split('.').nth(2).unwrap().parse().unwrap()
}

/// Returns a source of the partition range of a stream.
pub(crate) fn source_in(range: std::ops::RangeInclusive<u8>) -> String {
    (0..1000).map(|n| format!("fw-{n}")).find(|source| range.contains(&partition(&acme(), source))).unwrap()
}

#[tokio::test]
async fn a_stream_on_a_full_volume_rejects_messages_at_once_until_it_acknowledges_one() -> anyhow::Result<()>
{
    let mut broker = Broker::start().await?;
    let metrics = Metrics::new("test");
    let publisher =
        Publisher::start(broker.config(), "UDM", PublishLimits::default(), &metrics, &broker.tasks)?;
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&acme(), event("before", b"{}"), deadline(5)).await?;

    broker.server.fail_writes(true)?;
    stall(&publisher, ["a", "b", "c"].map(|id| event(id, b"{}"))).await;
    assert!(!publisher.is_ready());
    assert!(is_exposed(&metrics, r#"svc_publish_available{stream="UDM"} 0"#), "{}", metrics.text());
    until_rejected_at_once(&publisher, &event("full", b"{}")).await;

    // The volume has space again. The server needs a restart, and still replies to probes.
    broker.server.fail_writes(false)?;
    publisher.usage("udm.v1.>").await?;
    until_rejected_at_once(&publisher, &event("free", b"{}")).await;
    assert!(!publisher.is_ready());

    broker.server.restart().await?;
    wait_until("the stream replies", async || publisher.usage("udm.v1.>").await.ok()).await;
    assert!(!publisher.is_ready(), "a reply to a probe is no acknowledgement");
    until_published(&publisher, &event("after", b"{}")).await;
    assert!(publisher.is_ready());
    assert!(is_exposed(&metrics, r#"svc_publish_available{stream="UDM"} 1"#), "{}", metrics.text());
    Ok(())
}

#[tokio::test]
async fn one_call_per_second_is_published_to_a_stalled_stream() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    broker.server.fail_writes(true)?;
    stall(&publisher, ["a", "b", "c"].map(|id| event(id, b"{}"))).await;
    let (tenant, started_at) = (acme(), Instant::now());
    let (mut calls, mut running) = (0, JoinSet::new());
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while started_at.elapsed() < 3 * SECOND {
        tick.tick().await;
        calls += 1;
        let (publisher, tenant) = (publisher.clone(), tenant.clone());
        running.spawn(async move { publisher.publish_all(&tenant, events(10), patient()).await });
    }
    let outcomes = running.join_all().await;
    let trials = outcomes.iter().filter(|outcomes| outcomes.contains(&Err(PublishError::AckTimeout))).count();
    assert!((1..=4).contains(&trials), "{trials} of {calls} calls");
    for outcomes in outcomes {
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "a call is published as a whole");
    }
    Ok(())
}

#[tokio::test]
async fn the_audit_stream_on_a_full_volume_is_unavailable_until_it_acknowledges_a_message()
-> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    bus::ensure(&broker.jetstream().await?, &AuditProfile::single_server(64 << 20)).await?;
    let publisher = broker.publisher_of("AUDIT", PublishLimits::default()).await?;
    let subject = AuditSubject::new(Some(&acme()), "identity", "user_invited")?;
    let audit = |id: &str| Message::audit(&subject, id, None, Bytes::from_static(b"{}")).unwrap();
    broker.server.fail_writes(true)?;
    stall(&publisher, ["a", "b", "c"].map(audit)).await;
    assert!(!publisher.is_ready());
    until_rejected_at_once(&publisher, &audit("full")).await;
    broker.server.fail_writes(false)?;
    broker.server.restart().await?;
    until_published(&publisher, &audit("after")).await;
    assert!(publisher.is_ready());
    Ok(())
}

#[tokio::test]
async fn a_stalled_stream_does_not_affect_the_others() -> anyhow::Result<()> {
    let streams = EventStreams::new(2).unwrap();
    let profile = Profile { streams, ..Profile::single_server(64 << 20) };
    let broker = Broker::with_profile(&profile).await?;
    // A client receives the events of the first stream in its place, and replies to none at first.
    divert(&broker, "UDM_00_31").await?;
    let client = bus::connect(&broker.config()).await?;
    let mut received = client.subscribe("udm.v1.>").await?;
    client.flush().await?;
    let replies = AtomicBool::new(false);
    let replying = async {
        while let Some(message) = received.next().await {
            if partition_of(&message) < 32 && replies.load(Ordering::Relaxed) {
                broker::reply(&client, message, r#"{"stream":"UDM_00_31","seq":1}"#).await;
            }
        }
    };
    let publisher = broker.publisher_of(StreamSet::from(&profile), PublishLimits::default()).await?;
    let [silent, healthy] = [source_in(0..=31), source_in(32..=63)];
    let of_silent = |id: &str| event_of(&silent, id, b"{}");
    let checks = async {
        stall(&publisher, ["a", "b", "c"].map(of_silent)).await;
        until_rejected_at_once(&publisher, &of_silent("d")).await;
        assert!(publisher.is_ready());
        let mixed = vec![of_silent("e"), event_of(&healthy, "f", b"{}")];
        let outcomes = publisher.publish_all(&acme(), mixed, patient()).await;
        assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
        replies.store(true, Ordering::Relaxed);
        until_published(&publisher, &of_silent("g")).await;
    };
    tokio::select! {
        () = replying => {}
        () = checks => {}
    }
    Ok(())
}

#[tokio::test]
async fn a_stalled_stream_without_calls_is_ready_for_one_call() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    let metrics = Metrics::new("test");
    let publisher =
        Publisher::start(broker.config(), "UDM", PublishLimits::default(), &metrics, &broker.tasks)?;
    timeout(10 * SECOND, publisher.ready()).await?;
    broker.server.fail_writes(true)?;
    stall(&publisher, ["a", "b", "c"].map(|id| event(id, b"{}"))).await;
    assert!(!publisher.is_ready());

    until_ready(&publisher).await;
    let unavailable = r#"svc_publish_available{stream="UDM"} 0"#;
    assert!(is_exposed(&metrics, unavailable), "no message was acknowledged: {}", metrics.text());
    let outcome = publisher.publish(&acme(), event("full", b"{}"), patient()).await;
    assert_eq!(outcome, Err(PublishError::AckTimeout));
    assert!(!publisher.is_ready());

    broker.server.fail_writes(false)?;
    broker.server.restart().await?;
    until_ready(&publisher).await;
    publisher.publish(&acme(), event("after", b"{}"), deadline(5)).await?;
    assert!(publisher.is_ready());
    assert!(is_exposed(&metrics, r#"svc_publish_available{stream="UDM"} 1"#), "{}", metrics.text());
    Ok(())
}

#[tokio::test]
async fn a_late_acknowledgement_ends_the_stall_of_its_stream() -> anyhow::Result<()> {
    let profile = Profile { streams: EventStreams::new(2).unwrap(), ..Profile::single_server(64 << 20) };
    let broker = Broker::with_profile(&profile).await?;
    for stream in ["UDM_00_31", "UDM_32_63"] {
        divert(&broker, stream).await?;
    }
    let client = bus::connect(&broker.config()).await?;
    let received = client.subscribe("udm.v1.>").await?;
    client.flush().await?;
    let metrics = Metrics::new("test");
    let publisher =
        Publisher::start(broker.config(), &profile, PublishLimits::default(), &metrics, &broker.tasks)?;
    timeout(10 * SECOND, publisher.ready()).await?;
    let [first, second] = [source_in(0..=31), source_in(32..=63)];
    let events = |source: &str| ["a", "b", "c"].map(|id| event_of(source, &format!("{source}-{id}"), b"{}"));
    tokio::join!(stall(&publisher, events(&first)), stall(&publisher, events(&second)));
    assert!(!publisher.is_ready());

    let unanswered: Vec<_> = received.take(6).collect().await;
    for message in unanswered.into_iter().filter(|message| partition_of(message) >= 32) {
        broker::reply(&client, message, r#"{"stream":"UDM_32_63","seq":1}"#).await;
    }
    let is_available = |stream: &str, value: u8| {
        is_exposed(&metrics, &format!(r#"svc_publish_available{{stream="{stream}"}} {value}"#))
    };
    wait_until("the stream is available", async || is_available("UDM_32_63", 1).then_some(())).await;
    assert!(is_available("UDM_00_31", 0), "{}", metrics.text());
    assert!(publisher.is_ready());
    Ok(())
}

#[tokio::test]
async fn a_message_without_a_reply_among_others_with_one_stalls_nothing() -> anyhow::Result<()> {
    let broker = Broker::without_streams().await?;
    broker.stream("UDM", "elsewhere").await?;
    let client = bus::connect(&broker.config()).await?;
    let mut received = client.subscribe("udm.v1.>").await?;
    client.flush().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let replying = async {
        while let Some(message) = received.next().await {
            if message.payload.as_ref() != b"lost" {
                broker::reply(&client, message, r#"{"stream":"UDM","seq":1}"#).await;
            }
        }
    };
    let checks = async {
        for number in 0..5 {
            let (lost, tenant) = (event(&format!("lost-{number}"), b"lost"), acme());
            let of_lost = publisher.publish(&tenant, lost, patient());
            let stored = publisher.publish(&tenant, event(&format!("e{number}"), b"{}"), patient());
            let (lost, stored) = tokio::join!(of_lost, stored);
            assert_eq!(lost, Err(PublishError::AckTimeout));
            assert!(stored.is_ok(), "{stored:?}");
        }
        assert!(publisher.is_ready());
    };
    tokio::select! {
        () = replying => {}
        () = checks => {}
    }
    Ok(())
}
