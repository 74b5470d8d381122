//! `invalid=quarantine` of `/events` and `/events/batch`, and `/events/quarantine`.

use std::collections::HashSet;

use async_nats::jetstream::{self, message::StreamMessage};
use contract::consumers::{DeadLetter, HandledDeadLetters};
use contract::events::{AcceptedEvent, BatchResponse, EventStatus};
use contract::{Page, Role};
use data_encoding::BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use testkit::{Client, TestResponse, wait_until};
use testsystem::{TestSystem, TestUser};

use super::stream::{header, messages};

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const MIB: usize = 1024 * 1024;

async fn send(client: &Client, media_type: &str, body: impl Into<Vec<u8>>) -> TestResponse {
    client.post_bytes("/events/batch?invalid=quarantine", media_type, body.into()).await
}

async fn send_one(client: &Client, body: impl Into<Vec<u8>>) -> TestResponse {
    client.post_bytes("/events?invalid=quarantine", JSON, body.into()).await
}

fn statuses(batch: &BatchResponse) -> Vec<String> {
    let status = |result: &contract::events::EventResult| match (result.status, &result.code) {
        (EventStatus::Accepted, _) => "accepted".to_owned(),
        (EventStatus::Quarantined, Some(code)) => format!("quarantined {code}"),
        (_, code) => format!("rejected {}", code.as_deref().unwrap_or_default()),
    };
    assert_eq!(batch.successful_events + batch.failed_events, batch.total_events);
    let quarantined = batch.results.iter().filter(|result| result.status == EventStatus::Quarantined);
    assert_eq!(batch.quarantined_events, Some(quarantined.count()));
    batch.results.iter().map(status).collect()
}

/// Returns the stored dead letters in order.
async fn dead_letters(system: &TestSystem) -> Vec<StreamMessage> {
    let client = system.nats.connect("administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream("UDM_DLQ").await.unwrap();
    let state = stream.info().await.unwrap().state.clone();
    let mut stored = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        stored.extend(stream.get_raw_message(sequence).await.ok());
    }
    stored
}

async fn list(client: &Client) -> Vec<DeadLetter> {
    client.get("/events/quarantine").await.expect::<Page<DeadLetter>>(200).items
}

#[tokio::test]
async fn invalid_items_are_stored_with_their_bytes_and_reason_and_valid_ones_are_published() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (_, sensor) = system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    let client = sensor.header("X-Request-Id", "req-1");
    let large = format!(r#"{{"source_id":"s","padding":"{}"}}"#, "x".repeat(300_000));
    let invalid = r#"{"source_id":"fw 1","event_id":"e2","metadata":{"event_timestamp":"yesterday"},"Security-Result":[]}"#;
    let lines =
        [r#"{"source_id":"s","event_id":"e1"}"#, invalid, "no \u{fc} json", &large, r#"{"source_id":"s"}"#];
    let batch: BatchResponse = send(&client, NDJSON, lines.join("\n")).await.expect(202);
    let expected = [
        "accepted",
        "quarantined validation_failed",
        "quarantined malformed_json",
        "quarantined event_too_large",
        "accepted",
    ];
    assert_eq!(statuses(&batch), expected);
    let second = &batch.results[1];
    assert_eq!(
        (second.event_id.as_deref(), second.retryable, second.duplicate),
        (Some("e2"), None, Some(false))
    );
    assert_eq!(second.pointer.as_deref(), Some("/metadata/event_timestamp"));
    assert_eq!(messages(&system).await.len(), 2);

    let stored = dead_letters(&system).await;
    assert_eq!(stored.len(), 4);
    assert!(stored.iter().all(|letter| letter.subject.as_str() == "udm.dlq.v1.acme._ingest"));
    assert_eq!(stored[0].payload, invalid);
    let reason = header(&stored[0], "Udm-Dlq-Reason");
    assert!(reason.starts_with("/metadata/event_timestamp: expected an RFC 3339"), "{reason}");
    assert!(reason.contains("; /Security-Result: "), "{reason}");
    for (name, value) in [
        ("Udm-Dlq-Code", "validation_failed"),
        ("Udm-Request-Id", "req-1"),
        ("ce-source", "fw%201"),
        ("ce-id", "e2"),
        ("Udm-Dlq-Part", ""),
    ] {
        assert_eq!(header(&stored[0], name), value, "{name}");
    }
    assert!(header(&stored[0], "Udm-Credential").starts_with("key:"));
    assert!(!header(&stored[0], "Udm-Received-At").is_empty());
    assert_eq!(stored[1].payload, lines[2].as_bytes());
    assert_eq!(header(&stored[1], "ce-id"), batch.results[2].event_id.as_deref().unwrap());
    assert_eq!([&stored[2].payload[..], &stored[3].payload[..]].concat(), large.as_bytes());
    assert_eq!([&stored[2], &stored[3]].map(|part| header(part, "Udm-Dlq-Part")), ["1/2", "2/2"]);
}

#[tokio::test]
async fn an_invalid_single_event_is_accepted_into_the_quarantine() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let valid: AcceptedEvent = send_one(&admin.client, r#"{"source_id":"s"}"#).await.expect(202);
    assert_eq!((valid.status, valid.code, valid.event_id.len()), (EventStatus::Accepted, None, 22));
    let invalid: AcceptedEvent =
        send_one(&admin.client, r#"{"source_id":"","event_id":"e1"}"#).await.expect(202);
    assert_eq!(
        (invalid.status, invalid.duplicate, &*invalid.event_id),
        (EventStatus::Quarantined, false, "e1")
    );
    assert_eq!(
        (invalid.code.as_deref(), invalid.pointer.as_deref()),
        (Some("validation_failed"), Some("/source_id"))
    );
    let again: AcceptedEvent =
        send_one(&admin.client, r#"{"source_id":"","event_id":"e1"}"#).await.expect(202);
    assert!(again.duplicate);
    let bytes = vec![b'\xff'; MIB];
    let large: AcceptedEvent = send_one(&admin.client, bytes).await.expect(202);
    assert_eq!(large.code.as_deref(), Some("event_too_large"));
    send_one(&admin.client, vec![b'1'; 10 * MIB + 1]).await.expect_problem(413, "event_too_large");
    assert_eq!((messages(&system).await.len(), dead_letters(&system).await.len()), (1, 5));
}

#[tokio::test]
async fn another_value_of_the_parameter_is_rejected_and_without_it_items_are_rejected() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for path in ["/events", "/events/batch"] {
        for value in ["", "reject", "Quarantine", "quarantine&invalid=quarantine"] {
            let answer = admin.client.post_bytes(&format!("{path}?invalid={value}"), JSON, "[]").await;
            let problem = answer.expect_problem(422, "validation_failed");
            assert_eq!(problem.errors[0].pointer, "/invalid", "{value}");
        }
    }
    let batch: BatchResponse = admin.client.post_bytes("/events/batch", JSON, "[1]").await.expect(422);
    assert_eq!((batch.quarantined_events, dead_letters(&system).await.len()), (None, 0));
}

#[tokio::test]
async fn equal_items_of_a_request_are_all_stored_and_a_repeated_request_stores_nothing() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = "{\"source_id\":\"s\"}\nbroken\n{\"source_id\":\"s\"}\nbroken\n";
    let first: BatchResponse = send(&admin.client, NDJSON, body).await.expect(202);
    let again: BatchResponse = send(&admin.client, NDJSON, body).await.expect(202);
    let duplicates =
        |batch: &BatchResponse| batch.results.iter().map(|result| result.duplicate).collect::<Vec<_>>();
    assert_eq!(duplicates(&first), [Some(false); 4]);
    assert_eq!(duplicates(&again), [Some(true); 4]);
    let ids = |batch: &BatchResponse| {
        batch.results.iter().filter_map(|result| result.event_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(ids(&first).iter().collect::<HashSet<_>>().len(), 4);
    assert!(ids(&first).iter().all(|id| id.len() == 22));
    assert_eq!((messages(&system).await.len(), dead_letters(&system).await.len()), (2, 2));
}

#[tokio::test]
async fn events_that_the_sender_must_not_send_and_conflicts_are_quarantined() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let create = json!({ "name": "firewall", "source_ids": ["fw-1"] });
    let (_, client) = system.create_api_key(&admin, &create).await;
    let body = r#"[{"source_id":"fw-2"},{"source_id":"fw-1","event_id":"1"},{"source_id":"fw-1","event_id":"1","n":2}]"#;
    let batch: BatchResponse = send(&client, JSON, body).await.expect(202);
    assert_eq!(
        statuses(&batch),
        ["quarantined source_not_allowed", "accepted", "quarantined event_id_conflict"]
    );
    let letters = list(&admin.client).await;
    let sources: Vec<_> = letters.iter().map(|letter| letter.source_id.as_deref()).collect();
    assert_eq!(sources, [Some("fw-2"), Some("fw-1")]);
    let accepted: AcceptedEvent = send_one(&client, r#"{"source_id":"fw-3"}"#).await.expect(202);
    assert_eq!(accepted.code.as_deref(), Some("source_not_allowed"));
}

#[tokio::test]
async fn a_chunk_of_a_shipper_is_stored_and_its_sender_can_ask_for_a_short_response() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    // Fluent Bit sends up to 2 MB of lines at once, and accepts no response above 4 KiB.
    let line = |number: usize| match number % 100 {
        7 => "no json\n".to_owned(),
        _ => format!(
            "{{\"source_id\":\"fw\",\"event_id\":\"{number}\",\"padding\":\"{}\"}}\n",
            "x".repeat(150)
        ),
    };
    let body: String = (0..10_000).map(line).collect();
    let minimal = admin.client.clone().header("Prefer", "return=minimal");
    let answer = send(&minimal, NDJSON, &*body).await;
    assert_eq!(answer.headers["preference-applied"], "return=minimal");
    assert!(answer.body.len() < 1024, "{answer}");
    let batch: BatchResponse = answer.expect(202);
    assert_eq!(
        (batch.successful_events, batch.quarantined_events, batch.results.len()),
        (10_000, Some(100), 0)
    );
    let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
    for (stream, expected) in [("UDM", 9_900), ("UDM_DLQ", 100)] {
        assert_eq!(
            broker.get_stream(stream).await.unwrap().cached_info().state.messages,
            expected,
            "{stream}"
        );
    }
    let batch: BatchResponse = send(&admin.client, NDJSON, body).await.expect(202);
    assert!(
        batch.results.len() == 10_000 && batch.results.iter().all(|result| result.duplicate == Some(true))
    );
}

#[tokio::test]
async fn a_body_that_is_not_a_batch_is_stored_completely() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let broken = format!(r#"[{{"source_id":"{}"}},"#, "x".repeat(600_000));
    let many = "{\"source_id\":\"s\"}\n".repeat(10_001);
    let bodies = [(JSON, broken, "malformed_json", 3), (JSON, "{}".into(), "validation_failed", 1)];
    for (media_type, body, code, parts) in bodies.into_iter().chain([(NDJSON, many, "batch_too_large", 1)]) {
        let before = dead_letters(&system).await.len();
        let batch: BatchResponse = send(&admin.client, media_type, body.clone()).await.expect(202);
        assert_eq!(statuses(&batch), [format!("quarantined {code}")]);
        let stored = &dead_letters(&system).await[before..];
        assert_eq!(stored.iter().flat_map(|part| part.payload.to_vec()).collect::<Vec<_>>(), body.as_bytes());
        assert_eq!(stored.len(), parts);
        assert_eq!(header(stored.last().unwrap(), "Udm-Dlq-Part"), format!("{parts}/{parts}"));
    }
    assert_eq!(messages(&system).await.len(), 0);
    // Nothing can be lost.
    let stored = dead_letters(&system).await.len();
    for (media_type, body) in
        [(JSON, "[]"), (JSON, ""), (JSON, "\u{feff}"), (JSON, "\r\n "), (NDJSON, ""), (NDJSON, "\n")]
    {
        let batch: BatchResponse = send(&admin.client, media_type, body).await.expect(202);
        assert_eq!((batch.total_events, batch.quarantined_events), (0, Some(0)), "{body:?}");
    }
    let gzip = admin.client.clone().header("Content-Encoding", "gzip");
    let empty = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap();
    let problem = send(&admin.client, JSON, empty.clone()).await.expect_problem(400, "malformed_encoding");
    assert!(problem.detail.contains("`Content-Encoding: gzip`"), "{problem:?}");
    assert_eq!(send(&gzip, JSON, empty).await.expect::<BatchResponse>(202).total_events, 0);
    assert_eq!(dead_letters(&system).await.len(), stored);
    // The request is wrong, not the data.
    send(&admin.client, "text/csv", "a,b").await.expect_problem(415, "media_type");
    send(&admin.client, JSON, " ".repeat(10 * MIB + 1025)).await.expect_problem(413, "batch_too_large");
    send(&gzip, JSON, "[]").await.expect_problem(400, "malformed_encoding");
}

#[tokio::test]
async fn while_the_quarantine_is_not_available_the_request_fails_and_its_repetition_stores_the_rest() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let config = broker.get_stream("UDM_DLQ").await.unwrap().cached_info().config.clone();
    broker.delete_stream("UDM_DLQ").await.unwrap();
    let body = "{\"source_id\":\"s\"}\nbroken\n";
    let answer = send(&admin.client, NDJSON, body).await;
    let batch: BatchResponse = answer.expect(503);
    assert_eq!(batch.results[0].status, EventStatus::Accepted);
    assert_eq!(batch.results[1].retryable, Some(true));
    assert!(answer.headers.contains_key("retry-after"), "{answer}");
    broker.create_stream(config).await.unwrap();
    let answer = wait_until("the quarantine is available", async || {
        Some(send(&admin.client, NDJSON, body).await).filter(|answer| answer.status != 503)
    })
    .await;
    let batch: BatchResponse = answer.expect(202);
    assert_eq!(batch.results[0].duplicate, Some(true));
    assert_eq!((messages(&system).await.len(), dead_letters(&system).await.len()), (1, 1));
}

#[tokio::test]
async fn without_the_broker_the_whole_request_is_503_and_nothing_is_lost() {
    let mut system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.nats.stop();
    let body = "{\"source_id\":\"s\"}\nbroken\n";
    send(&admin.client, NDJSON, body).await.expect::<BatchResponse>(503);
    let problem = send_one(&admin.client, "broken").await.expect_problem(503, "dependency_unavailable");
    assert!(problem.errors.is_empty());
    system.nats.restart().await.unwrap();
    let answer = wait_until("the streams are available", async || {
        Some(send(&admin.client, NDJSON, body).await).filter(|answer| answer.status != 503)
    })
    .await;
    answer.expect::<BatchResponse>(202);
    assert_eq!((messages(&system).await.len(), dead_letters(&system).await.len()), (1, 1));
}

#[tokio::test]
async fn above_the_quota_a_sender_that_repeats_the_same_body_makes_progress() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let patch = json!({ "quota": { "events_per_second": 10 } });
    system.platform_admin().patch("/tenants/acme", &patch).await.expect::<Value>(200);
    let body = "{\"source_id\":\"s\"}\nbroken\n".repeat(10);
    send(&admin.client, NDJSON, body.clone()).await.expect::<BatchResponse>(202);
    let second = body.replace("broken", "damaged").replace("\"s\"", "\"t\"");
    let answer = send(&admin.client, NDJSON, second.clone()).await;
    answer.expect_problem(429, "quota_exceeded");
    assert_eq!(answer.headers["retry-after"], "2");
    let answer = wait_until("the request is accepted", async || {
        Some(send(&admin.client, NDJSON, second.clone()).await).filter(|answer| answer.status != 429)
    })
    .await;
    answer.expect::<BatchResponse>(202);
    assert_eq!((messages(&system).await.len(), dead_letters(&system).await.len()), (20, 20));
    send_one(&admin.client, "broken").await.expect_problem(429, "quota_exceeded");
}

#[tokio::test]
async fn above_the_bound_of_the_tenant_items_are_rejected_until_some_are_deleted() {
    let system = TestSystem::start_with(&[("SVC_QUARANTINE_MAX_ITEMS", "2")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let batch: BatchResponse =
        send(&acme.client, NDJSON, "a\nb\nc\n{\"source_id\":\"s\"}\n").await.expect(207);
    let quarantined = "quarantined malformed_json";
    assert_eq!(statuses(&batch), [quarantined, quarantined, "rejected malformed_json", "accepted"]);
    assert_eq!(batch.results[2].retryable, Some(false));
    let message = batch.results[2].message.as_deref().unwrap();
    assert!(message.ends_with("; the quarantine is full"), "{message}");
    send(&acme.client, JSON, "[1]").await.expect::<BatchResponse>(422);
    let problem = send(&acme.client, JSON, "[").await.expect_problem(400, "malformed_json");
    assert!(problem.detail.ends_with("; the quarantine is full"), "{}", problem.detail);
    let problem =
        send_one(&acme.client, r#"{"source_id":""}"#).await.expect_problem(422, "validation_failed");
    assert!(problem.detail.ends_with("the quarantine is full."), "{}", problem.detail);
    assert_eq!(problem.errors[0].pointer, "/source_id");
    send(&other.client, NDJSON, "a\n").await.expect::<BatchResponse>(202);

    let sequences: Vec<_> = list(&acme.client).await.iter().map(|letter| letter.sequence).collect();
    let body = json!({ "sequences": [sequences[0]] });
    acme.client.post("/events/quarantine/delete", &body).await.expect::<HandledDeadLetters>(200);
    let batch: BatchResponse = send(&acme.client, NDJSON, "d\ne\n").await.expect(207);
    assert_eq!(statuses(&batch), [quarantined, "rejected malformed_json"]);
}

#[tokio::test]
async fn the_bytes_of_a_tenant_are_bounded_and_a_body_is_stored_as_a_whole_or_not() {
    let system = TestSystem::start_with(&[("SVC_QUARANTINE_MAX_BYTES", "500KiB")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let item = |first: &str| format!("{first}{}", "x".repeat(200 * 1024));
    let lines = [item("a"), item("b"), item("c")].join("\n");
    let batch: BatchResponse = send(&admin.client, NDJSON, lines).await.expect(207);
    assert_eq!((batch.quarantined_events, batch.failed_events), (Some(2), 1));
    send(&admin.client, JSON, format!("[{}", item("d"))).await.expect_problem(400, "malformed_json");
    assert_eq!(dead_letters(&system).await.len(), 2);
}

#[tokio::test]
async fn a_full_quarantine_leaves_room_for_the_dead_letters_of_consumers() {
    // The stream of dead letters has 2 MiB.
    let variables = [("SVC_STREAM_MAX_BYTES", "16MiB"), ("SVC_TENANT_STREAM_SHARE", "100")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let item = "x".repeat(200 * 1024);
    let lines: Vec<_> = (0..20).map(|number| format!("{number}{item}")).collect();
    let batch: BatchResponse = send(&admin.client, NDJSON, lines.join("\n")).await.expect(207);
    assert!((3..=5).contains(&batch.quarantined_events.unwrap()), "{:?}", batch.quarantined_events);
    let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
    for _ in 0..4 {
        #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
        let stored = broker.publish("udm.dlq.v1.other.archive", item.clone().into()).await.unwrap();
        stored.await.unwrap();
    }
}

#[tokio::test]
async fn dead_letters_that_take_half_of_the_stream_leave_room_for_quarantined_items() {
    // The stream of dead letters has 2 MiB.
    let variables = [("SVC_STREAM_MAX_BYTES", "16MiB"), ("SVC_TENANT_STREAM_SHARE", "100")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
    for number in 0..120 {
        #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
        let sent = broker.publish(format!("udm.dlq.v1.t{number}.archive"), vec![b'x'; 8 << 10].into()).await;
        sent.unwrap().await.unwrap();
    }
    let item = "x".repeat(200 * 1024);
    let lines: Vec<_> = (0..6).map(|number| format!("{number}{item}")).collect();
    let batch: BatchResponse = send(&admin.client, NDJSON, lines[..4].join("\n")).await.expect(202);
    assert_eq!(batch.quarantined_events, Some(4));
    let batch: BatchResponse = send(&admin.client, NDJSON, lines[4..].join("\n")).await.expect(207);
    assert_eq!(batch.quarantined_events, Some(1), "half of the stream has space for five");
    let metrics = format!("{}/metrics", system.admin_url);
    wait_until("the used parts are measured", async || {
        let text = testkit::client::plain_http().get(&metrics).send().await.ok()?.text().await.ok()?;
        let exposes =
            |half: &str, used: &str| text.contains(&format!("used_ratio{{half=\"{half}\"}} {used}"));
        (exposes("consumers", "0.99") && exposes("quarantine", "0.97")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_json_of_an_item_is_shown_with_its_bytes_and_text_that_parsers_do_not_read_as_a_string() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let json = r#"{"z":1.50, "big":12345678901234567890123,"a":1,"a":2}"#;
    let texts = [r#"{"x":1e999}"#, r#"{"x":"\ud800"}"#, "{broken"];
    let body = [&[json][..], &texts[..]].concat().join("\n");
    send(&acme.client, NDJSON, body).await.expect::<BatchResponse>(202);
    let mut events: Vec<_> =
        list(&acme.client).await.iter().map(|letter| letter.event.get().to_owned()).collect();
    events.sort_unstable();
    let mut expected = texts.map(|text| json!(text).to_string()).to_vec();
    expected.push(json.to_owned());
    expected.sort_unstable();
    assert_eq!(events, expected);
}

#[tokio::test]
async fn an_administrator_reads_and_deletes_the_items_of_the_own_tenant_only() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    send(&acme.client, NDJSON, b"\xff{broken\n".to_vec()).await.expect::<BatchResponse>(202);
    send(&other.client, NDJSON, "[1]\n").await.expect::<BatchResponse>(202);
    let [letter] = &list(&acme.client).await[..] else { panic!() };
    let details = letter.quarantine.as_ref().unwrap();
    assert_eq!((letter.tenant_id.as_str(), &*details.code), ("acme", "malformed_json"));
    assert!(letter.reason.as_deref().unwrap().contains("it is not UTF-8 at byte "), "{letter:?}");
    assert!(details.request_id.is_some() && details.credential.as_deref().unwrap().starts_with("session:"));
    assert_eq!((details.payload.as_deref(), details.part.as_deref()), (None, None));

    let path = format!("/events/quarantine/{}", letter.sequence);
    let got: DeadLetter = acme.client.get(&path).await.expect(200);
    let payload = got.quarantine.unwrap().payload.unwrap();
    assert_eq!(BASE64.decode(payload.as_bytes()).unwrap(), b"\xff{broken");
    other.client.get(&path).await.expect_problem(404, "not_found");
    acme.client.get("/events/quarantine?tenant_id=other").await.expect_problem(403, "tenant_mismatch");
    let body = json!({ "sequences": [letter.sequence, 999] });
    let deleted: HandledDeadLetters = other.client.post("/events/quarantine/delete", &body).await.expect(200);
    assert_eq!((deleted.handled, deleted.skipped), (vec![], vec![letter.sequence, 999]));

    let of_acme = json!({ "sequences": [letter.sequence], "tenant_id": "acme" });
    other.client.post("/events/quarantine/delete", &of_acme).await.expect_problem(403, "tenant_mismatch");

    let platform = system.platform_admin();
    let numbers: Vec<_> = list(&platform).await.iter().map(|letter| letter.sequence).collect();
    let of_third = json!({ "sequences": numbers, "tenant_id": "third" });
    let deleted: HandledDeadLetters = platform.post("/events/quarantine/delete", &of_third).await.expect(200);
    assert_eq!((deleted.handled, deleted.skipped), (vec![], numbers), "only items of the named tenant");
    assert_eq!(list(&platform).await.len(), 2);
    let of_other = platform.get("/events/quarantine?tenant_id=other").await.expect::<Page<DeadLetter>>(200);
    assert_eq!(of_other.items.iter().map(|letter| letter.tenant_id.as_str()).collect::<Vec<_>>(), ["other"]);
    let deleted: HandledDeadLetters = acme.client.post("/events/quarantine/delete", &body).await.expect(200);
    assert_eq!(deleted.handled, [letter.sequence]);
    assert!(list(&acme.client).await.is_empty());
    acme.client.get(&path).await.expect_problem(404, "not_found");
    let member: TestUser = system.add_user(&acme, "member@acme.example", Role::Member).await;
    member.client.get("/events/quarantine").await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn metrics_count_items_by_reason_and_show_the_largest_used_part_until_items_are_deleted() {
    let system = TestSystem::start_with(&[("SVC_QUARANTINE_MAX_ITEMS", "4")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    send(&acme.client, NDJSON, "a\nb\n[1]\n").await.expect::<BatchResponse>(202);
    send(&other.client, NDJSON, "a\nb\nc\nd\ne\n").await.expect::<BatchResponse>(207);
    let metrics = format!("{}/metrics", system.admin_url);
    let exposes = async |line: String| {
        wait_until(&line, async || {
            let text = testkit::client::plain_http().get(&metrics).send().await.ok()?.text().await.ok()?;
            text.lines().any(|exposed| exposed == line).then_some(())
        })
        .await;
    };
    exposes(r#"svc_quarantined_items_total{reason="malformed_json"} 6"#.to_owned()).await;
    exposes(r#"svc_quarantined_items_total{reason="validation_failed"} 1"#.to_owned()).await;
    exposes("svc_quarantine_rejected_items_total 1".to_owned()).await;
    exposes("svc_quarantine_used_ratio 1.0".to_owned()).await;
    let sequences: Vec<_> = list(&other.client).await.iter().map(|letter| letter.sequence).collect();
    let body = json!({ "sequences": sequences });
    other.client.post("/events/quarantine/delete", &body).await.expect::<HandledDeadLetters>(200);
    exposes("svc_quarantine_used_ratio 0.75".to_owned()).await;
}

#[tokio::test]
async fn quarantined_items_are_not_reached_under_the_name_of_a_consumer() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    send(&admin.client, NDJSON, "broken\n").await.expect::<BatchResponse>(202);
    let platform = system.platform_admin();
    platform.get("/consumers/_ingest/dead-letters").await.expect_problem(404, "not_found");
    let body = json!({ "sequences": [1] });
    platform.post("/consumers/_ingest/dead-letters/replay", &body).await.expect_problem(404, "not_found");
    platform.post("/consumers", &json!({ "name": "_ingest" })).await.expect_problem(422, "validation_failed");
    assert_eq!(dead_letters(&system).await.len(), 1);
}

#[tokio::test]
async fn the_numbers_of_a_tenant_do_not_count_the_items_of_others() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    for n in 0..3 {
        send(&acme.client, NDJSON, format!("a{n}\nb{n}\n")).await.expect::<BatchResponse>(202);
        send(&other.client, NDJSON, format!("c{n}\n")).await.expect::<BatchResponse>(202);
    }
    let numbers =
        |letters: Vec<DeadLetter>| letters.into_iter().map(|letter| letter.sequence).collect::<Vec<_>>();
    let of_stream = numbers(list(&system.platform_admin()).await);
    assert!(of_stream.is_sorted(), "{of_stream:?}");
    let of_acme = numbers(list(&acme.client).await);
    let visible =
        |numbers: &[u64]| numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 1000).count();
    assert_eq!((of_acme.len(), visible(&of_acme)), (6, 0), "{of_acme:?}");

    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let path = format!("/events/quarantine{query}");
        let page: Page<DeadLetter> = acme.client.get(&path).await.expect(200);
        paged.extend(numbers(page.items));
        let Some(cursor) = page.next_cursor else { break };
        let number: u64 = cursor.strip_prefix("quarantine.").unwrap().parse().unwrap();
        assert!(number > 1000, "a cursor contains a number of the tenant: {cursor}");
        query = format!("?limit=2&cursor={cursor}");
    }
    assert_eq!(paged, of_acme);

    for number in of_stream {
        let path = format!("/events/quarantine/{number}");
        acme.client.get(&path).await.expect_problem(404, "not_found");
    }
    for number in &of_acme {
        let path = format!("/events/quarantine/{number}");
        assert_eq!(acme.client.get(&path).await.expect::<DeadLetter>(200).sequence, *number);
        other.client.get(&path).await.expect_problem(404, "not_found");
    }
    let body = json!({ "sequences": of_acme });
    let deleted: HandledDeadLetters = other.client.post("/events/quarantine/delete", &body).await.expect(200);
    assert_eq!(deleted.skipped, of_acme);
    let deleted: HandledDeadLetters = acme.client.post("/events/quarantine/delete", &body).await.expect(200);
    assert_eq!(deleted.handled, of_acme);
    assert_eq!((list(&acme.client).await.len(), list(&other.client).await.len()), (0, 3));
}

#[tokio::test]
async fn lists_and_deletions_of_quarantined_items_are_limited_per_tenant() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_AUDIT", "2/h")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    for _ in 0..2 {
        list(&acme.client).await;
    }
    for path in ["/events/quarantine", "/events/quarantine/1"] {
        acme.client.get(path).await.expect_problem(429, "rate_limited");
    }
    let body = json!({ "sequences": [1] });
    acme.client.post("/events/quarantine/delete", &body).await.expect_problem(429, "rate_limited");
    list(&other.client).await;
    let body = json!({ "sequences": [1], "tenant_id": "acme" });
    for _ in 0..3 {
        list(&system.platform_admin()).await;
        let deletion = system.platform_admin().post("/events/quarantine/delete", &body).await;
        deletion.expect::<HandledDeadLetters>(200);
    }
}
