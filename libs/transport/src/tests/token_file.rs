//! A credential in a file, which is replaced while the transport is used.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::cancellation::DEADLINE;
use super::server::{Request, Server, problem};
use crate::{HttpTransport, HttpTransportConfig, Secret, Transport, TransportErrorKind, UdmEvent};

#[tokio::test]
async fn a_token_that_is_replaced_in_its_file_is_sent_with_the_next_request() {
    let server = Server::scripted([]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let transport = server.transport().with_token_file(file.path());
    for token in ["first\n", "second"] {
        std::fs::write(file.path(), token).unwrap();
        assert!(transport.send(&UdmEvent::new("fw")).await.success);
    }
    let sent: Vec<_> =
        server.requests().iter().map(|request| request.headers["authorization"].clone()).collect();
    assert_eq!(sent, ["Bearer first", "Bearer second"]);
    drop(file);
    let error = transport.send(&UdmEvent::new("fw")).await.error.unwrap();
    assert_eq!(error.kind, TransportErrorKind::Configuration);
    assert!(error.message.contains("failed to read the token file"), "{error}");
}

#[tokio::test]
async fn an_empty_token_file_is_retried_and_an_empty_key_is_not() {
    let server = Server::scripted([]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let transport = server.transport().with_token_file(file.path());
    let error = transport.send(&UdmEvent::new("fw")).await.error.unwrap();
    assert_eq!((error.kind, error.retryable), (TransportErrorKind::Configuration, true));
    assert!(!server.clock.pauses().is_empty());
    std::fs::write(file.path(), "new\nold\n").unwrap();
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer new");
    let empty = server.transport_with(|config| config.api_key = Some(Secret::new("")));
    let error = empty.send(&UdmEvent::new("fw")).await.error.unwrap();
    assert_eq!((error.kind, error.retryable), (TransportErrorKind::Configuration, false));
}

/// Sends an event to a service that rejects this number of requests. The file is written before the first request and after each one.
/// Returns whether the event was accepted, and the credentials that were sent.
async fn send_rejected(
    rejected: usize,
    batch: bool,
    token: impl Fn(usize) -> &'static str + Send + Sync + 'static,
) -> (bool, String) {
    let server = Server::scripted(vec![problem(401, "credential_invalid", None); rejected]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let (path, requests) = (file.path().to_owned(), AtomicUsize::new(0));
    std::fs::write(&path, token(0)).unwrap();
    let transport = server.transport().with_token_file(&path).on_request(move |_| {
        let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
        std::fs::write(&path, token(number)).unwrap();
    });
    let event = UdmEvent::new("fw");
    let success = if batch {
        transport.send_batch(&[event]).await.success
    } else {
        transport.send(&event).await.success
    };
    let header = |request: &Request| request.headers["authorization"].to_str().unwrap().to_owned();
    let sent: Vec<String> = server.requests().iter().map(header).collect();
    (success, sent.join(", "))
}

#[tokio::test]
async fn after_a_rejected_token_the_request_is_sent_a_second_time_if_the_file_contains_another_one() {
    let replaced = |number: usize| ["a", "b", "c"][number];
    let unchanged = |_: usize| "a";
    let emptied = |number: usize| ["a", ""][number];
    for batch in [false, true] {
        let (success, sent) = send_rejected(1, batch, replaced).await;
        assert_eq!((success, sent.as_str()), (true, "Bearer a, Bearer b"));
        let (success, sent) = send_rejected(2, batch, replaced).await;
        assert_eq!((success, sent.as_str()), (false, "Bearer a, Bearer b"));
        let (success, sent) = send_rejected(1, batch, unchanged).await;
        assert_eq!((success, sent.as_str()), (false, "Bearer a"));
        let (success, sent) = send_rejected(1, batch, emptied).await;
        assert_eq!((success, sent.as_str()), (false, "Bearer a"));
    }
}

#[cfg(unix)]
#[test]
fn a_token_file_that_blocks_is_a_timeout_and_does_not_keep_the_runtime_from_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("token");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let config = HttpTransportConfig {
        timeout_sec: 0.05,
        max_retries: 0,
        ..HttpTransportConfig::new("http://127.0.0.1:1")
    };
    let transport = HttpTransport::new(config).with_token_file(&fifo);
    let (stopped, result) = std::sync::mpsc::channel();
    // In another thread, so that a runtime that does not stop fails the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let result = runtime.block_on(transport.send(&UdmEvent::new("fw")));
        drop(runtime);
        stopped.send(result).unwrap();
    });
    let error = result.recv_timeout(DEADLINE).unwrap().error.unwrap();
    assert_eq!(error.kind, TransportErrorKind::Timeout);
    assert!(error.message.contains("reading the token file"), "{error}");
}
