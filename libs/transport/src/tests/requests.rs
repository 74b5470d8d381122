//! Content of requests.

use serde_json::value::RawValue;

use super::server::Server;
use crate::{
    HttpTransport, HttpTransportConfig, OutgoingEvent, Secret, TraceContext, Transport, UdmEvent,
    new_event_id,
};

fn raw(text: &str) -> OutgoingEvent {
    OutgoingEvent::from_json(RawValue::from_string(text.to_owned()).unwrap(), new_event_id).unwrap()
}

#[tokio::test]
async fn json_events_keep_their_bytes() {
    let server = Server::scripted([]).await;
    let texts = [
        "{ \"source_id\": \"fw\",\n\t\"event_id\":\"a\", \"n\":1.50 }",
        r#"{"n":1e2,"event_id":"b","u":"\u00e9"}"#,
    ];
    let batch = server.transport().send_outgoing(&texts.map(raw), |_| ()).await;
    assert!(batch.success);
    assert_eq!(server.requests()[0].events(), texts);
}

#[tokio::test]
async fn only_bodies_above_one_kibibyte_are_compressed() {
    let server = Server::scripted([]).await;
    let transport = server.transport();
    let of_length = |length: usize| {
        let event = UdmEvent::new("fw").with_event_id("a").with_field("x", "");
        let rest = length - serde_json::to_string(&event).unwrap().len();
        event.with_field("x", "x".repeat(rest))
    };
    assert!(transport.send(&of_length(1024)).await.success);
    assert!(transport.send(&of_length(1025)).await.success);
    assert!(transport.send_batch(&[of_length(1024)]).await.success);
    let compressed: Vec<_> = server.requests().iter().map(|request| request.compressed).collect();
    assert_eq!(compressed, [false, true, true]);
}

#[tokio::test]
async fn key_is_sent_only_with_events() {
    let server = Server::scripted([]).await;
    let transport = server.transport_with(|config| config.api_key = Some(Secret::new("svc_ak_1")));
    transport.connect().await.unwrap();
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert!(transport.send_batch(&[UdmEvent::new("fw")]).await.success);
    let requests = server.requests();
    let sent: Vec<_> = requests
        .iter()
        .map(|request| {
            let bearer = request.headers.get("authorization").map(|value| value.to_str().unwrap());
            (request.method.as_str(), request.path.as_str(), bearer)
        })
        .collect();
    assert_eq!(
        sent,
        [
            ("GET", "/api/v1/health", None),
            ("POST", "/api/v1/events", Some("Bearer svc_ak_1")),
            ("POST", "/api/v1/events/batch", Some("Bearer svc_ak_1")),
        ]
    );
    assert!(requests[1..].iter().all(|request| request.headers["content-type"] == "application/json"));
}

#[tokio::test]
async fn tenant_is_sent_with_events_if_set() {
    let server = Server::scripted([]).await;
    assert!(server.transport().send(&UdmEvent::new("fw")).await.success);
    let transport = server.transport().for_tenant("acme".parse().unwrap());
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert!(transport.send_batch(&[UdmEvent::new("fw")]).await.success);
    let requests = server.requests();
    let tenants: Vec<_> = requests.iter().map(|request| request.headers.get("x-tenant-id")).collect();
    assert_eq!(tenants[0], None);
    assert!(tenants[1..].iter().all(|tenant| tenant.is_some_and(|tenant| tenant == "acme")), "{tenants:?}");
}

#[test]
fn debug_redacts_the_key() {
    let config =
        HttpTransportConfig { api_key: Some(Secret::new("hunter2")), ..HttpTransportConfig::new("http://a") };
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!format!("{:?}", HttpTransport::new(config)).contains("hunter2"));
}

#[tokio::test]
async fn endpoint_may_contain_the_prefix_of_the_api() {
    let server = Server::scripted([]).await;
    for suffix in ["/", "/api/v1", "/api/v1/"] {
        assert!(
            server.transport_with(|config| config.endpoint.push_str(suffix)).health_check().await,
            "{suffix}"
        );
    }
}

#[tokio::test]
async fn redirect_is_an_error_and_not_followed() {
    let server = Server::scripted([]).await;
    let transport = server.transport_with(|config| config.endpoint.push_str("/moved"));
    let error = transport.send(&UdmEvent::new("fw")).await.error.unwrap();
    assert_eq!(error.status, Some(307));
    assert!(error.message.contains("redirects to /api/v1/events; the service never redirects"), "{error}");
    assert!(error.message.contains("https://"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_thousand_and_one_events_are_sent_in_two_requests() {
    let server = Server::scripted([]).await;
    let events: Vec<_> = (0..1001).map(|_| UdmEvent::new("fw")).collect();
    let batch = server.transport().send_batch(&events).await;
    assert_eq!((batch.success, batch.total_events), (true, 1001));
    let sizes: Vec<_> = server.requests().iter().map(|request| request.events().len()).collect();
    assert_eq!(sizes, [1000, 1]);
}

#[tokio::test]
async fn invalid_event_does_not_affect_others() {
    let server = Server::scripted([]).await;
    let broken = UdmEvent::new("fw").with_event_id("broken").with_field("event_id", "twice");
    let [first, last] = ["a", "b"].map(|id| UdmEvent::new("fw").with_event_id(id));
    let batch = server.transport().send_batch(&[first, broken.clone(), last]).await;
    let results: Vec<_> =
        batch.results.iter().map(|result| (result.event_id.as_str(), result.success)).collect();
    assert_eq!(results, [("a", true), ("broken", false), ("b", true)]);
    assert_eq!((batch.total_events, batch.successful_events, batch.failed_events), (3, 2, 1));
    assert_eq!(server.requests()[0].ids(), ["a", "b"]);
    assert!(!server.transport().send(&broken).await.success);
}

#[tokio::test]
async fn each_request_starts_a_trace() {
    let server = Server::scripted([]).await;
    let transport = server.transport();
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    let requests = server.requests();
    let sent: Vec<_> =
        requests.iter().map(|request| request.headers["traceparent"].to_str().unwrap()).collect();
    for text in &sent {
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{text}");
        assert!(text.starts_with("00-") && text.ends_with("-01"), "{text}");
    }
    assert_ne!(sent[0][3..35], sent[1][3..35]);
    assert_ne!(sent[0][36..52], sent[1][36..52]);
}

#[tokio::test]
async fn requests_in_a_trace_are_children_of_the_given_span() {
    let server = Server::scripted([]).await;
    let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let transport = server.transport().in_trace(TraceContext::parse(span).unwrap());
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert!(transport.send_batch(&[UdmEvent::new("fw")]).await.success);
    for request in server.requests() {
        assert_eq!(request.headers["traceparent"], span);
    }
}
