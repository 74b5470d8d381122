//! Durability `strict`: a batch is stored atomically, and message by message if the stream refuses it. In both cases each event
//! is stored once and has its own outcome.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use bus::{Ack, Durability, EventStreams, Message, Profile, PublishError, PublishLimits, Publisher};
use tokio::time::{Instant, timeout};

use crate::broker::{self, Broker, SECOND, acme, deadline, event, event_of};

const PROFILE: Profile = Profile { durability: Durability::Strict, ..Profile::single_server(64 << 20) };

async fn start(profile: &Profile) -> anyhow::Result<(Broker, Publisher)> {
    let broker = Broker::with_profile(profile).await?;
    let publisher = broker.publisher_of(profile, PublishLimits::default()).await?;
    Ok((broker, publisher))
}

fn events(numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers.map(|n| event(&format!("e{n}"), b"{}")).collect()
}

async fn publish(publisher: &Publisher, messages: Vec<Message>) -> Vec<Result<Ack, PublishError>> {
    publisher.publish_all(&acme(), messages, deadline(5)).await
}

async fn stored(broker: &Broker, stream: &str) -> anyhow::Result<Vec<StreamMessage>> {
    let mut stream = broker.jetstream().await?.get_stream(stream).await?;
    let last = stream.info().await?.state.last_sequence;
    let mut messages = Vec::new();
    for sequence in 1..=last {
        messages.push(stream.get_raw_message(sequence).await?);
    }
    Ok(messages)
}

fn header(message: &StreamMessage, name: &str) -> Option<String> {
    message.headers.get(name).map(ToString::to_string)
}

fn event_ids(messages: &[StreamMessage]) -> Vec<String> {
    messages.iter().map(|message| header(message, "ce-id").unwrap_or_default()).collect()
}

fn duplicates(outcomes: &[Result<Ack, PublishError>]) -> Vec<bool> {
    outcomes.iter().map(|outcome| outcome.as_ref().is_ok_and(|ack| ack.duplicate)).collect()
}

#[tokio::test]
async fn fresh_batch_is_one_atomic_batch_in_order() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    publish(&publisher, events(0..1)).await;
    let outcomes = publish(&publisher, events(1..501)).await;
    let sequences: Vec<_> = outcomes.iter().map(|outcome| outcome.clone().map(|ack| ack.sequence)).collect();
    assert_eq!(sequences, (2..=501).map(Ok).collect::<Vec<_>>());
    assert!(!duplicates(&outcomes).contains(&true));
    let stored = stored(&broker, "UDM").await?;
    assert_eq!(event_ids(&stored), (0..501).map(|n| format!("e{n}")).collect::<Vec<_>>());
    assert_eq!(header(&stored[0], "Nats-Batch-Id"), None, "a single event is no batch");
    let batches: BTreeSet<_> = stored[1..].iter().map(|message| header(message, "Nats-Batch-Id")).collect();
    assert_eq!(batches.len(), 1);
    assert!(!batches.contains(&None));
    assert_eq!(publisher.in_flight().messages, 0);
    Ok(())
}

#[tokio::test]
async fn batch_with_duplicates_is_stored_message_by_message() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    publish(&publisher, events(0..10)).await;
    let outcomes = publish(&publisher, events(5..15)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(duplicates(&outcomes), [[true; 5], [false; 5]].concat());
    let stored = stored(&broker, "UDM").await?;
    assert_eq!(event_ids(&stored), (0..15).map(|n| format!("e{n}")).collect::<Vec<_>>());
    assert!(stored[10..].iter().all(|message| header(message, "Nats-Batch-Id").is_none()));
    Ok(())
}

#[tokio::test]
async fn batch_is_stored_once_if_its_acknowledgement_is_lost() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    broker.server.pause()?;
    let soon = Instant::now() + Duration::from_millis(300);
    let outcomes = publisher.publish_all(&acme(), events(0..50), soon).await;
    assert_eq!(outcomes, vec![Err(PublishError::AckTimeout); 50]);
    broker.server.resume()?;
    // The server receives the batch before any later message of this connection.
    timeout(10 * SECOND, publisher.ready()).await?;
    let retried = publish(&publisher, events(0..50)).await;
    assert_eq!(duplicates(&retried), [true; 50]);
    assert_eq!(event_ids(&stored(&broker, "UDM").await?).len(), 50);
    Ok(())
}

#[tokio::test]
async fn unfinished_batch_is_not_stored() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    let context = broker.jetstream().await?;
    for (sequence, message) in (1_u32..).zip(events(0..3)) {
        let mut headers = message.headers();
        headers.insert("Nats-Batch-Id", "unfinished");
        headers.insert("Nats-Batch-Sequence", sequence.to_string().as_str());
        broker::request(&context, message.subject().to_string(), headers).await?;
    }
    assert!(stored(&broker, "UDM").await?.is_empty());
    let outcomes = publish(&publisher, events(0..4)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(!duplicates(&outcomes).contains(&true));
    assert_eq!(stored(&broker, "UDM").await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn broken_connection_stores_a_complete_batch_or_none() -> anyhow::Result<()> {
    let (mut broker, publisher) = start(&PROFILE).await?;
    for round in 0..3 {
        let batch = || (0..900).map(|n| event(&format!("r{round}-{n}"), b"{}")).collect::<Vec<_>>();
        let tenant = acme();
        let publishing = publisher.publish_all(&tenant, batch(), deadline(5));
        let (outcomes, ()) = tokio::join!(publishing, async { broker.server.stop() });
        broker.server.restart().await?;
        timeout(10 * SECOND, publisher.ready()).await?;
        let stored_before = stored(&broker, "UDM").await?.len();
        let acknowledged = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert!(stored_before - round * 900 == 0 || stored_before - round * 900 == 900, "{stored_before}");
        assert!(acknowledged <= stored_before - round * 900);
        let retried = publish(&publisher, batch()).await;
        assert!(retried.iter().all(Result::is_ok));
        assert_eq!(stored(&broker, "UDM").await?.len(), (round + 1) * 900);
    }
    Ok(())
}

#[tokio::test]
async fn each_of_several_streams_has_its_own_batch() -> anyhow::Result<()> {
    let streams = EventStreams::new(4).unwrap();
    let (broker, publisher) = start(&Profile { streams, ..PROFILE }).await?;
    let batch: Vec<_> =
        (0..200).map(|n| event_of(&format!("fw-{}", n % 50), &format!("e{n}"), b"{}")).collect();
    let outcomes = publish(&publisher, batch.clone()).await;
    let mut by_stream: HashMap<String, usize> = HashMap::new();
    for outcome in &outcomes {
        *by_stream.entry(outcome.clone().unwrap().stream.to_string()).or_default() += 1;
    }
    assert_eq!(by_stream.len(), 4);
    for (stream, count) in &by_stream {
        let stored = stored(&broker, stream).await?;
        let batches: BTreeSet<_> = stored.iter().map(|message| header(message, "Nats-Batch-Id")).collect();
        assert_eq!((stored.len(), batches.len(), batches.contains(&None)), (*count, 1, false), "{stream}");
    }
    // One duplicate refuses the batch of its stream only.
    let duplicate = outcomes[0].clone()?.stream;
    let again: Vec<_> = std::iter::once(batch[0].clone())
        .chain((200..300).map(|n| event_of(&format!("fw-{}", n % 50), &format!("e{n}"), b"{}")))
        .collect();
    let outcomes = publish(&publisher, again).await;
    assert_eq!(duplicates(&outcomes), [vec![true], vec![false; 100]].concat());
    for stream in by_stream.keys() {
        let last = stored(&broker, stream).await?.pop().unwrap();
        assert_eq!(header(&last, "Nats-Batch-Id").is_none(), **stream == *duplicate, "{stream}");
    }
    Ok(())
}

#[tokio::test]
async fn more_messages_than_a_batch_can_have_are_several_batches() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    let outcomes = publish(&publisher, events(0..2_001)).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let stored = stored(&broker, "UDM").await?;
    assert_eq!(event_ids(&stored), (0..2_001).map(|n| format!("e{n}")).collect::<Vec<_>>());
    let batches: BTreeSet<_> = stored.iter().map(|message| header(message, "Nats-Batch-Id")).collect();
    assert_eq!((batches.len(), batches.contains(&None)), (3, true), "1,000, 1,000 and one event");
    Ok(())
}

#[tokio::test]
async fn batch_above_the_limit_of_unfinished_batches_is_stored_message_by_message() -> anyhow::Result<()> {
    let (broker, publisher) = start(&PROFILE).await?;
    let context = broker.jetstream().await?;
    for n in 0..50 {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Batch-Id", format!("unfinished-{n}").as_str());
        headers.insert("Nats-Batch-Sequence", "1");
        broker::request(&context, "udm.v1.00.acme.LOGIN".to_owned(), headers).await?;
    }
    let outcomes = publish(&publisher, events(0..20)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let stored = stored(&broker, "UDM").await?;
    assert_eq!(event_ids(&stored), (0..20).map(|n| format!("e{n}")).collect::<Vec<_>>());
    assert!(stored.iter().all(|message| header(message, "Nats-Batch-Id").is_none()));
    Ok(())
}

#[tokio::test]
async fn events_that_still_fit_are_stored_if_the_batch_does_not_fit() -> anyhow::Result<()> {
    let (broker, publisher) = start(&Profile { max_bytes: 64 * 1024, ..PROFILE }).await?;
    let payload = vec![b'x'; 20_000];
    let batch = (0..5).map(|n| event(&format!("e{n}"), &payload)).collect();
    let outcomes = publish(&publisher, batch).await;
    assert!(outcomes[0].is_ok());
    assert_eq!(outcomes[4], Err(PublishError::StreamFull));
    let accepted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(stored(&broker, "UDM").await?.len(), accepted);
    Ok(())
}

#[tokio::test]
async fn stream_must_allow_atomic_batches() -> anyhow::Result<()> {
    let broker = Broker::start().await?;
    let context = broker.jetstream().await?;
    let error = bus::verify(&context, &PROFILE).await.unwrap_err().to_string();
    assert!(
        error.contains("UDM has the wrong configuration: allow_atomic: expected at least true"),
        "{error}"
    );
    bus::ensure(&context, &PROFILE).await?;
    bus::verify(&context, &PROFILE).await?;
    // The setting stays when the profile changes: publishers of the old profile can still run.
    bus::ensure(&context, &Profile { durability: Durability::Standard, ..PROFILE }).await?;
    bus::verify(&context, &PROFILE).await?;
    Ok(())
}
