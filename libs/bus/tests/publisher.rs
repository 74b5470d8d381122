//! Publication to a real nats-server: acknowledged messages are stored, other messages fail, and memory is released.

#[path = "publisher/atomic.rs"]
mod atomic;
#[path = "publisher/broker.rs"]
mod broker;
#[path = "publisher/old_server.rs"]
mod old_server;
#[path = "publisher/stalled.rs"]
mod stalled;

use std::time::Duration;

use broker::{Broker, SECOND, acme, deadline, event, event_of};
use bus::{
    Ack, AuditSubject, Config, EventStreams, InFlight, Message, Profile, PublishError, PublishLimits,
    Publisher, StreamSet,
};
use bytes::Bytes;
use futures::StreamExt as _;
use service::telemetry::Metrics;
use stalled::source_in;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn acknowledged_event_is_stored_with_its_bytes_and_headers() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let message = event("e1", br#"{"source_id":"fw","event_id":"e1", "n" : 1.0}"#);
    let ack = publisher.publish(&acme(), message.clone(), deadline(5)).await?;
    assert_eq!(ack, Ack { stream: "UDM".into(), sequence: 1, duplicate: false });

    let stored = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(1).await?;
    assert_eq!(&stored.subject, message.subject());
    assert_eq!(stored.payload, *message.payload());
    assert_eq!(stored.headers, message.headers());
    Ok(())
}

#[tokio::test]
async fn repeated_id_is_a_duplicate_and_the_first_bytes_are_kept() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let first = publisher.publish(&acme(), event("e1", br#"{"source_id":"fw"}"#), deadline(5)).await?;
    let again = publisher.publish(&acme(), event("e1", br#"{"source_id":"fw","x":1}"#), deadline(5)).await?;
    assert_eq!(again, Ack { duplicate: true, ..first });
    let stored = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(1).await?;
    assert_eq!(stored.payload.as_ref(), br#"{"source_id":"fw"}"#);
    Ok(())
}

#[tokio::test]
async fn batch_has_one_outcome_per_message_in_order() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let batch = broker::events(1_000);
    let outcomes = publisher.publish_all(&acme(), batch.clone(), deadline(5)).await;
    let sequences: Vec<u64> = outcomes.into_iter().map(|ack| ack.unwrap().sequence).collect();
    assert_eq!(sequences, (1..=1_000).collect::<Vec<_>>());
    let stored = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(700).await?;
    assert_eq!(stored.payload, *batch[699].payload());
    assert_eq!(publisher.in_flight(), InFlight { messages: 0, bytes: 0 });
    assert!(publisher.publish_all(&acme(), Vec::new(), deadline(5)).await.is_empty());
    Ok(())
}

#[tokio::test]
async fn broken_connection_fails_publishing_at_once_and_loses_no_acknowledged_event() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let (tenant, mut acknowledged) = (acme(), Vec::new());
    for round in 0..3 {
        let batch = (0..200).map(|n| event(&format!("r{round}-{n}"), br#"{"source_id":"fw"}"#)).collect();
        let sent = publisher.publish_all(&tenant, batch, deadline(5));
        let (outcomes, ()) = tokio::join!(sent, async {
            if round == 1 {
                broker.server.stop();
            }
        });
        for outcome in outcomes {
            match outcome {
                Ok(ack) => acknowledged.push(ack.sequence),
                Err(error) => assert_eq!(error, PublishError::Unavailable),
            }
        }
        if round == 1 {
            timeout(SECOND, broker::until_unavailable(&publisher)).await?;
            let started_at = Instant::now();
            let rejected = publisher.publish(&acme(), event("late", b"{}"), deadline(5)).await;
            assert_eq!(rejected, Err(PublishError::Unavailable));
            assert!(started_at.elapsed() < Duration::from_millis(100), "{:?}", started_at.elapsed());
            broker.server.restart().await?;
            timeout(10 * SECOND, publisher.ready()).await?;
        }
    }
    assert!(acknowledged.len() >= 400);
    let stream = broker.jetstream().await?.get_stream("UDM").await?;
    for sequence in acknowledged {
        stream.get_raw_message(sequence).await?;
    }
    assert_eq!(publisher.in_flight(), InFlight { messages: 0, bytes: 0 });
    Ok(())
}

#[tokio::test]
async fn full_stream_rejects_events_until_it_has_space() -> anyhow::Result<()> {
    let broker = Broker::with_stream_size(64 * 1024).await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let large = format!(r#"{{"source_id":"fw","x":"{}"}}"#, "x".repeat(20_000));
    let batch = (0..5).map(|n| event(&format!("e{n}"), large.as_bytes())).collect();
    let outcomes = publisher.publish_all(&acme(), batch, deadline(5)).await;
    assert!(outcomes[0].is_ok());
    assert_eq!(outcomes[4], Err(PublishError::StreamFull));
    broker.jetstream().await?.get_stream("UDM").await?.purge().await?;
    publisher.publish(&acme(), event("e4", large.as_bytes()), deadline(5)).await?;
    Ok(())
}

#[tokio::test]
async fn memory_is_released_after_the_deadline_even_if_the_caller_is_gone() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    broker.server.pause()?;
    let soon = Instant::now() + Duration::from_millis(400);
    let tenant = acme();
    {
        let abandoned = publisher.publish_all(&tenant, broker::events(10), soon);
        assert!(timeout(Duration::from_millis(20), abandoned).await.is_err());
    }
    assert_eq!(publisher.in_flight().messages, 10, "dropping the future does not cancel publication");
    let outcome = publisher.publish(&tenant, event("w", b"{}"), soon).await;
    assert_eq!(outcome, Err(PublishError::AckTimeout));
    assert_eq!(publisher.in_flight(), InFlight { messages: 0, bytes: 0 });
    broker.server.resume()?;
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&tenant, event("after", b"{}"), deadline(5)).await?;
    Ok(())
}

#[tokio::test]
async fn unresponsive_server_makes_publishing_unavailable_until_it_recovers() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    broker.server.pause()?;
    timeout(5 * SECOND, broker::until_unavailable(&publisher)).await?;
    let started_at = Instant::now();
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    assert!(started_at.elapsed() < Duration::from_millis(100));
    broker.server.resume()?;
    timeout(10 * SECOND, publisher.ready()).await?;
    Ok(())
}

#[tokio::test]
async fn server_without_an_available_stream_is_replaced_by_another_one() -> anyhow::Result<()> {
    let (without_stream, mut broker) = (Broker::without_streams().await?, Broker::start().await?);
    broker.server.stop();
    let mut probes =
        bus::connect(&without_stream.config()).await?.subscribe("$JS.API.STREAM.INFO.UDM").await?;
    let config = Config::new(format!("{},{}", without_stream.server.url, broker.server.url), "test");
    let limits = PublishLimits::default();
    let publisher = Publisher::start(config, "UDM", limits, &Metrics::new("test"), &broker.tasks)?;
    assert!(timeout(10 * SECOND, probes.next()).await?.is_some());
    broker.server.restart().await?;
    // The publisher tries the servers in turn.
    timeout(testkit::DEADLINE, publisher.ready()).await?;
    publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await?;
    Ok(())
}

/// Returns whether a line of the metrics is exposed.
fn is_exposed(metrics: &Metrics, line: &str) -> bool {
    metrics.text().lines().any(|exposed| exposed == line)
}

/// Starts a publisher of the stream on each server, which share the metrics, and waits until they are ready.
async fn sharing_metrics(brokers: [&Broker; 2], metrics: &Metrics) -> anyhow::Result<Vec<Publisher>> {
    let mut publishers = Vec::new();
    for broker in brokers {
        let limits = PublishLimits::default();
        let publisher = Publisher::start(broker.config(), "UDM", limits, metrics, &broker.tasks)?;
        timeout(10 * SECOND, publisher.ready()).await?;
        publishers.push(publisher);
    }
    Ok(publishers)
}

#[tokio::test]
async fn stream_is_available_in_the_metrics_if_it_is_for_all_publishers_of_the_process() -> anyhow::Result<()>
{
    let (mut first, mut second) = (Broker::start().await?, Broker::start().await?);
    let metrics = Metrics::new("test");
    let publishers = sharing_metrics([&first, &second], &metrics).await?;
    assert!(is_exposed(&metrics, r#"svc_publish_available{stream="UDM"} 1"#), "{}", metrics.text());
    let unavailable = r#"svc_publish_available{stream="UDM"} 0"#;

    first.server.stop();
    timeout(5 * SECOND, broker::until_unavailable(&publishers[0])).await?;
    assert!(publishers[1].is_ready());
    assert!(is_exposed(&metrics, unavailable), "{}", metrics.text());

    first.server.restart().await?;
    timeout(10 * SECOND, publishers[0].ready()).await?;
    second.server.stop();
    timeout(5 * SECOND, broker::until_unavailable(&publishers[1])).await?;
    assert!(publishers[0].is_ready());
    assert!(is_exposed(&metrics, unavailable), "{}", metrics.text());
    Ok(())
}

#[tokio::test]
async fn messages_in_flight_of_all_publishers_of_a_stream_are_added_in_the_metrics() -> anyhow::Result<()> {
    let (first, second) = (Broker::start().await?, Broker::start().await?);
    let metrics = Metrics::new("test");
    let publishers = sharing_metrics([&first, &second], &metrics).await?;
    first.server.pause()?;
    second.server.pause()?;
    let (tenant, soon) = (acme(), Instant::now() + Duration::from_millis(300));
    let scrape = async {
        let bytes: usize = publishers.iter().map(|publisher| publisher.in_flight().bytes).sum();
        for line in [
            r#"svc_publish_in_flight_messages{stream="UDM"} 5"#.to_owned(),
            format!(r#"svc_publish_in_flight_bytes{{stream="UDM"}} {bytes}"#),
        ] {
            assert!(is_exposed(&metrics, &line), "{line}\n{}", metrics.text());
        }
    };
    tokio::join!(
        biased;
        publishers[0].publish_all(&tenant, broker::events(2), soon),
        publishers[1].publish_all(&tenant, broker::events(3), soon),
        scrape,
    );
    assert!(is_exposed(&metrics, r#"svc_publish_in_flight_messages{stream="UDM"} 0"#), "{}", metrics.text());
    Ok(())
}

#[tokio::test]
async fn messages_queued_at_the_start_of_an_outage_are_not_sent_later() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    broker.server.pause()?;
    // More than the socket buffers hold, so that the rest is in the queue of the client.
    let payload = vec![b'x'; 200_000];
    let batch = (0..60).map(|n| event(&format!("e{n}"), &payload)).collect();
    let soon = Instant::now() + Duration::from_millis(200);
    let outcomes = publisher.publish_all(&acme(), batch, soon).await;
    assert!(outcomes.iter().all(Result::is_err));
    broker.server.stop();
    broker.server.restart().await?;
    let client = bus::connect(&broker.config()).await?;
    let mut late = client.subscribe("udm.v1.>").await?;
    timeout(10 * SECOND, publisher.ready()).await?;
    assert!(timeout(SECOND, late.next()).await.is_err());
    let ack = publisher.publish(&acme(), event("new", b"{}"), deadline(5)).await?;
    assert_eq!(ack.sequence, 1);
    Ok(())
}

#[tokio::test]
async fn message_above_the_limit_of_the_server_fails_without_closing_the_connection() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let batch = vec![event("large", &vec![b'x'; 1 << 20]), event("small", b"{}")];
    let outcomes = publisher.publish_all(&acme(), batch, deadline(5)).await;
    assert!(matches!(outcomes[0], Err(PublishError::Misconfigured { code: 0, .. })), "{outcomes:?}");
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    Ok(())
}

#[tokio::test]
async fn one_tenant_uses_at_most_a_quarter_of_the_budget() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits { messages: 40, bytes: 1 << 20 }).await?;
    let too_many = publisher.publish_all(&acme(), broker::events(11), deadline(5)).await;
    assert_eq!(too_many, vec![Err(PublishError::Overloaded); 11]);
    broker.server.pause()?;
    let soon = Instant::now() + Duration::from_millis(300);
    let (tenant, other) = (acme(), "globex".parse()?);
    let ((held, rejected), of_other) = tokio::join!(
        async {
            tokio::join!(
                publisher.publish_all(&tenant, broker::events(10), soon),
                publisher.publish(&tenant, event("x", b"{}"), soon),
            )
        },
        publisher.publish(&other, event("y", b"{}"), soon),
    );
    assert_eq!(held, vec![Err(PublishError::AckTimeout); 10]);
    assert_eq!(rejected, Err(PublishError::Overloaded));
    assert_eq!(of_other, Err(PublishError::AckTimeout));
    broker.server.resume()?;
    Ok(())
}

#[tokio::test]
async fn messages_after_a_rejected_thousand_are_not_stored_before_it() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits { messages: 2_000, bytes: 64 << 20 }).await?;
    let outcomes = publisher.publish_all(&acme(), broker::events(1_100), deadline(5)).await;
    assert_eq!(outcomes, vec![Err(PublishError::Overloaded); 1_100]);
    assert_eq!(broker.jetstream().await?.get_stream("UDM").await?.cached_info().state.messages, 0);
    let outcomes = publisher.publish_all(&acme(), broker::events(500), deadline(5)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    Ok(())
}

#[tokio::test]
async fn messages_of_another_stream_are_published_after_a_rejected_thousand() -> anyhow::Result<()> {
    let profile = Profile { streams: EventStreams::new(2).unwrap(), ..Profile::single_server(64 << 20) };
    let broker = Broker::with_profile(&profile).await?;
    let limits = PublishLimits { messages: 2_000, bytes: 64 << 20 };
    let publisher = broker.publisher_of(StreamSet::from(&profile), limits).await?;
    let [first, second] = [source_in(0..=31), source_in(32..=63)];
    let sources = std::iter::repeat_n(&first, 1_001).chain([&second]);
    let messages = sources.enumerate().map(|(n, source)| event_of(source, &format!("e{n}"), b"{}")).collect();
    let outcomes = publisher.publish_all(&acme(), messages, deadline(5)).await;
    // The share of the tenant is smaller than a thousand.
    let overloaded = |outcome: &&Result<Ack, PublishError>| **outcome == Err(PublishError::Overloaded);
    assert_eq!(outcomes.iter().take_while(overloaded).count(), 1_001);
    assert!(outcomes[1_001].is_ok(), "{:?}", outcomes[1_001]);
    Ok(())
}

#[tokio::test]
async fn wrong_stream_is_a_configuration_error() -> anyhow::Result<()> {
    let broker = Broker::without_streams().await?;
    broker.stream("OTHER", "elsewhere").await?;
    broker.stream("ACTUAL", "audit.v1.>").await?;
    let publisher = broker.publisher_of("OTHER", PublishLimits::default()).await?;
    let subject = AuditSubject::new(Some(&acme()), "identity", "user_invited")?;
    let message = Message::audit(&subject, "1", None, Bytes::from_static(b"{}"))?;
    let outcome = publisher.publish(&acme(), message, deadline(5)).await;
    let description = "the stream ACTUAL stored a message for OTHER".to_owned();
    assert_eq!(outcome, Err(PublishError::Misconfigured { code: 0, description }));
    Ok(())
}

#[tokio::test]
async fn subject_without_a_stream_is_a_temporary_error() -> anyhow::Result<()> {
    let broker = Broker::without_streams().await?;
    broker.stream("UDM", "elsewhere").await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let started_at = Instant::now();
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    assert!(started_at.elapsed() < SECOND);
    Ok(())
}

#[tokio::test]
async fn message_is_sent_again_while_a_duplicate_is_in_process() -> anyhow::Result<()> {
    // A cluster replies like this only for a moment, so the test replies in place of a stream.
    let broker = Broker::without_streams().await?;
    broker.stream("UDM", "elsewhere").await?;
    let client = bus::connect(&broker.config()).await?;
    let mut requests = client.subscribe("udm.v1.>").await?;
    client.flush().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let tenant = acme();
    let publishing = publisher.publish(&tenant, event("e", b"{}"), deadline(5));
    let replying = async {
        let replies = [
            r#"{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"UDM","seq":0}"#,
            r#"{"stream":"UDM","seq":9,"duplicate":true}"#,
        ];
        for reply in replies {
            let request = requests.next().await.unwrap();
            broker::reply(&client, request, reply).await;
        }
    };
    let (outcome, ()) = tokio::join!(publishing, replying);
    assert_eq!(outcome, Ok(Ack { stream: "UDM".into(), sequence: 9, duplicate: true }));
    Ok(())
}

#[tokio::test]
async fn stopping_publisher_rejects_new_messages_and_settles_pending_ones() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(PublishLimits::default()).await?;
    let tenant = acme();
    let sent = publisher.publish_all(&tenant, broker::events(100), deadline(5));
    let (outcomes, ()) = tokio::join!(sent, async { broker.tasks.stopping().cancel() });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    timeout(2 * SECOND, broker.tasks.shut_down()).await?;
    let outcome = publisher.publish(&tenant, event("late", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    Ok(())
}

#[tokio::test]
async fn publisher_connects_when_the_server_starts_later() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    broker.server.stop();
    let publisher = broker.start_publisher("UDM", PublishLimits::default())?;
    assert!(!publisher.is_ready());
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    broker.server.restart().await?;
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await?;
    Ok(())
}
