//! Concurrent sends that are collected into one request.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select};
use futures::{FutureExt, poll};
use tokio::sync::Semaphore;

use super::cancellation::until;
use super::server::{Rules, Server, Step, problem};
use crate::{HttpTransport, SendResult, Transport, TransportErrorKind, UdmEvent};

const HOUR: Duration = Duration::from_hours(1);

#[expect(clippy::needless_pass_by_value, reason = "the calls pass temporary values")]
fn event(id: impl ToString) -> UdmEvent {
    UdmEvent::new("fw").with_event_id(id.to_string())
}

fn transport(server: &Server) -> HttpTransport {
    server.transport().with_linger(Duration::from_millis(5)).unwrap()
}

async fn send_all(
    transport: &HttpTransport,
    ids: impl IntoIterator<Item = impl ToString>,
) -> Vec<SendResult> {
    let events: Vec<_> = ids.into_iter().map(event).collect();
    join_all(events.iter().map(|event| transport.send(event))).await
}

#[test]
fn linger_is_one_to_five_milliseconds() {
    for (delay, valid) in [(0, false), (999, false), (1000, true), (5000, true), (5001, false)] {
        let transport = HttpTransport::new(crate::HttpTransportConfig::new("http://a"));
        let error = transport.with_linger(Duration::from_micros(delay)).err();
        assert_eq!(error.map(|error| error.kind), (!valid).then_some(TransportErrorKind::Configuration));
    }
}

#[tokio::test]
async fn concurrent_sends_become_one_request_in_the_order_of_the_calls() {
    let server = Server::scripted([]).await;
    let results = send_all(&transport(&server), 0..100).await;
    let ids: Vec<_> = (0..100).map(|id| id.to_string()).collect();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].ids(), ids);
    assert!(results.iter().all(|result| result.success && result.response_time_ms.is_some()));
    assert_eq!(results.into_iter().map(|result| result.event_id).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn sends_are_not_collected_by_default() {
    let server = Server::scripted([]).await;
    send_all(&server.transport(), 0..3).await;
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn sends_in_sequence_keep_their_order() {
    let server = Server::scripted([]).await;
    let transport = transport(&server);
    for id in 0..3 {
        assert!(transport.send(&event(id)).await.success);
    }
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.path == "/api/v1/events"));
    assert_eq!(
        requests.iter().map(|request| super::server::id_of(&request.body)).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
}

#[tokio::test]
async fn full_group_is_sent_without_the_delay() {
    let server = Server::scripted([]).await;
    let transport = server.transport().with_any_linger(HOUR);
    assert!(send_all(&transport, 0..500).await.iter().all(|result| result.success));
    assert_eq!(server.requests().len(), 1);

    let large = ["a", "b", "c", "d"].map(|id| event(id).with_field("x", "x".repeat(300_000)));
    assert!(
        join_all(large.iter().map(|event| transport.send(event))).await.iter().all(|result| result.success)
    );
    assert_eq!(server.requests()[1].ids().len(), 4);
}

#[tokio::test]
async fn each_send_gets_the_error_that_it_has_alone() {
    let rules = Rules { rejected_ids: ["bad".to_owned()].into(), ..Rules::default() };
    let server = Server::with_rules(rules, []).await;
    let results = send_all(&transport(&server), ["a", "bad", "b"]).await;
    let success: Vec<_> = results.iter().map(|result| result.success).collect();
    assert_eq!(success, [true, false, true]);
    assert_eq!(server.requests().len(), 1);

    let server = Server::scripted([Step::RejectWith(207, 1, "source_not_allowed")]).await;
    let error = send_all(&transport(&server), ["a", "b"]).await.remove(1).error.unwrap();
    assert_eq!((error.status, error.code.as_deref()), (Some(403), Some("source_not_allowed")));
    assert_eq!(error.retry_after, None);
}

#[tokio::test]
async fn error_of_the_request_is_the_error_of_each_send() {
    let server = Server::scripted([problem(401, "credential_invalid", None)]).await;
    for result in send_all(&transport(&server), 0..3).await {
        let error = result.error.unwrap();
        assert_eq!((error.status, error.code.as_deref()), (Some(401), Some("credential_invalid")));
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_panic_of_the_function_for_requests_is_an_error_of_each_send_that_names_it() {
    let server = Server::scripted([]).await;
    let transport = transport(&server).on_request(|_| panic!("in the function"));
    for result in send_all(&transport, 0..3).await {
        let error = result.error.unwrap();
        assert_eq!(error.kind, TransportErrorKind::Connection);
        assert!(error.message.contains("`on_request` has panicked"), "{error}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn accepted_send_does_not_wait_for_the_retry_of_another() {
    let server = Server::scripted([Step::Reject(207, vec![(1, true)]), Step::Hang]).await;
    let transport = transport(&server);
    let (a, b) = (event("a"), event("b"));
    let (first, mut second) = (transport.send(&a), pin!(transport.send(&b)));
    let (result, second) = match select(first, second.as_mut()).await {
        futures::future::Either::Left(left) => left,
        futures::future::Either::Right(_) => panic!("the second send has no response yet"),
    };
    assert!(result.success);
    assert!(second.now_or_never().is_none());
}

#[tokio::test]
async fn event_of_a_dropped_send_is_not_sent_and_the_others_are() {
    let server = Server::scripted([]).await;
    let transport = transport(&server);
    let events = ["a", "b", "c"].map(event);
    let [first, second, third] = events.each_ref().map(|event| transport.send(event));
    let (mut first, mut second) = (first, Some(second));
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(second.as_mut().unwrap()).is_pending());
    drop(second.take());
    let (first, third) = tokio::join!(first, third);
    assert!(first.success && third.success);
    assert_eq!(server.requests()[0].ids(), ["a", "c"]);
}

#[tokio::test]
async fn dropping_a_send_with_a_request_in_flight_does_not_affect_the_others() {
    for dropped in 0..2 {
        let permits = Arc::new(Semaphore::new(0));
        let server = Server::scripted([Step::Wait(permits.clone()), Step::Accept]).await;
        let transport = transport(&server);
        let events = ["a", "b"].map(event);
        let mut sends: Vec<_> = events.iter().map(|event| transport.send(event)).collect();
        let all = join_all(sends.iter_mut());
        select(all, pin!(until(|| server.requests_in_progress() == 1))).await;
        drop(sends.remove(dropped));
        permits.add_permits(1);
        assert!(sends.remove(0).await.success);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn send_after_all_others_were_dropped_is_sent() {
    let server = Server::scripted([]).await;
    let transport = server.transport().with_any_linger(HOUR);
    let dropped = event("dropped");
    assert!(poll!(pin!(transport.send(&dropped))).is_pending());
    let results = send_all(&transport, 0..500).await;
    assert!(results.iter().all(|result| result.success));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].ids().len(), 500);
}

#[tokio::test]
async fn second_event_with_the_same_id_is_in_another_request() {
    let server = Server::scripted([]).await;
    let results = send_all(&transport(&server), ["a", "b", "a"]).await;
    assert!(results.iter().all(|result| result.success));
    let mut sizes: Vec<_> = server.requests().iter().map(|request| request.path.clone()).collect();
    sizes.sort();
    assert_eq!(sizes, ["/api/v1/events", "/api/v1/events/batch"]);
}

#[test]
fn a_send_waits_for_no_group_of_another_runtime_and_fails_when_its_own_stops() {
    let of_server =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = of_server.block_on(Server::scripted([]));
    let transport = server.transport().with_any_linger(HOUR);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = event("a");
    let stopped = runtime();
    let mut opened = transport.send(&first);
    stopped.block_on(async { assert!(poll!(&mut opened).is_pending()) });
    let running = runtime();
    running.block_on(async {
        assert!(send_all(&transport, 0..500).await.iter().all(|result| result.success));
    });
    drop(stopped);
    assert_eq!(running.block_on(opened).error.unwrap().kind, TransportErrorKind::Connection);
}
