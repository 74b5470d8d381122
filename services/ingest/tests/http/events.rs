//! `/events`.

use contract::events::{AcceptedEvent, BatchResponse, EventStatus};
use serde_json::{Value, json};
use testkit::Client;
use testsystem::TestSystem;

use super::stream::{header, header_bytes, messages};

const JSON: &str = "application/json";

#[tokio::test]
async fn accepted_event_is_stored_unchanged() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = "{ \"source_id\":\"fire wall/1\",  \"event_id\": \"e-1\", \"extra\": {\"ü\": [1.0, 1e3]},\n\
        \"metadata\": {\"event_type\":\"NETWORK_CONNECTION\", \"event_timestamp\":\"2026-01-02T03:04:05.678+01:00\"} }";
    let client = admin.client.clone().header("X-Request-Id", "req-1");
    let accepted: AcceptedEvent = client.post_bytes("/events", JSON, body).await.expect(202);
    assert_eq!(
        (accepted.event_id.as_str(), accepted.status, accepted.duplicate),
        ("e-1", EventStatus::Accepted, false)
    );
    assert_eq!(accepted.server_event_id, udm::server_event_id("acme", "fire wall/1", "e-1"));

    let stored = messages(&system).await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].payload, body.as_bytes());
    let subject: bus::EventSubject = stored[0].subject.as_str().parse().unwrap();
    let acme = "acme".parse().unwrap();
    let expected = bus::EventSubject::new(&acme, "NETWORK_CONNECTION", "fire wall/1").unwrap();
    assert_eq!(subject, expected);
    for (name, value) in [
        ("ce-id", "e-1"),
        ("ce-source", "fire%20wall%2F1"),
        ("ce-type", "NETWORK_CONNECTION"),
        ("ce-time", "2026-01-02T02:04:05.678Z"),
        ("ce-timeorigin", "event"),
        ("Udm-Request-Id", "req-1"),
    ] {
        assert_eq!(header(&stored[0], name), value, "{name}");
    }
    assert!(header(&stored[0], "Udm-Credential").starts_with("session:"));
    assert_eq!(header(&stored[0], "Nats-Msg-Id").len(), 22);
}

#[tokio::test]
async fn headers_of_a_typical_event_have_at_most_325_bytes_without_a_trace() {
    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, sensor) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let send = async |client: &Client, event_id: &str| {
        let metadata = json!({ "event_type": "NETWORK_DNS", "event_timestamp": "2026-01-31T12:00:00.250Z" });
        let event = json!({ "source_id": "fw-1", "event_id": event_id, "metadata": metadata });
        assert_eq!(client.post("/events", &event).await.status, 202);
    };
    send(&sensor, "019c1373-2f00-7000-8000-000000000005").await;
    send(&sensor.header("traceparent", TRACEPARENT), "019c1373-2f00-7000-8000-000000000006").await;
    let (plain, traced) = (header_bytes(&system, 1).await, header_bytes(&system, 2).await);
    assert!(plain <= 325, "{plain}");
    assert_eq!(traced, plain + "traceparent: \r\n".len() + TRACEPARENT.len());
}

#[tokio::test]
async fn repeated_event_is_a_duplicate_and_the_first_bytes_are_kept() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |body: &'static str| {
        admin.client.post_bytes("/events", JSON, body).await.expect::<AcceptedEvent>(202)
    };
    let first = send(r#"{"source_id":"s","event_id":"1"}"#).await;
    let again = send(r#"{"source_id":"s","event_id":"1","more":true}"#).await;
    assert!(!first.duplicate && again.duplicate);
    assert_eq!(first.server_event_id, again.server_event_id);
    let other_source = send(r#"{"source_id":"t","event_id":"1"}"#).await;
    assert!(!other_source.duplicate);
    let stored = messages(&system).await;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].payload, r#"{"source_id":"s","event_id":"1"}"#.as_bytes());
}

#[tokio::test]
async fn spelling_of_a_name_changes_neither_the_subject_nor_the_ids() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |body: &'static str| {
        admin.client.post_bytes("/events", JSON, body).await.expect::<AcceptedEvent>(202)
    };
    let body = r#"{"sourceId":"s","eventId":"1","metadata":{"eventType":"USER_LOGIN","eventTimestamp":"2026-01-02T03:04:05Z"}}"#;
    let first = send(body).await;
    assert_eq!((first.event_id.as_str(), first.duplicate), ("1", false));
    let again =
        send(r#"{"source_id":"s","event_id":"1","metadata":{"event_type":"USER_LOGIN"},"more":true}"#).await;
    assert!(again.duplicate, "tenant, source and id are the same");
    assert_eq!(first.server_event_id, again.server_event_id);
    let stored = messages(&system).await;
    assert_eq!((stored.len(), stored[0].payload.as_ref()), (1, body.as_bytes()));
    let expected = bus::EventSubject::new(&"acme".parse().unwrap(), "USER_LOGIN", "s").unwrap();
    assert_eq!(stored[0].subject.as_str(), expected.to_string());
    assert_eq!(header(&stored[0], "ce-type"), "USER_LOGIN");
    assert_eq!(header(&stored[0], "ce-time"), "2026-01-02T03:04:05Z");
}

#[tokio::test]
async fn both_spellings_of_a_name_and_other_spellings_are_rejected() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"{"sourceId":"s","metadata":{"eventType":"A","event_type":"A"},"Security-Result":[]}"#;
    let answer = admin.client.post_bytes("/events", JSON, body).await;
    let errors = answer.expect_problem(422, "validation_failed").errors;
    let errors: Vec<_> =
        errors.iter().map(|error| (&*error.pointer, &*error.code, &*error.message)).collect();
    let both = "the same field as /metadata/eventType; send only one of them";
    let [first, second, third] = errors[..] else { panic!("{errors:?}") };
    assert_eq!(first, ("/metadata/event_type", "duplicate_field", both));
    assert_eq!((second.0, second.1), ("/metadata/eventType", "duplicate_field"));
    let names = "write this name as security_result or securityResult";
    assert_eq!(third, ("/Security-Result", "invalid_name", names));
    assert_eq!(messages(&system).await.len(), 0);
}

#[tokio::test]
async fn an_event_of_secops_is_typed_and_a_repeated_one_is_a_duplicate() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"{"sourceId":"s","metadata":{"id":"AAAAAC4+egHJ1IF+/w==","eventType":15001,"eventTimestamp":{"seconds":"1483228799","nanos":5}}}"#;
    for duplicate in [false, true] {
        let accepted: AcceptedEvent = admin.client.post_bytes("/events", JSON, body).await.expect(202);
        assert_eq!((&*accepted.event_id, accepted.duplicate), ("AAAAAC4+egHJ1IF+/w==", duplicate));
    }
    let stored = messages(&system).await;
    assert_eq!((stored.len(), stored[0].payload.as_ref()), (1, body.as_bytes()));
    for (name, value) in [
        ("ce-id", "AAAAAC4+egHJ1IF+/w=="),
        ("ce-type", "USER_LOGIN"),
        ("ce-time", "2016-12-31T23:59:59.000000005Z"),
        ("ce-timeorigin", "event"),
    ] {
        assert_eq!(header(&stored[0], name), value, "{name}");
    }
    let other = body.replace("15001", "15002");
    let batch = format!("[{body},{other}]");
    let answer: BatchResponse = admin.client.post_bytes("/events/batch", JSON, batch).await.expect(207);
    let conflict = &answer.results[1];
    assert_eq!(conflict.code.as_deref(), Some("event_id_conflict"));
    assert_eq!(conflict.pointer.as_deref(), Some("/metadata/id"));
}

#[tokio::test]
async fn a_wrapped_event_is_rejected_with_the_pointer_of_the_inner_object() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"{"source_id":"a","udm":{"metadata":{"event_type":"USER_LOGIN"}}}"#;
    let answer = admin.client.post_bytes("/events", JSON, body).await;
    let errors = answer.expect_problem(422, "validation_failed").errors;
    assert_eq!(errors.len(), 1);
    assert_eq!((&*errors[0].pointer, &*errors[0].code), ("/udm", "wrapped_event"));
    assert_eq!(messages(&system).await.len(), 0);
}

#[tokio::test]
async fn same_ids_of_different_tenants_are_different_events() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let body = r#"{"source_id":"s","event_id":"1","tenant_id":"acme"}"#;
    for person in [&acme, &other] {
        let accepted: AcceptedEvent = person.client.post_bytes("/events", JSON, body).await.expect(202);
        assert!(!accepted.duplicate);
    }
    let subjects = messages(&system).await.into_iter().map(|message| message.subject.parse());
    let tenants: Vec<_> = subjects.map(|subject: Result<bus::EventSubject, _>| subject.unwrap()).collect();
    assert_eq!(
        tenants.iter().map(|subject| subject.tenant().as_str()).collect::<Vec<_>>(),
        ["acme", "other"]
    );
}

#[tokio::test]
async fn event_without_an_id_gets_a_generated_id() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let accepted: AcceptedEvent =
        admin.client.post_bytes("/events", JSON, r#"{"source_id":"s"}"#).await.expect(202);
    assert_eq!(header(&messages(&system).await[0], "ce-id"), accepted.event_id);
    assert_eq!(messages(&system).await[0].payload, r#"{"source_id":"s"}"#.as_bytes());
}

#[tokio::test]
async fn invalid_event_is_rejected_with_the_location_of_each_error() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |body: &str| admin.client.post_bytes("/events", JSON, body.to_owned()).await;
    let problem = send(r#"{"event_id":"a b","metadata":{"event_type":"lower"}}"#)
        .await
        .expect_problem(422, "validation_failed");
    let pointers: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
    assert_eq!(pointers, ["/event_id", "/metadata/event_type", "/source_id"]);
    let problem = send("[]").await.expect_problem(422, "validation_failed");
    assert!(problem.detail.contains("/events/batch"), "{}", problem.detail);
    let problem = send("{}\n{}").await.expect_problem(400, "malformed_json");
    assert!(problem.detail.contains("application/x-ndjson to /events/batch"), "{}", problem.detail);
    send("{").await.expect_problem(400, "malformed_json");
    send("").await.expect_problem(400, "malformed_json");
    let large = format!(r#"{{"source_id":"s","x":"{}"}}"#, "y".repeat(256 * 1024));
    send(&large).await.expect_problem(413, "event_too_large");
    let deep = format!(r#"{{"source_id":"s","x":{}1{}}}"#, "[".repeat(40), "]".repeat(40));
    send(&deep).await.expect_problem(422, "validation_failed");
    let post =
        async |media_type: &str| admin.client.post_bytes("/events", media_type, r#"{"source_id":"s"}"#).await;
    post("").await.expect_problem(415, "media_type");
    post("application/json; charset=iso-8859-1").await.expect_problem(415, "media_type");
    for media_type in ["application/x-ndjson", "application/jsonl"] {
        let problem = post(media_type).await.expect_problem(415, "media_type");
        assert!(problem.detail.contains("/events/batch"), "{}", problem.detail);
    }
    assert_eq!(messages(&system).await.len(), 0);
}

#[tokio::test]
async fn request_without_an_active_credential_is_rejected() {
    let system = TestSystem::start().await.unwrap();
    let _admin = system.create_tenant("acme").await;
    let body = r#"{"source_id":"s"}"#;
    system.client().post_bytes("/events", JSON, body).await.expect_problem(401, "unauthenticated");
    system.platform_admin().post_bytes("/events", JSON, body).await.expect_problem(403, "forbidden");
    let named = system.client().header("X-Tenant-ID", "acme");
    named.post_bytes("/events", JSON, body).await.expect_problem(401, "unauthenticated");
}

#[tokio::test]
async fn schema_is_public() {
    let system = TestSystem::start().await.unwrap();
    let schema: Value = system.client().get("/events/schema").await.expect(200);
    // `svc events schema` prints the same.
    assert_eq!(schema, udm::schema().to_value());
    assert_eq!(schema["then"]["required"], json!(["source_id"]));
}
