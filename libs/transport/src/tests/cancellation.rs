//! Dropping the future of a send ends its work: its request is canceled, no request follows, and no task remains.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select};

use super::server::{Server, Step};
use crate::{HttpTransport, Transport, UdmEvent};

/// Time limit of a condition.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for a condition. Lets other tasks run in between.
pub(super) async fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "the condition is not met");
        tokio::task::yield_now().await;
    }
}

type Send = fn(&HttpTransport) -> BoxFuture<'_, ()>;

fn single(transport: &HttpTransport) -> BoxFuture<'_, ()> {
    async { drop(transport.send(&UdmEvent::new("fw")).await) }.boxed()
}

fn batch(transport: &HttpTransport) -> BoxFuture<'_, ()> {
    async { drop(transport.send_batch(&vec![UdmEvent::new("fw"); 3000]).await) }.boxed()
}

fn concurrent(transport: &HttpTransport) -> BoxFuture<'_, ()> {
    async {
        let events = ["a", "b", "c"].map(|id| UdmEvent::new("fw").with_event_id(id));
        drop(join_all(events.iter().map(|event| transport.send(event))).await);
    }
    .boxed()
}

const SENDS: [(Send, bool); 4] = [(single, false), (batch, false), (single, true), (concurrent, true)];

fn transport(server: &Server, linger: bool) -> HttpTransport {
    let transport = server.transport();
    if linger { transport.with_linger(Duration::from_millis(1)).unwrap() } else { transport }
}

/// Polls a send until the condition is met, and drops it.
async fn drop_when(send: BoxFuture<'_, ()>, condition: impl Fn() -> bool) {
    select(send, pin!(until(condition))).await;
}

#[tokio::test]
async fn dropping_a_send_cancels_its_request() {
    for (send, linger) in SENDS {
        let server = Server::scripted([Step::Hang]).await;
        let transport = transport(&server, linger);
        drop_when(send(&transport), || server.requests_in_progress() == 1).await;
        until(|| server.requests_in_progress() == 0).await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn dropping_a_send_in_a_pause_leaves_no_task_and_sends_nothing_later() {
    // The server has its own runtime, so that the tasks of the transport can be counted.
    let of_server =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (send, linger) in SENDS {
        let server =
            Arc::new(of_server.block_on(Server::scripted([Step::Respond(503, None, String::new())])));
        server.clock.stop();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let transport = transport(&server, linger);
            drop_when(send(&transport), || !server.clock.pauses().is_empty()).await;
            // Idle connections are tasks too.
            transport.disconnect().await;
            until(|| tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0).await;
        });
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn dropping_a_batch_between_two_requests_sends_no_further_request() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::scripted([]).await;
        let transport = server.transport();
        let first_request = tokio::sync::Notify::new();
        let events = vec![UdmEvent::new("fw"); 3000];
        let send = transport.send_batch_with_progress(&events, |_| first_request.notify_one());
        let dropped = tokio::select! {
            biased;
            () = first_request.notified() => true,
            _ = send => false,
        };
        assert!(dropped);
        // The server has handled everything that was sent before this request.
        assert!(transport.send(&UdmEvent::new("fw")).await.success);
        assert!(server.requests().len() <= 3, "{}", server.requests().len());
    });
}
