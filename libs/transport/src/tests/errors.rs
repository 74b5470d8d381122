//! Errors of every kind, and whether they are retryable.

use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::server::{Rules, Server, Step, problem, problem_at};
use crate::{
    HttpTransport, HttpTransportConfig, Secret, Transport, TransportError, TransportErrorKind, UdmEvent,
};

fn event() -> UdmEvent {
    UdmEvent::new("fw").with_event_id("a")
}

/// Error and number of requests of one event. Asserts that they are the same for a batch of one event.
async fn error_of(script: &[Step], change: impl Fn(&mut HttpTransportConfig)) -> (TransportError, usize) {
    let server = Server::scripted(script.to_vec()).await;
    let error = server.transport_with(&change).send(&event()).await.error.unwrap();
    let requests = server.requests().len();

    let server = Server::scripted(script.to_vec()).await;
    let batch = server.transport_with(&change).send_batch(&[event()]).await;
    // The messages differ in the address of the server.
    let without_message = |error: &TransportError| TransportError { message: String::new(), ..error.clone() };
    assert_eq!(batch.results[0].error.as_ref().map(without_message), Some(without_message(&error)));
    assert_eq!(batch.failed_events, 1);
    assert_eq!(server.requests().len(), requests);
    (error, requests)
}

#[tokio::test]
async fn other_statuses_are_not_retried() {
    for status in [301, 400, 401, 403, 404, 405, 409, 413, 415, 422, 500, 501] {
        let (error, requests) = error_of(&[problem(status, "code", None)], |_| ()).await;
        assert_eq!(requests, 1, "{status}");
        assert_eq!((error.kind, error.status), (TransportErrorKind::Status, Some(status)));
        assert!(!error.retryable);
    }
}

#[tokio::test]
async fn error_contains_all_fields_of_the_problem() {
    let (error, _) = error_of(&[problem(422, "validation_failed", None)], |_| ()).await;
    assert_eq!(error.code.as_deref(), Some("validation_failed"));
    assert_eq!(error.request_id.as_deref(), Some("r-1"));
    assert_eq!(error.message, "Title: Detail.; wrong (at /p)");
    assert_eq!(error.to_string(), error.message);
}

#[tokio::test]
async fn an_error_of_the_whole_event_has_no_position() {
    let Step::Respond(status, _, body) = problem(422, "validation_failed", None) else { panic!() };
    let script = [Step::Respond(status, None, body.replace("\"/p\"", "\"\""))];
    let (error, _) = error_of(&script, |_| ()).await;
    assert_eq!(error.message, "Title: Detail.; wrong");
}

#[tokio::test]
async fn a_request_without_a_credential_is_named_as_the_cause() {
    for (key, named) in [(None, true), (Some(Secret::new("svc_ak_1")), false)] {
        let script = [problem(401, "credential_invalid", None)];
        let (error, _) = error_of(&script, |config| config.api_key.clone_from(&key)).await;
        assert_eq!(error.message.contains("the request had no credential: set `api_key`"), named, "{error}");
    }
}

#[tokio::test]
async fn error_page_of_a_proxy_is_a_status_error() {
    let page = Step::Respond(502, None, "<html>Bad gateway</html>".into());
    let (error, requests) = error_of(&[page.clone(), page], |config| config.max_retries = 1).await;
    assert_eq!(requests, 2);
    assert_eq!((error.kind, error.status, error.code), (TransportErrorKind::Status, Some(502), None));
    assert_eq!(error.request_id.as_deref(), Some("r-header"));
}

#[tokio::test]
async fn a_path_that_the_service_does_not_know_is_a_wrong_address_and_no_missing_object() {
    let server = Server::scripted([problem_at("/api/v1/events", 404, "not_found", None)]).await;
    let error = server.transport().send(&event()).await.error.unwrap();
    assert_eq!((error.kind, error.code.as_deref()), (TransportErrorKind::Status, Some("not_found")));

    let transport = server.transport_with(|config| config.endpoint.push_str("/wrong"));
    let batch = transport.send_batch(&[event()]).await;
    for (error, path) in [
        (transport.send(&event()).await.error, "/events"),
        (batch.results[0].error.clone(), "/events/batch"),
        (transport.connect().await.err(), "/health"),
    ] {
        let error = error.unwrap();
        assert_eq!((error.kind, error.retryable), (TransportErrorKind::Protocol, false), "{error}");
        assert_eq!((error.status, error.code.as_deref()), (Some(404), None), "{error}");
        assert!(error.message.contains(&format!("no path /wrong/api/v1{path};")), "{error}");
    }
}

#[tokio::test]
async fn unexpected_body_with_a_success_status_is_a_protocol_error() {
    for body in ["<html>Welcome</html>", "", "{}", "[]", "null"] {
        let (error, requests) = error_of(&[Step::Respond(200, None, body.into())], |_| ()).await;
        assert_eq!((error.kind, error.retryable, requests), (TransportErrorKind::Protocol, false, 1));
    }
}

#[tokio::test]
async fn response_above_the_limit_is_a_protocol_error() {
    let accepted = r#"{"event_id":"a","server_event_id":"00000000-0000-0000-0000-000000000000","status":"accepted",
        "duplicate":false,"received_at":"2026-11-21T00:00:00Z"}"#;
    for (padding, success) in [(0, true), (9 * 1024 * 1024, false)] {
        let body = format!("{accepted}{}", " ".repeat(padding));
        let server = Server::scripted([Step::Respond(202, None, body)]).await;
        let result = server.transport().send(&event()).await;
        assert_eq!(result.success, success);
        assert_eq!(result.error.map(|error| error.kind), (!success).then_some(TransportErrorKind::Protocol));
    }
}

#[tokio::test]
async fn hanging_server_is_a_timeout_of_each_attempt() {
    let (error, requests) = error_of(&[Step::Hang, Step::Hang], |config| {
        config.timeout_sec = 0.5;
        config.max_retries = 1;
    })
    .await;
    assert_eq!((error.kind, error.retryable, requests), (TransportErrorKind::Timeout, true, 2));
}

#[tokio::test]
async fn retry_after_a_timeout_can_succeed() {
    let server = Server::scripted([Step::Hang]).await;
    assert!(server.transport_with(|config| config.timeout_sec = 0.5).send(&event()).await.success);
}

/// A bound socket that does not listen: connections are refused, and no other process can use the port.
fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn refused_connection_is_a_connection_error_with_advice() {
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
async fn connection_closed_without_a_response_is_a_connection_error() {
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
async fn connecting_to_a_service_that_is_not_ready_fails() {
    let server = Server::with_rules(Rules { unhealthy: true, ..Rules::default() }, []).await;
    let error = server.transport().connect().await.unwrap_err();
    assert_eq!((error.status, error.code.as_deref()), (Some(503), Some("dependency_unavailable")));
    assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn another_web_server_that_responds_to_everything_is_not_the_service() {
    let server = Server::scripted([]).await;
    let transport = server.transport_with(|config| config.endpoint.push_str("/welcome"));
    let error = transport.connect().await.unwrap_err();
    assert_eq!((error.kind, error.status), (TransportErrorKind::Protocol, Some(200)), "{error}");
    assert!(!transport.health_check().await);
}

#[tokio::test]
async fn results_become_a_result_of_rust() {
    let rules = Rules { rejected_ids: ["bad".to_owned()].into(), ..Rules::default() };
    let server = Server::with_rules(rules, []).await;
    let transport = server.transport();
    let bad = UdmEvent::new("fw").with_event_id("bad");
    let accepted = transport.send(&event()).await.into_result().unwrap();
    assert_eq!((accepted.event_id.as_str(), accepted.server_event_id.is_some()), ("a", true));
    let error = transport.send(&bad).await.into_result().unwrap_err();
    assert_eq!(error.status, Some(422));
    let accepted = transport.send_batch(&[event()]).await.into_result().unwrap();
    assert_eq!(accepted[0].event_id, "a");
    let error = transport.send_batch(&[event(), bad]).await.into_result().unwrap_err();
    assert!(error.message.starts_with("1 of 2 events are not stored; the first is bad: "), "{error}");
    assert_eq!(error.code.as_deref(), Some("some_code"));
}

#[tokio::test]
async fn invalid_configuration_is_an_error_and_sends_nothing() {
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
async fn https_client_installs_a_tls_provider() {
    let closed = closed_port();
    let endpoint = format!("https://{}", closed.local_addr().unwrap());
    let transport = HttpTransport::new(HttpTransportConfig::new(endpoint));
    assert_eq!(transport.connect().await.unwrap_err().kind, TransportErrorKind::Connection);
}
