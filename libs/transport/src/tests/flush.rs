//! Waiting for the sends in flight before a program ends.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::cancellation::{DEADLINE, until};
use super::server::{Server, Step};
use crate::{OutgoingEvent, Transport, UdmEvent};

#[tokio::test]
async fn flush_waits_for_spawned_sends_also_after_disconnect() {
    for linger in [false, true] {
        let permits = Arc::new(Semaphore::new(0));
        let server = Server::scripted([Step::Wait(Arc::clone(&permits))]).await;
        let mut transport = server.transport();
        if linger {
            transport = transport.with_linger(Duration::from_millis(1)).unwrap();
        }
        let transport = Arc::new(transport);
        let mut sends = JoinSet::new();
        for _ in 0..50 {
            let transport = Arc::clone(&transport);
            sends.spawn(async move { transport.send(&UdmEvent::new("fw")).await.success });
        }
        until(|| server.requests_in_progress() == 1).await;
        transport.disconnect().await;
        assert!(transport.flush(Duration::from_millis(1)).await > 0);
        permits.add_permits(1);
        assert_eq!(transport.flush(DEADLINE).await, 0);
        assert!(sends.join_all().await.into_iter().all(|success| success));
    }
}

#[tokio::test]
async fn a_batch_counts_as_one_send_until_it_ends_or_is_dropped() {
    let server = Server::scripted([Step::Hang, Step::Hang]).await;
    let transport = server.transport();
    let events = vec![UdmEvent::new("fw"); 3];
    let in_flight = || transport.flush(Duration::ZERO);
    let mut batch = transport.send_batch(&events);
    assert!((&mut batch).now_or_never().is_none());
    assert_eq!(in_flight().await, 1);
    let mut pipeline = transport.pipeline(1);
    let slot = pipeline.slot().await;
    pipeline.send(slot, vec![OutgoingEvent::try_from(&events[0]).unwrap()], |_| ());
    until(|| server.requests_in_progress() > 0).await;
    assert_eq!(in_flight().await, 2);
    drop(batch);
    assert_eq!(in_flight().await, 1);
    drop(pipeline);
    assert_eq!(transport.flush(DEADLINE).await, 0);
}
