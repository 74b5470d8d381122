//! One trace from a producer to the stream.

use async_nats::jetstream;
use testkit::World;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

use super::collector::{Collector, attribute, hex};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The header of the n-th message of the stream.
async fn header(world: &World, sequence: u64, name: &str) -> String {
    let client = async_nats::connect(&world.nats.url).await.unwrap();
    let stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let message = stream.get_raw_message(sequence).await.unwrap();
    message.headers.get(name).map_or_else(String::new, |value| value.as_str().to_owned())
}

#[tokio::test]
async fn a_request_is_one_trace_from_its_caller_through_ingest_and_session_into_the_stream() {
    let collector = Collector::start().await;
    let world = World::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = world.tenant("acme").await;
    let event = serde_json::json!({"source_id": "fw", "event_id": "e1"});
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let client = acme.client.clone().header("traceparent", &caller).header("X-Request-ID", "r-1");
    assert_eq!(client.post("/events", &event).await.status, 202);

    let published = header(&world, 1, "traceparent").await;
    assert_eq!(header(&world, 1, "Udm-Request-Id").await, "r-1");
    // The last spans leave when the process stops.
    drop(world);
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
    assert_eq!(collector.count(TRACE), 2, "one server span a request");
}

#[tokio::test]
async fn the_transport_begins_a_trace_that_ends_in_the_stream() {
    let collector = Collector::start().await;
    let world = World::start_with(&[("SVC_OTLP_ENDPOINT", &collector.url)]).await.unwrap();
    let acme = world.tenant("acme").await;
    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new(acme.session.session_id.expose())),
        ..HttpTransportConfig::new(&world.base_url)
    });
    assert!(transport.send_batch(&[UdmEvent::new("fw"), UdmEvent::new("fw")]).await.success);

    let (first, second) = (header(&world, 1, "traceparent").await, header(&world, 2, "traceparent").await);
    assert_eq!(first, second);
    drop(world);
    let ingest = collector.span(&first[3..35], "ingest", "POST /api/v1/events/batch").await;
    assert_eq!(first[36..52], hex(&ingest.span_id));
    assert_eq!(ingest.parent_span_id.len(), 8, "the transport is its parent");
}

#[tokio::test]
async fn a_trace_outside_the_share_is_passed_on_but_not_recorded() {
    let collector = Collector::start().await;
    let variables = [("SVC_OTLP_ENDPOINT", collector.url.as_str()), ("SVC_OTLP_RATIO", "0.5")];
    let world = World::start_with(&variables).await.unwrap();
    let acme = world.tenant("acme").await;
    let out = "ffffffffffffffffffffffffffffffff";
    for (trace_id, event_id) in [(out, "e1"), ("00000000000000010000000000000001", "e2")] {
        let client = acme.client.clone().header("traceparent", &format!("00-{trace_id}-{CALLER}-01"));
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        assert_eq!(client.post("/events", &event).await.status, 202);
    }
    let published = header(&world, 1, "traceparent").await;
    assert!(published.starts_with(&format!("00-{out}-")) && published.ends_with("-00"), "{published}");
    drop(world);
    collector.span("00000000000000010000000000000001", "ingest", "POST /api/v1/events").await;
    assert_eq!(collector.count(out), 0);
}

#[tokio::test]
async fn without_a_collector_the_callers_trace_is_passed_on_and_a_malformed_one_is_not() {
    let world = World::start().await.unwrap();
    let acme = world.tenant("acme").await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    for (event_id, sent) in [("e1", caller.as_str()), ("e2", "00-nonsense")] {
        let event = serde_json::json!({"source_id": "fw", "event_id": event_id});
        let answer = acme.client.clone().header("traceparent", sent).post("/events", &event).await;
        assert_eq!(answer.status, 202);
    }
    assert_eq!(header(&world, 1, "traceparent").await, caller);
    assert_eq!(header(&world, 2, "traceparent").await, "");
}
