//! What a program that embeds the library relies on: pointers to transports, changes of the mock, and connections that broke.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::server::{Server, Step};
use crate::{
    HttpTransport, HttpTransportConfig, MockBehavior, MockTransport, Transport, TransportErrorKind, UdmEvent,
};

/// A part of a program that is generic over its transport.
struct Reporter<T: Transport>(T);

impl<T: Transport> Reporter<T> {
    async fn report(&self) -> bool {
        self.0.send(&UdmEvent::new("fw")).await.success
    }
}

#[tokio::test]
async fn pointers_to_a_transport_are_transports() {
    let mock = Arc::new(MockTransport::default());
    assert!(Reporter(Arc::clone(&mock)).report().await);
    assert!(Reporter(&*mock).report().await);
    let boxed: Box<dyn Transport> = Box::new(Arc::clone(&mock));
    assert!(Reporter(boxed).report().await);
    assert_eq!(mock.sent_events().len(), 3);
}

#[tokio::test]
async fn the_mock_simulates_an_outage_and_its_end() {
    let mock = MockTransport::default();
    mock.set_behavior(MockBehavior { fail_all: true, ..MockBehavior::default() });
    assert!(!mock.send(&UdmEvent::new("fw")).await.success);
    mock.set_behavior(MockBehavior::default());
    assert!(mock.send(&UdmEvent::new("fw")).await.success);
    mock.clear();
    assert!(mock.sent_events().is_empty());
}

#[tokio::test]
async fn a_quarantined_event_is_a_success_and_is_counted() {
    let result = |index: usize, status: &str| {
        serde_json::json!({
            "index": index, "event_id": index.to_string(), "status": status, "code": "validation_failed",
            "server_event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        })
    };
    let answer = serde_json::json!({
        "batch_id": "01890a5d-ac96-774b-bcce-b302099a8057", "total_events": 2, "successful_events": 2,
        "quarantined_events": 1, "failed_events": 0, "results": [result(0, "accepted"), result(1, "quarantined")],
    });
    let server = Server::scripted([Step::Respond(202, None, answer.to_string())]).await;
    let urls = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&urls);
    let transport = server
        .transport()
        .on_request(move |request| log.lock().push(request.url.to_owned()))
        .quarantine_invalid();
    let mut counts = (0, 0);
    let events = ["0", "1"].map(|id| UdmEvent::new("fw").with_event_id(id));
    let sent = transport
        .send_batch_with_progress(&events, |progress| counts = (progress.accepted, progress.quarantined));
    assert!(sent.await.success);
    assert_eq!(counts, (2, 1));
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    let urls = urls.lock();
    assert!(urls[0].ends_with("/api/v1/events/batch?invalid=quarantine"), "{urls:?}");
    assert!(urls[1].ends_with("/api/v1/events?invalid=quarantine"), "{urls:?}");
}

/// Answers the first request of a connection, and then reads without an answer. Counts the connections.
async fn answer_once(mut connection: TcpStream) {
    let mut request = vec![0; 64 * 1024];
    let mut length = 0;
    while !request[..length].ends_with(b"}") {
        length += connection.read(&mut request[length..]).await.unwrap();
    }
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let body = format!(
        r#"{{"event_id":"e","server_event_id":"{id}","status":"accepted","received_at":"2026-01-31T12:00:00Z","duplicate":false}}"#
    );
    let head = format!(
        "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).await.unwrap();
    while connection.read(&mut request).await.is_ok_and(|length| length > 0) {}
}

#[tokio::test]
async fn after_a_connection_without_an_answer_the_next_attempt_uses_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::clone(&connections);
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut answering = JoinSet::new();
        while let Ok((connection, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            answering.spawn(answer_once(connection));
        }
    });
    let config =
        HttpTransportConfig { timeout_sec: 0.3, ..HttpTransportConfig::new(format!("http://{address}")) };
    let transport = Arc::new(HttpTransport::new(config));
    // Leaves three idle connections, none of which answers again.
    let first = [(); 3].map(|()| {
        let transport = Arc::clone(&transport);
        async move { transport.send(&UdmEvent::new("fw")).await.success }
    });
    assert_eq!(futures::future::join_all(first).await, [true; 3]);
    assert!(transport.send(&UdmEvent::new("fw")).await.success, "one retry is enough");
    assert_eq!(connections.load(Ordering::Relaxed), 4);
}

/// A runtime of one thread, which works only inside `block_on`.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_transport_works_in_several_runtimes_also_while_the_first_one_is_idle() {
    let own = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = own.block_on(Server::scripted([]));
    for transport in
        [server.transport(), server.transport().with_linger(std::time::Duration::from_millis(1)).unwrap()]
    {
        let (first, second) = (runtime(), runtime());
        for runtime in [&first, &second, &first] {
            assert!(runtime.block_on(transport.send(&UdmEvent::new("fw"))).success);
        }
    }
    assert!(server.clock.pauses().is_empty(), "no send waits for a connection of another runtime");
}

#[test]
fn without_a_runtime_a_send_is_an_error() {
    let transport = HttpTransport::new(HttpTransportConfig::new("http://127.0.0.1:1"));
    let result = transport.send(&UdmEvent::new("fw")).now_or_never().unwrap();
    let error = result.error.unwrap();
    assert_eq!(error.kind, TransportErrorKind::Configuration);
    assert!(error.message.contains("Tokio runtime"), "{error}");
}

#[test]
fn the_documentation_starts_with_the_example_that_is_compiled() {
    let (document, example) =
        (include_str!("../../../../docs/producers.md"), include_str!("../../examples/send_events.rs"));
    let program = document.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```"));
    assert_eq!(program.unwrap().0, example);
}
