//! Batches of a pipeline are sent concurrently, and their results are in the order of the batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use tokio::sync::Semaphore;

use super::cancellation::until;
use super::server::{Server, Step};
use crate::{BatchPipeline, OutgoingEvent, UdmEvent};

fn batch(id: &str) -> Vec<OutgoingEvent> {
    vec![OutgoingEvent::try_from(&UdmEvent::new("fw").with_event_id(id)).unwrap()]
}

async fn next_id(pipeline: &mut BatchPipeline<Vec<OutgoingEvent>>) -> Option<String> {
    let sent = pipeline.next().await?;
    assert_eq!(sent.result.results[0].event_id, sent.batch[0].event_id());
    Some(sent.batch[0].event_id().to_owned())
}

async fn send(pipeline: &mut BatchPipeline<Vec<OutgoingEvent>>, id: &str) {
    let slot = pipeline.slot().await;
    pipeline.send(slot, batch(id), |_| ());
}

#[tokio::test]
async fn results_have_the_order_of_the_batches() {
    let permits = Arc::new(Semaphore::new(0));
    let server = Server::scripted([Step::Wait(Arc::clone(&permits))]).await;
    let mut pipeline = server.transport().pipeline(2);
    send(&mut pipeline, "slow").await;
    until(|| server.requests_in_progress() == 1).await;
    send(&mut pipeline, "fast").await;
    // The slot of the fast batch is free again, although its result waits.
    send(&mut pipeline, "next").await;
    until(|| server.accepted("fast") && server.accepted("next")).await;
    assert_eq!(next_id(&mut pipeline).now_or_never(), None);
    permits.add_permits(1);
    for expected in [Some("slow"), Some("fast"), Some("next"), None] {
        assert_eq!(next_id(&mut pipeline).await.as_deref(), expected);
    }
}

#[tokio::test]
async fn requests_and_waiting_results_are_limited() {
    let server = Server::scripted([Step::Hang]).await;
    let mut pipeline = server.transport().pipeline(1);
    send(&mut pipeline, "a").await;
    assert_eq!((pipeline.requests(), pipeline.slot().now_or_never().is_none()), (1, true));
    assert_eq!(format!("{pipeline:?}"), "BatchPipeline { concurrency: 1, .. }");

    let permits = Arc::new(Semaphore::new(0));
    let server = Server::scripted([Step::Wait(Arc::clone(&permits))]).await;
    let mut pipeline = server.transport().pipeline(2);
    send(&mut pipeline, "slow").await;
    until(|| server.requests_in_progress() == 1).await;
    for id in 1..8 {
        send(&mut pipeline, &id.to_string()).await;
    }
    until(|| server.requests_in_progress() == 1).await;
    assert!(pipeline.slot().now_or_never().is_none(), "eight batches wait for the first one");
    permits.add_permits(1);
    assert_eq!(next_id(&mut pipeline).await.as_deref(), Some("slow"));
    assert!(pipeline.slot().now_or_never().is_some());
}

#[tokio::test]
async fn a_failed_batch_does_not_affect_the_others() {
    let server = Server::scripted([Step::Respond(400, None, String::new())]).await;
    let mut pipeline = server.transport().pipeline(2);
    send(&mut pipeline, "a").await;
    until(|| server.requests().len() == 1).await;
    send(&mut pipeline, "b").await;
    let successes = [pipeline.next().await, pipeline.next().await].map(|sent| sent.unwrap().result.success);
    assert_eq!(successes, [false, true]);
}

#[tokio::test]
async fn the_oldest_batch_keeps_its_place_until_it_is_returned() {
    let server = Server::scripted([]).await;
    let mut pipeline = server.transport().pipeline(1);
    let (slot, ended) = (pipeline.slot().await, Arc::new(AtomicBool::new(false)));
    let end = Arc::clone(&ended);
    // The task ends with the last progress.
    pipeline.send(slot, batch("a"), move |_| end.store(true, Ordering::Relaxed));
    until(|| ended.load(Ordering::Relaxed)).await;
    assert!(pipeline.slot().now_or_never().is_none());
    assert_eq!(next_id(&mut pipeline).await.as_deref(), Some("a"));
    assert!(pipeline.slot().now_or_never().is_some());
}

#[tokio::test]
async fn a_failed_batch_keeps_its_place_until_it_is_returned() {
    let permits = Arc::new(Semaphore::new(0));
    let reject = || Step::Respond(400, None, String::new());
    let server = Server::scripted([Step::Wait(Arc::clone(&permits)), reject()]).await;
    let mut pipeline = server.transport().pipeline(2);
    send(&mut pipeline, "slow").await;
    until(|| server.requests_in_progress() == 1).await;
    let (slot, ended) = (pipeline.slot().await, Arc::new(AtomicBool::new(false)));
    let end = Arc::clone(&ended);
    // The task ends with the last progress.
    pipeline.send(slot, batch("rejected"), move |_| end.store(true, Ordering::Relaxed));
    until(|| ended.load(Ordering::Relaxed)).await;
    assert!(pipeline.slot().now_or_never().is_none());
    permits.add_permits(1);
    for expected in ["slow", "rejected"] {
        assert_eq!(next_id(&mut pipeline).await.as_deref(), Some(expected));
    }
    assert_eq!(pipeline.requests(), 0);
}

#[tokio::test]
async fn dropping_a_pipeline_cancels_its_requests() {
    let server = Server::scripted([Step::Hang, Step::Hang]).await;
    let mut pipeline = server.transport().pipeline(2);
    send(&mut pipeline, "a").await;
    send(&mut pipeline, "b").await;
    until(|| server.requests_in_progress() == 2).await;
    drop(pipeline);
    until(|| server.requests_in_progress() == 0).await;
}
