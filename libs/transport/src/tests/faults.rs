//! Faults of every kind, and which of them are tried again.

use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::server::{Rules, Server, Step, problem};
use crate::{
    HttpTransport, HttpTransportConfig, Secret, Transport, TransportError, TransportErrorKind, UdmEvent,
};

fn event() -> UdmEvent {
    UdmEvent::new("fw").with_event_id("a")
}

/// The error of one event sent alone; of one sent as a batch it must be the same.
async fn error_of(script: &[Step], change: impl Fn(&mut HttpTransportConfig)) -> (TransportError, usize) {
    let server = Server::scripted(script.to_vec()).await;
    let error = server.transport_with(&change).send(&event()).await.error.unwrap();
    let requests = server.requests().len();

    let server = Server::scripted(script.to_vec()).await;
    let batch = server.transport_with(&change).send_batch(&[event()]).await;
    // The message names the server, which is another one.
    let unnamed = |error: &TransportError| TransportError { message: String::new(), ..error.clone() };
    assert_eq!(batch.results[0].error.as_ref().map(unnamed), Some(unnamed(&error)));
    assert_eq!(batch.failed_events, 1);
    assert_eq!(server.requests().len(), requests);
    (error, requests)
}

#[tokio::test]
async fn passing_faults_are_tried_again_with_the_same_bytes() {
    let mut passing: Vec<_> = [408, 429, 502, 503, 504].map(|status| problem(status, "code", None)).into();
    passing.push(Step::BreakOff);
    for step in passing {
        for batch in [false, true] {
            let server = Server::scripted([step.clone()]).await;
            let transport = server.transport();
            let success = if batch {
                transport.send_batch(&[UdmEvent::new("fw")]).await.success
            } else {
                transport.send(&UdmEvent::new("fw")).await.success
            };
            let requests = server.requests();
            assert!(success, "{step:?}");
            assert_eq!(requests.len(), 2, "{step:?}");
            assert_eq!(requests[0].body, requests[1].body);
        }
    }
}

#[tokio::test]
async fn lasting_faults_are_not() {
    for status in [301, 400, 401, 403, 404, 405, 409, 413, 415, 422, 500, 501] {
        let (error, requests) = error_of(&[problem(status, "code", None)], |_| ()).await;
        assert_eq!(requests, 1, "{status}");
        assert_eq!((error.kind, error.status), (TransportErrorKind::Status, Some(status)));
        assert!(!error.retryable);
    }
}

#[tokio::test]
async fn retries_are_counted_after_the_first_attempt() {
    for max_retries in 0..4 {
        let script = vec![problem(503, "overloaded", None); 9];
        let (error, requests) = error_of(&script, |config| config.max_retries = max_retries).await;
        assert_eq!(requests, max_retries as usize + 1);
        assert_eq!(error.code.as_deref(), Some("overloaded"));
        assert!(error.retryable);
    }
}

#[tokio::test]
async fn a_problem_is_told_whole() {
    let (error, _) = error_of(&[problem(422, "validation_failed", None)], |_| ()).await;
    assert_eq!(error.code.as_deref(), Some("validation_failed"));
    assert_eq!(error.request_id.as_deref(), Some("r-1"));
    assert_eq!(error.message, "Title: Detail.; wrong (at /p)");
    assert_eq!(error.to_string(), error.message);
}

#[tokio::test]
async fn a_proxys_page_is_an_error_with_its_status() {
    let page = Step::Say(502, None, "<html>Bad gateway</html>".into());
    let (error, requests) = error_of(&[page.clone(), page], |config| config.max_retries = 1).await;
    assert_eq!(requests, 2);
    assert_eq!((error.kind, error.status, error.code), (TransportErrorKind::Status, Some(502), None));
    assert_eq!(error.request_id.as_deref(), Some("r-header"));
}

#[tokio::test]
async fn a_success_that_is_not_the_services_is_not_believed() {
    for body in ["<html>Welcome</html>", "", "{}", "[]", "null"] {
        let (error, requests) = error_of(&[Step::Say(200, None, body.into())], |_| ()).await;
        assert_eq!((error.kind, error.retryable, requests), (TransportErrorKind::Protocol, false, 1));
    }
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let accepted = r#"{"event_id":"a","server_event_id":"00000000-0000-0000-0000-000000000000","status":"accepted",
        "duplicate":false,"received_at":"2026-11-21T00:00:00Z"}"#;
    for (padding, success) in [(0, true), (9 * 1024 * 1024, false)] {
        let body = format!("{accepted}{}", " ".repeat(padding));
        let server = Server::scripted([Step::Say(202, None, body)]).await;
        let result = server.transport().send(&event()).await;
        assert_eq!(result.success, success);
        assert_eq!(result.error.map(|error| error.kind), (!success).then_some(TransportErrorKind::Protocol));
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_a_timeout_of_each_attempt() {
    let (error, requests) = error_of(&[Step::Hang, Step::Hang], |config| {
        config.timeout_sec = 0.5;
        config.max_retries = 1;
    })
    .await;
    assert_eq!((error.kind, error.retryable, requests), (TransportErrorKind::Timeout, true, 2));
}

#[tokio::test]
async fn an_attempt_after_a_timeout_can_succeed() {
    let server = Server::scripted([Step::Hang]).await;
    assert!(server.transport_with(|config| config.timeout_sec = 0.5).send(&event()).await.success);
}

/// Bound and not listening: the port refuses connections, and nobody else can take it.
fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn nobody_listening_is_a_connection_fault_with_advice() {
    let closed = closed_port();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    let transport =
        HttpTransport::new(HttpTransportConfig { max_retries: 0, ..HttpTransportConfig::new(&endpoint) });

    let error = transport.connect().await.unwrap_err();
    assert_eq!((error.kind, error.retryable), (TransportErrorKind::Connection, true));
    assert!(error.message.contains(&endpoint), "{error}");
    assert!(error.message.contains("refused"), "{error}");
    assert!(error.message.contains("check the address"), "{error}");
    assert!(!transport.health_check().await);
    assert_eq!(transport.send(&event()).await.error, Some(error));
}

#[tokio::test]
async fn a_connection_that_closes_without_an_answer_is_a_connection_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            drop(connection);
        }
    });
    let transport =
        HttpTransport::new(HttpTransportConfig { max_retries: 0, ..HttpTransportConfig::new(endpoint) });
    assert_eq!(transport.connect().await.unwrap_err().kind, TransportErrorKind::Connection);
    assert_eq!(transport.send(&event()).await.error.unwrap().kind, TransportErrorKind::Connection);
}

#[tokio::test]
async fn a_service_that_is_not_ready_says_so_when_connecting() {
    let server = Server::with_rules(Rules { unhealthy: true, ..Rules::default() }, []).await;
    let error = server.transport().connect().await.unwrap_err();
    assert_eq!((error.status, error.code.as_deref()), (Some(503), Some("dependency_unavailable")));
    assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_an_error_and_sends_nothing() {
    let changes: [fn(&mut HttpTransportConfig); 6] = [
        |config| config.endpoint = "127.0.0.1".into(),
        |config| config.api_key = Some(Secret::new("line\nbreak")),
        |config| config.timeout_sec = 0.0,
        |config| config.timeout_sec = -1.0,
        |config| config.timeout_sec = f64::NAN,
        |config| config.timeout_sec = f64::INFINITY,
    ];
    let server = Server::scripted([]).await;
    for change in changes {
        let transport = server.transport_with(change);
        let error = transport.connect().await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (TransportErrorKind::Configuration, false));
        assert!(!transport.health_check().await);
        assert_eq!(transport.send(&event()).await.error.as_ref(), Some(&error));
        assert_eq!(transport.send_batch(&[event()]).await.results[0].error, Some(error));
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_client_for_https_can_be_made_though_the_process_chose_no_tls_provider() {
    let closed = closed_port();
    let endpoint = format!("https://{}", closed.local_addr().unwrap());
    let transport = HttpTransport::new(HttpTransportConfig::new(endpoint));
    assert_eq!(transport.connect().await.unwrap_err().kind, TransportErrorKind::Connection);
}
