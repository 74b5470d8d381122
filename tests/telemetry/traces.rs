//! Traces from a producer or the CLI to the stream.

use async_nats::jetstream;
use contract::Role;
use e2e::{output_of, program};
use serde_json::json;
use testkit::wait_until;
use testsystem::TestSystem;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

use super::collector::{Collector, attribute, hex};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A header of a message in the stream.
async fn header(system: &TestSystem, sequence: u64, name: &str) -> String {
    let client = system.nats.connect("administrator").await.unwrap();
    let stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let message = stream.get_raw_message(sequence).await.unwrap();
    message.headers.get(name).map_or_else(String::new, |value| value.as_str().to_owned())
}

#[tokio::test]
async fn a_request_is_one_trace_from_the_caller_through_ingest_and_session_to_the_stream() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let event = serde_json::json!({"source_id": "fw", "event_id": "e1"});
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller).header("X-Request-Id", "r-1");
    assert_eq!(client.post("/events", &event).await.status, 202);

    let published = header(&system, 1, "traceparent").await;
    assert_eq!(header(&system, 1, "Udm-Request-Id").await, "r-1");
    // The last spans are exported at shutdown.
    drop(system);
    let ingest = collector.request(TRACE, "ingest", "POST /api/v1/events").await;
    assert_eq!(hex(&ingest.parent_span_id), CALLER);
    assert_eq!(published, format!("00-{TRACE}-{}-01", hex(&ingest.span_id)));
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/api/v1/events"),
        ("http.response.status_code", "202"),
        ("svc.request_id", "r-1"),
    ] {
        assert_eq!(attribute(&ingest, key), value);
    }
    let session =
        collector.request(TRACE, "session", &format!("POST {}", contract::internal::INTROSPECT)).await;
    assert_eq!(session.parent_span_id, ingest.span_id);
    assert_eq!(attribute(&session, "svc.request_id"), "r-1");
    // An invalidation during the lookup repeats the introspection.
    let mut requests = collector.requests(TRACE);
    requests.sort();
    requests.dedup();
    let introspection = format!("session: POST {}", contract::internal::INTROSPECT);
    assert_eq!(requests, ["ingest: POST /api/v1/events".to_owned(), introspection]);
}

#[tokio::test]
async fn use_cases_statements_and_publishes_are_spans_below_their_request() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller);
    let event = json!({"source_id": "fw", "event_id": "e1"});
    assert_eq!(client.post("/events", &event).await.status, 202);
    drop(system);

    let request = collector.request(TRACE, "ingest", "POST /api/v1/events").await;
    let publish = collector.descendant(&request, &["ingest_event", "stream.publish"]).await;
    assert_eq!(attribute(&publish, "messaging.destination.name"), "UDM");
    let introspect = format!("POST {}", contract::internal::INTROSPECT);
    let request = collector.request(TRACE, "session", &introspect).await;
    let statement = collector.descendant(&request, &["introspection.batch", "credential.find"]).await;
    assert_eq!(attribute(&statement, "db.system.name"), "postgresql");
}

#[tokio::test]
async fn the_transport_starts_a_trace_that_ends_in_the_stream() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new(acme.session.session_id.expose())),
        ..HttpTransportConfig::new(&system.base_url)
    });
    assert!(transport.send_batch(&[UdmEvent::new("fw"), UdmEvent::new("fw")]).await.success);

    let (first, second) = (header(&system, 1, "traceparent").await, header(&system, 2, "traceparent").await);
    assert_eq!(first, second);
    drop(system);
    let ingest = collector.request(&first[3..35], "ingest", "POST /api/v1/events/batch").await;
    assert_eq!(first[36..52], hex(&ingest.span_id));
    assert_eq!(ingest.parent_span_id.len(), 8, "the parent is a span of the transport");
}

#[tokio::test]
async fn a_cli_command_is_one_trace_through_ingest_and_session_to_the_stream() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let home = tempfile::tempdir().unwrap();
    let events = home.path().join("events.ndjson");
    std::fs::write(&events, "{\"source_id\":\"fw\"}\n{\"source_id\":\"fw\"}\n").unwrap();
    let mut command = program("svc");
    command.args(["events", "send", "--verbose", "--batch-size", "1", "--file"]).arg(events);
    command.env("HOME", home.path()).env("SVC_BASE_URL", &system.base_url);
    command.env("SVC_TENANT", "acme").env("SVC_TOKEN", acme.session.session_id.expose());
    let output = output_of(command).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");

    let trace_id = stderr.lines().find_map(|line| line.strip_prefix("trace ")).unwrap();
    let published = [header(&system, 1, "traceparent").await, header(&system, 2, "traceparent").await];
    drop(system);
    let trace_of = |text: &String| text[3..35].to_owned();
    assert_eq!(published.each_ref().map(trace_of), [trace_id, trace_id]);
    assert_ne!(published[0], published[1], "each request has its own span");
    let ingest = collector.request(trace_id, "ingest", "POST /api/v1/events/batch").await;
    assert!(published.iter().any(|text| text[36..52] == hex(&ingest.span_id)), "{published:?}");
    collector.request(trace_id, "session", &format!("POST {}", contract::internal::INTROSPECT)).await;
}

#[tokio::test]
async fn outbox_messages_belong_to_the_trace_of_their_request() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let bob = system.add_user(&acme, "bob@acme.example", Role::Member).await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller).header("X-Request-Id", "r-1");
    let disabled = json!({ "status": "disabled" });
    let response = client.patch(&format!("/users/{}", bob.user.user_id), &disabled).await;
    assert_eq!(response.status, 200, "{response}");
    system.wait_for_empty_outbox().await;

    let audited = audit_trace(&system, "user_updated").await;
    drop(system);
    let identity = collector.request(TRACE, "identity", "PATCH /api/v1/users/{user_id}").await;
    assert_eq!(audited, format!("00-{TRACE}-{}-01", hex(&identity.span_id)));
    let session = collector
        .request(TRACE, "session", &format!("PUT {}/{{user_id}}", contract::internal::SUBJECTS))
        .await;
    assert_eq!(session.parent_span_id, identity.span_id);
    assert_eq!(attribute(&session, "svc.request_id"), "r-1");
}

/// Waits for an audit event in the stream. Returns its `traceparent`.
async fn audit_trace(system: &TestSystem, event: &str) -> String {
    let client = system.nats.connect("audit-administrator").await.unwrap();
    let stream = jetstream::new(client).get_stream("AUDIT").await.unwrap();
    let subject = format!("audit.v1.acme.identity.{event}");
    let message = wait_until("the audit event is in the stream", async || {
        stream.get_last_raw_message_by_subject(&subject).await.ok()
    })
    .await;
    message.headers.get("traceparent").map_or_else(String::new, |value| value.as_str().to_owned())
}

#[tokio::test]
async fn an_unsampled_trace_is_propagated_but_not_exported() {
    let collector = Collector::start().await;
    let variables = [("SVC_OTLP_ENDPOINT", collector.url.as_str()), ("SVC_OTLP_RATIO", "0.5")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let unsampled = "ffffffffffffffffffffffffffffffff";
    for (trace_id, event_id) in [(unsampled, "e1"), ("00000000000000010000000000000001", "e2")] {
        let client = acme.client.clone().header("traceparent", &format!("00-{trace_id}-{CALLER}-01"));
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        assert_eq!(client.post("/events", &event).await.status, 202);
    }
    let published = header(&system, 1, "traceparent").await;
    assert!(published.starts_with(&format!("00-{unsampled}-")) && published.ends_with("-00"), "{published}");
    drop(system);
    collector.request("00000000000000010000000000000001", "ingest", "POST /api/v1/events").await;
    assert_eq!(collector.trace(unsampled), []);
}

#[tokio::test]
async fn without_a_collector_a_valid_traceparent_is_propagated_and_an_invalid_one_is_dropped() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    for (event_id, sent) in [("e1", caller.as_str()), ("e2", "00-nonsense")] {
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        let response = acme.client.clone().header("traceparent", sent).post("/events", &event).await;
        assert_eq!(response.status, 202);
    }
    assert_eq!(header(&system, 1, "traceparent").await, caller);
    assert_eq!(header(&system, 2, "traceparent").await, "");
}
