//! Publication against a real nats-server: what is acknowledged is kept, what is not is told, and no room is lost.

#[path = "publisher/broker.rs"]
mod broker;

use std::time::Duration;

use broker::{Broker, SECOND, acme, deadline, event};
use bus::{Ack, AuditSubject, Limits, Message, PublishError};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn an_acknowledged_event_is_in_the_stream_with_its_bytes_and_headers() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let message = event("e1", br#"{"source_id":"fw","event_id":"e1", "n" : 1.0}"#);
    let ack = publisher.publish(&acme(), message.clone(), deadline(5)).await?;
    assert_eq!(ack, Ack { stream: "UDM".into(), sequence: 1, duplicate: false });

    let kept = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(1).await?;
    assert_eq!(&kept.subject, message.subject());
    assert_eq!(kept.payload, *message.payload());
    assert_eq!(kept.headers, message.headers());
    Ok(())
}

#[tokio::test]
async fn the_same_id_again_is_a_duplicate_and_the_first_bytes_stand() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let first = publisher.publish(&acme(), event("e1", br#"{"source_id":"fw"}"#), deadline(5)).await?;
    let again = publisher.publish(&acme(), event("e1", br#"{"source_id":"fw","x":1}"#), deadline(5)).await?;
    assert_eq!(again, Ack { duplicate: true, ..first });
    let kept = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(1).await?;
    assert_eq!(kept.payload.as_ref(), br#"{"source_id":"fw"}"#);
    Ok(())
}

#[tokio::test]
async fn a_batch_gets_one_outcome_each_and_keeps_its_order() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let batch = broker::events(1_000);
    let outcomes = publisher.publish_all(&acme(), batch.clone(), deadline(5)).await;
    let sequences: Vec<u64> = outcomes.into_iter().map(|ack| ack.unwrap().sequence).collect();
    assert_eq!(sequences, (1..=1_000).collect::<Vec<_>>());
    let kept = broker.jetstream().await?.get_stream("UDM").await?.get_raw_message(700).await?;
    assert_eq!(kept.payload, *batch[699].payload());
    assert_eq!(publisher.in_flight(), Limits { messages: 0, bytes: 0 });
    assert!(publisher.publish_all(&acme(), Vec::new(), deadline(5)).await.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_broker_that_dies_is_told_at_once_and_nothing_acknowledged_is_lost() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
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
            timeout(SECOND, broker::unhealthy(&publisher)).await?;
            let asked = Instant::now();
            let refused = publisher.publish(&acme(), event("late", b"{}"), deadline(5)).await;
            assert_eq!(refused, Err(PublishError::Unavailable));
            assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
            broker.server.restart().await?;
            timeout(10 * SECOND, publisher.ready()).await?;
        }
    }
    assert!(acknowledged.len() >= 400);
    let stream = broker.jetstream().await?.get_stream("UDM").await?;
    for sequence in acknowledged {
        stream.get_raw_message(sequence).await?;
    }
    assert_eq!(publisher.in_flight(), Limits { messages: 0, bytes: 0 });
    Ok(())
}

#[tokio::test]
async fn a_full_stream_says_so_and_takes_events_again_when_there_is_room() -> anyhow::Result<()> {
    let broker = Broker::with_stream_of(64 * 1024).await?;
    let publisher = broker.publisher(Limits::default()).await?;
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
async fn room_comes_back_after_the_deadline_whether_or_not_anybody_waits() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    broker.server.pause()?;
    let soon = Instant::now() + Duration::from_millis(400);
    let tenant = acme();
    {
        let abandoned = publisher.publish_all(&tenant, broker::events(10), soon);
        assert!(timeout(Duration::from_millis(20), abandoned).await.is_err());
    }
    assert_eq!(publisher.in_flight().messages, 10, "an abandoned publication goes on");
    let outcome = publisher.publish(&tenant, event("w", b"{}"), soon).await;
    assert_eq!(outcome, Err(PublishError::AckTimeout));
    assert_eq!(publisher.in_flight(), Limits { messages: 0, bytes: 0 });
    broker.server.resume()?;
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&tenant, event("after", b"{}"), deadline(5)).await?;
    Ok(())
}

#[tokio::test]
async fn a_broker_that_answers_nothing_is_left_alone_until_it_does() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    broker.server.pause()?;
    timeout(5 * SECOND, broker::unhealthy(&publisher)).await?;
    let asked = Instant::now();
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    assert!(asked.elapsed() < Duration::from_millis(100));
    broker.server.resume()?;
    timeout(10 * SECOND, publisher.ready()).await?;
    Ok(())
}

#[tokio::test]
async fn what_was_queued_when_the_broker_died_is_not_sent_after_the_outage() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    broker.server.pause()?;
    // More than the sockets hold, so that the client's own queue holds the rest.
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
async fn a_tenant_may_hold_a_quarter_of_the_room() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits { messages: 40, bytes: 1 << 20 }).await?;
    let too_many = publisher.publish_all(&acme(), broker::events(11), deadline(5)).await;
    assert_eq!(too_many, vec![Err(PublishError::Overloaded); 11]);
    broker.server.pause()?;
    let soon = Instant::now() + Duration::from_millis(300);
    let (tenant, other) = (acme(), "globex".parse()?);
    let ((held, refused), of_other) = tokio::join!(
        async {
            tokio::join!(
                publisher.publish_all(&tenant, broker::events(10), soon),
                publisher.publish(&tenant, event("x", b"{}"), soon),
            )
        },
        publisher.publish(&other, event("y", b"{}"), soon),
    );
    assert_eq!(held, vec![Err(PublishError::AckTimeout); 10]);
    assert_eq!(refused, Err(PublishError::Overloaded));
    assert_eq!(of_other, Err(PublishError::AckTimeout));
    broker.server.resume()?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_stream_is_told_as_a_wrong_set_up() -> anyhow::Result<()> {
    let broker = Broker::bare().await?;
    broker.stream("OTHER", "audit.v1.>").await?;
    let publisher = broker.publisher_of("OTHER", Limits::default()).await?;
    let subject = AuditSubject::new(Some(&acme()), "identity", "user_invited")?;
    let message = Message::audit(&subject, "1", None, Bytes::from_static(b"{}"))?;
    let outcome = publisher.publish(&acme(), message, deadline(5)).await;
    assert!(matches!(outcome, Err(PublishError::Misconfigured { code: 10_060, .. })), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_subject_that_no_stream_holds_is_a_passing_fault() -> anyhow::Result<()> {
    let broker = Broker::bare().await?;
    broker.stream("UDM", "elsewhere").await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let asked = Instant::now();
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    assert!(asked.elapsed() < SECOND);
    Ok(())
}

#[tokio::test]
async fn a_twin_in_process_is_waited_for() -> anyhow::Result<()> {
    // Only a cluster answers so, for a moment that no test can choose; here somebody else answers in the stream's name.
    let broker = Broker::bare().await?;
    broker.stream("UDM", "elsewhere").await?;
    let client = bus::connect(&broker.config()).await?;
    let mut questions = client.subscribe("udm.v1.>").await?;
    client.flush().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let tenant = acme();
    let asked = publisher.publish(&tenant, event("e", b"{}"), deadline(5));
    let answered = async {
        let answers = [
            r#"{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"UDM","seq":0}"#,
            r#"{"stream":"UDM","seq":9,"duplicate":true}"#,
        ];
        for answer in answers {
            let question = questions.next().await.unwrap();
            broker::answer(&client, question, answer).await;
        }
    };
    let (outcome, ()) = tokio::join!(asked, answered);
    assert_eq!(outcome, Ok(Ack { stream: "UDM".into(), sequence: 9, duplicate: true }));
    Ok(())
}

#[tokio::test]
async fn a_publisher_that_stops_takes_nothing_new_and_ends_what_it_has() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let publisher = broker.publisher(Limits::default()).await?;
    let tenant = acme();
    let sent = publisher.publish_all(&tenant, broker::events(100), deadline(5));
    let (outcomes, ()) = tokio::join!(sent, async { broker.stop.cancel() });
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    broker.tasks.close();
    timeout(2 * SECOND, broker.tasks.wait()).await?;
    let outcome = publisher.publish(&tenant, event("late", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    Ok(())
}

#[tokio::test]
async fn a_broker_that_comes_late_is_found() -> anyhow::Result<()> {
    let mut broker = Broker::start().await?;
    broker.server.stop();
    let publisher = broker.start_publisher("UDM", Limits::default())?;
    assert!(!publisher.healthy());
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));
    broker.server.restart().await?;
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await?;
    Ok(())
}
