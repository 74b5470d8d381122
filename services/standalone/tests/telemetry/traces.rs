//! One trace from a producer to the stream.

use std::path::PathBuf;

use async_nats::jetstream;
use contract::Role;
use serde_json::json;
use testkit::wait_until;
use testsystem::TestSystem;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

use super::collector::{Collector, attribute, hex};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The header of the n-th message of the stream.
async fn header(system: &TestSystem, sequence: u64, name: &str) -> String {
    let client = async_nats::connect(&system.nats.url).await.unwrap();
    let stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let message = stream.get_raw_message(sequence).await.unwrap();
    message.headers.get(name).map_or_else(String::new, |value| value.as_str().to_owned())
}

#[tokio::test]
async fn a_request_is_one_trace_from_its_caller_through_ingest_and_session_into_the_stream() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let event = serde_json::json!({"source_id": "fw", "event_id": "e1"});
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller).header("X-Request-ID", "r-1");
    assert_eq!(client.post("/events", &event).await.status, 202);

    let published = header(&system, 1, "traceparent").await;
    assert_eq!(header(&system, 1, "Udm-Request-Id").await, "r-1");
    // The last spans leave when the process stops.
    drop(system);
    let ingest = collector.span(TRACE, "ingest", "POST /api/v1/events").await;
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
    let session = collector.span(TRACE, "session", &format!("POST {}", contract::internal::INTROSPECT)).await;
    assert_eq!(session.parent_span_id, ingest.span_id);
    assert_eq!(attribute(&session, "svc.request_id"), "r-1");
    // A change that is heard of meanwhile has the same question put again.
    let mut names = collector.names(TRACE);
    names.dedup();
    let asked = format!("session: POST {}", contract::internal::INTROSPECT);
    assert_eq!(
        names,
        ["ingest: POST /api/v1/events".to_owned(), asked],
        "nothing but the request and its question"
    );
}

#[tokio::test]
async fn the_transport_begins_a_trace_that_ends_in_the_stream() {
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
    let ingest = collector.span(&first[3..35], "ingest", "POST /api/v1/events/batch").await;
    assert_eq!(first[36..52], hex(&ingest.span_id));
    assert_eq!(ingest.parent_span_id.len(), 8, "the transport is its parent");
}

#[tokio::test]
async fn a_command_is_one_trace_from_the_client_through_ingest_and_session_into_the_stream() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let home = tempfile::tempdir().unwrap();
    let events = home.path().join("events.ndjson");
    std::fs::write(&events, "{\"source_id\":\"fw\"}\n{\"source_id\":\"fw\"}\n").unwrap();
    let mut command = tokio::process::Command::new(beside_the_test("svc"));
    command.args(["events", "send", "--verbose", "--batch-size", "1", "--file"]).arg(events);
    command.env_clear().env("HOME", home.path()).env("SVC_BASE_URL", &system.base_url);
    command.env("SVC_TENANT", "acme").env("SVC_TOKEN", acme.session.session_id.expose());
    let ran = command.output().await.unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{said}");

    let trace_id = said.lines().find_map(|line| line.strip_prefix("trace ")).unwrap();
    let published = [header(&system, 1, "traceparent").await, header(&system, 2, "traceparent").await];
    drop(system);
    let of = |text: &String| text[3..35].to_owned();
    assert_eq!(published.each_ref().map(of), [trace_id, trace_id]);
    assert_ne!(published[0], published[1], "a span a request");
    let ingest = collector.span(trace_id, "ingest", "POST /api/v1/events/batch").await;
    assert!(published.iter().any(|text| text[36..52] == hex(&ingest.span_id)), "{published:?}");
    collector.span(trace_id, "session", &format!("POST {}", contract::internal::INTROSPECT)).await;
}

/// A program of this workspace, in the directory beside that of the tests.
fn beside_the_test(name: &str) -> PathBuf {
    let binary = std::env::current_exe().unwrap().parent().unwrap().with_file_name(name);
    assert!(binary.exists(), "{} is not built: run `make test`", binary.display());
    binary
}

#[tokio::test]
async fn what_a_change_brings_about_later_belongs_to_its_trace() {
    let collector = Collector::start().await;
    let system = TestSystem::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let bob = system.add_user(&acme, "bob@acme.example", Role::Member).await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller).header("X-Request-ID", "r-1");
    let disabled = json!({ "status": "disabled" });
    let answer = client.patch(&format!("/users/{}", bob.user.user_id), &disabled).await;
    assert_eq!(answer.status, 200, "{answer}");
    system.wait_for_empty_outbox().await;

    let told = audit_trace(&system, "user_updated").await;
    drop(system);
    let identity = collector.span(TRACE, "identity", "PATCH /api/v1/users/{user_id}").await;
    assert_eq!(told, format!("00-{TRACE}-{}-01", hex(&identity.span_id)));
    let session =
        collector.span(TRACE, "session", &format!("PUT {}/{{user_id}}", contract::internal::SUBJECTS)).await;
    assert_eq!(session.parent_span_id, identity.span_id);
    assert_eq!(attribute(&session, "svc.request_id"), "r-1");
}

/// The `traceparent` of the audit event with this name, once it is in the stream.
async fn audit_trace(system: &TestSystem, event: &str) -> String {
    let client = async_nats::connect(&system.nats.url).await.unwrap();
    let stream = jetstream::new(client).get_stream("AUDIT").await.unwrap();
    let subject = format!("audit.v1.acme.identity.{event}");
    let message = wait_until("the audit event is in the stream", async || {
        stream.get_last_raw_message_by_subject(&subject).await.ok()
    })
    .await;
    message.headers.get("traceparent").map_or_else(String::new, |value| value.as_str().to_owned())
}

#[tokio::test]
async fn a_trace_outside_the_share_is_passed_on_but_not_recorded() {
    let collector = Collector::start().await;
    let variables = [("SVC_OTLP_ENDPOINT", collector.url.as_str()), ("SVC_OTLP_RATIO", "0.5")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let out = "ffffffffffffffffffffffffffffffff";
    for (trace_id, event_id) in [(out, "e1"), ("00000000000000010000000000000001", "e2")] {
        let client = acme.client.clone().header("traceparent", &format!("00-{trace_id}-{CALLER}-01"));
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        assert_eq!(client.post("/events", &event).await.status, 202);
    }
    let published = header(&system, 1, "traceparent").await;
    assert!(published.starts_with(&format!("00-{out}-")) && published.ends_with("-00"), "{published}");
    drop(system);
    collector.span("00000000000000010000000000000001", "ingest", "POST /api/v1/events").await;
    assert_eq!(collector.names(out), [""; 0]);
}

#[tokio::test]
async fn without_a_collector_the_callers_trace_is_passed_on_and_a_malformed_one_is_not() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    for (event_id, sent) in [("e1", caller.as_str()), ("e2", "00-nonsense")] {
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        let answer = acme.client.clone().header("traceparent", sent).post("/events", &event).await;
        assert_eq!(answer.status, 202);
    }
    assert_eq!(header(&system, 1, "traceparent").await, caller);
    assert_eq!(header(&system, 2, "traceparent").await, "");
}
