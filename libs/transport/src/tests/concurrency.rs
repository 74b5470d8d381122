//! The number of requests in flight is limited.

use std::sync::Arc;

use axum::http::Method;
use futures::future::join_all;
use tokio::sync::Semaphore;

use super::cancellation::until;
use super::server::{Server, Step, problem};
use crate::{HttpTransport, Transport, TransportErrorKind, UdmEvent};

fn event() -> UdmEvent {
    UdmEvent::new("fw")
}

/// Sends more events than are allowed at the same time. Returns the number of requests before the first response.
async fn number_in_flight(change: impl FnOnce(HttpTransport) -> HttpTransport, limit: usize) -> usize {
    let permits = Arc::new(Semaphore::new(0));
    // The next requests are accepted at once.
    let server = Server::scripted(vec![Step::Wait(Arc::clone(&permits)); limit]).await;
    let transport = change(server.transport());
    let events: Vec<_> = (0..3 * limit).map(|_| event()).collect();
    let sends = join_all(events.iter().map(|event| transport.send(event)));
    let release = async {
        until(|| server.requests_in_progress() >= limit).await;
        // The server has handled everything that was sent before this request.
        server.transport().connect().await.unwrap();
        let posts = server.requests().iter().filter(|request| request.method == Method::POST).count();
        permits.add_permits(limit);
        posts
    };
    let (results, posts) = tokio::join!(sends, release);
    assert!(results.iter().all(|result| result.success));
    posts
}

#[tokio::test]
async fn by_default_sixty_four_requests_are_in_flight() {
    assert_eq!(number_in_flight(|transport| transport, 64).await, 64);
}

#[tokio::test]
async fn the_number_of_requests_in_flight_can_be_changed() {
    let three = |transport: HttpTransport| transport.with_max_concurrent_requests(3).unwrap();
    assert_eq!(number_in_flight(three, 3).await, 3);
    for number in [0, 1_000_001] {
        let transport = HttpTransport::new(crate::HttpTransportConfig::new("http://a"));
        let error = transport.with_max_concurrent_requests(number).err();
        assert_eq!(error.map(|error| error.kind), Some(TransportErrorKind::Configuration), "{number}");
    }
}

#[tokio::test]
async fn a_send_in_a_pause_does_not_count() {
    let server = Server::scripted([problem(503, "overloaded", None)]).await;
    server.clock.stop();
    let transport = server.transport().with_max_concurrent_requests(1).unwrap();
    let (first, second) = (event(), event());
    tokio::select! {
        result = transport.send(&first) => panic!("{result:?}"),
        result = async {
            until(|| !server.clock.pauses().is_empty()).await;
            transport.send(&second).await
        } => assert!(result.success),
    }
}
