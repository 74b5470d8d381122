//! `/consumers/{consumer_name}/dead-letters`.

use async_nats::HeaderMap;
use async_nats::jetstream;
use bus::Message;
use contract::Page;
use contract::consumers::{DeadLetter, HandledDeadLetters};
use serde_json::{Value, json};
use testsystem::TestSystem;

use super::changes::{abouts, recorded};

const EVENT: &str = r#"{"sourceId":"fw 1/ä", "n":1.50}"#;

struct Fixture {
    system: TestSystem,
    broker: jetstream::Context,
}

impl Fixture {
    async fn start() -> Self {
        let system = TestSystem::start().await.unwrap();
        let body = json!({ "name": "archive", "all_tenants": true });
        system.platform_admin().post("/consumers", &body).await.expect::<Value>(201);
        let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
        Self { system, broker }
    }

    /// Stores a dead letter as a consumer does, with these headers in addition to those of an event.
    async fn store(&self, consumer: &str, changes: &[(&'static str, &str)]) -> u64 {
        let received_at = "2026-01-31T12:00:00Z".parse().unwrap();
        let context = bus::EventContext::new("acme".parse().unwrap(), received_at, "req-1", "key:k1", None);
        let event = udm::parse(EVENT.as_bytes()).unwrap();
        let mut headers = Message::event(&context, &event, "e1", EVENT.into()).unwrap().headers();
        for (name, value) in changes {
            headers.insert(*name, *value);
        }
        self.store_raw(consumer, headers).await
    }

    #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
    async fn store_raw(&self, consumer: &str, headers: HeaderMap) -> u64 {
        let subject = format!("udm.dlq.v1.acme.{consumer}");
        let stored = self.broker.publish_with_headers(subject, headers, EVENT.into()).await.unwrap();
        stored.await.unwrap().sequence
    }

    async fn list(&self, consumer: &str, query: &str) -> Page<DeadLetter> {
        let path = format!("/consumers/{consumer}/dead-letters{query}");
        self.system.platform_admin().get(&path).await.expect(200)
    }

    async fn replay(&self, consumer: &str, sequences: &[u64]) -> HandledDeadLetters {
        let path = format!("/consumers/{consumer}/dead-letters/replay");
        let body = json!({ "sequences": sequences });
        self.system.platform_admin().post(&path, &body).await.expect(200)
    }
}

#[tokio::test]
async fn a_replayed_dead_letter_is_stored_as_the_same_event_for_its_consumer() {
    let fixture = Fixture::start().await;
    let headers = [
        ("Nats-Msg-Id", "archive-UDM-7"),
        ("Nats-Expected-Stream", "UDM_DLQ"),
        ("Udm-Dlq-Reason", "no such column"),
        ("Udm-Dlq-Attempts", "5"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    let sequence = fixture.store("archive", &headers).await;
    let listed = fixture.list("archive", "").await.items;
    assert_eq!(listed.len(), 1);
    let letter = &listed[0];
    assert_eq!((letter.sequence, letter.tenant_id.as_str()), (sequence, "acme"));
    assert_eq!((letter.source_id.as_deref(), letter.event_id.as_deref()), (Some("fw 1/ä"), Some("e1")));
    assert_eq!((letter.reason.as_deref(), letter.attempts), (Some("no such column"), Some(5)));
    assert_eq!(letter.event.get(), EVENT);

    let result = fixture.replay("archive", &[sequence]).await;
    assert_eq!((result.handled, result.skipped), (vec![sequence], vec![]));
    let stored = fixture.broker.get_stream("UDM").await.unwrap().get_raw_message(1).await.unwrap();
    let part = bus::partition(&"acme".parse().unwrap(), "fw 1/ä");
    assert_eq!(stored.subject.as_str(), format!("udm.v1.{part:02}.acme.GENERIC_EVENT"));
    assert_eq!(stored.payload, EVENT);
    let header = |name: &str| stored.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(header("Udm-Replay-For").as_deref(), Some("archive"));
    // The event is not stored any more, and the consumer can have changed its headers.
    let received_at = letter.failed_at.timestamp_millis().to_string();
    assert_eq!(header("Udm-Received-At"), Some(received_at));
    assert_eq!(header("Udm-Credential").as_deref(), Some("consumer:archive"));
    assert_eq!(header("Udm-Request-Id"), Some(format!("replay-{sequence}")));
    assert_eq!(header("traceparent"), None);
    assert_eq!(header("ce-id").as_deref(), Some("e1"));
    assert_eq!(header("Nats-Msg-Id"), Some(format!("replay-{sequence}")));
    assert_eq!((header("Udm-Dlq-Reason"), header("Nats-Expected-Stream")), (None, None));

    assert!(fixture.list("archive", "").await.items.is_empty());
    let repeated = fixture.replay("archive", &[sequence]).await;
    assert_eq!((repeated.handled, repeated.skipped), (vec![], vec![sequence]));
}

#[tokio::test]
async fn dead_letters_of_another_consumer_are_neither_listed_nor_replayed() {
    let fixture = Fixture::start().await;
    let other = fixture.store("other", &[]).await;
    let own = fixture.store("archive", &[("Nats-Msg-Id", "2")]).await;
    let listed = fixture.list("archive", "").await.items;
    assert_eq!(listed.iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [own]);
    let result = fixture.replay("archive", &[other, 999]).await;
    assert_eq!((result.handled, result.skipped), (vec![], vec![other, 999]));
    assert_eq!(fixture.list("other", "").await.items.len(), 1);
}

#[tokio::test]
async fn a_consumer_of_one_tenant_does_not_get_what_an_earlier_one_of_its_name_left_of_another_tenant() {
    let fixture = Fixture::start().await;
    let left = fixture.store("archive", &[]).await;
    let platform = fixture.system.platform_admin();
    for (tenant, is_replayed) in [("beta", false), ("acme", true)] {
        platform.delete("/consumers/archive").await.expect_empty(204);
        assert_eq!(fixture.list("archive", "").await.items.len(), 1, "a deleted consumer keeps them");
        let request = json!({ "name": "archive", "tenant_id": tenant });
        platform.post("/consumers", &request).await.expect::<Value>(201);
        let listed = fixture.list("archive", "").await.items;
        assert_eq!(listed[0].tenant_id.as_str(), "acme", "an administrator can delete it");
        let replayed = fixture.replay("archive", &[left]).await.handled;
        assert_eq!(replayed, if is_replayed { vec![left] } else { vec![] });
    }
}

#[tokio::test]
async fn with_a_tenant_only_its_dead_letters_are_listed_replayed_and_deleted() {
    let fixture = Fixture::start().await;
    let one = fixture.store("archive", &[]).await;
    let other = fixture.store("archive", &[("Nats-Msg-Id", "2")]).await;
    assert!(fixture.list("archive", "?tenant_id=beta").await.items.is_empty());
    let platform = fixture.system.platform_admin();
    for action in ["replay", "delete"] {
        let path = format!("/consumers/archive/dead-letters/{action}");
        let body = json!({ "sequences": [one], "tenant_id": "beta" });
        let result: HandledDeadLetters = platform.post(&path, &body).await.expect(200);
        assert_eq!((result.handled, result.skipped), (vec![], vec![one]), "{action}");
    }
    assert_eq!(fixture.list("archive", "?tenant_id=acme").await.items.len(), 2);
    for (action, number) in [("delete", other), ("replay", one)] {
        let path = format!("/consumers/archive/dead-letters/{action}");
        let body = json!({ "sequences": [number], "tenant_id": "acme" });
        let result: HandledDeadLetters = platform.post(&path, &body).await.expect(200);
        assert_eq!((result.handled, result.skipped), (vec![number], vec![]), "{action}");
    }
    assert!(fixture.list("archive", "").await.items.is_empty());
}

#[tokio::test]
async fn dead_letters_are_listed_in_pages() {
    let fixture = Fixture::start().await;
    let mut stored = Vec::new();
    for number in 0..5 {
        stored.push(fixture.store("archive", &[("Nats-Msg-Id", &format!("m{number}"))]).await);
    }
    let (mut listed, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = fixture.list("archive", &query).await;
        assert!(page.items.len() <= 2);
        listed.extend(page.items.iter().map(|letter| letter.sequence));
        let Some(cursor) = page.next_cursor else { break };
        query = format!("?limit=2&cursor={cursor}");
    }
    assert_eq!(listed, stored);
}

#[tokio::test]
async fn a_dead_letter_that_does_not_match_its_event_is_listed_and_not_replayed() {
    let fixture = Fixture::start().await;
    let without_headers = fixture.store_raw("archive", HeaderMap::new()).await;
    let forged = fixture.store("archive", &[("ce-type", "A.B"), ("Nats-Msg-Id", "2")]).await;
    let other_source = fixture.store("archive", &[("ce-source", "fw-2"), ("Nats-Msg-Id", "3")]).await;
    let sequences = [without_headers, forged, other_source];
    assert_eq!(fixture.list("archive", "").await.items.len(), 3);
    let result = fixture.replay("archive", &sequences).await;
    assert_eq!((result.handled, result.skipped), (vec![], sequences.to_vec()));
    assert_eq!(fixture.list("archive", "").await.items.len(), 3);
}

impl Fixture {
    /// Sends an event of a tenant as its administrator. Returns its headers and payload as stored.
    async fn send(&self, tenant: &str, event: &Value) -> async_nats::jetstream::message::StreamMessage {
        let sender = self.system.create_tenant(tenant).await;
        sender.client.post("/events", event).await.expect::<Value>(202);
        let mut stream = self.broker.get_stream("UDM").await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        stream.get_raw_message(last).await.unwrap()
    }

    /// Stores a dead letter of `acme` that refers to a message, as a consumer does.
    #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
    async fn refer(&self, event: &HeaderMap, stream: &str, sequence: &str) -> u64 {
        let mut headers = event.clone();
        headers.insert(
            "Nats-Msg-Id",
            format!("{stream}-{sequence}-{}", self.list("archive", "").await.items.len()),
        );
        headers.insert("Udm-Dlq-Reason", "too large");
        headers.insert("Udm-Dlq-Stream", stream);
        headers.insert("Udm-Dlq-Sequence", sequence);
        let stored = self.broker.publish_with_headers("udm.dlq.v1.acme.archive", headers, "".into()).await;
        stored.unwrap().await.unwrap().sequence
    }
}

#[tokio::test]
async fn a_dead_letter_that_refers_to_its_event_is_listed_and_replayed_with_it() {
    let fixture = Fixture::start().await;
    let event = json!({ "source_id": "fw 1/ä", "event_id": "e1", "note": "x".repeat(200_000) });
    let stored = fixture.send("acme", &event).await;
    let sequence = fixture.refer(&stored.headers, "UDM", &stored.sequence.to_string()).await;
    let listed = fixture.list("archive", "").await.items;
    let letter = &listed[0];
    assert_eq!((letter.sequence, letter.reason.as_deref()), (sequence, Some("too large")));
    assert_eq!(letter.event.get(), event.to_string());
    let result = fixture.replay("archive", &[sequence]).await;
    assert_eq!((result.handled, result.skipped), (vec![sequence], vec![]));
    let last = stored.sequence + 1;
    let replayed = fixture.broker.get_stream("UDM").await.unwrap().get_raw_message(last).await.unwrap();
    assert_eq!((replayed.subject, replayed.payload), (stored.subject, stored.payload));
    for name in ["ce-id", "ce-source", "ce-time", "Udm-Received-At", "Udm-Credential"] {
        assert_eq!(replayed.headers.get(name), stored.headers.get(name), "{name}");
    }
    assert_eq!(replayed.headers.get("Udm-Replay-For").unwrap().as_str(), "archive");
    assert!(fixture.list("archive", "").await.items.is_empty());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
async fn while_the_event_is_stored_a_changed_copy_is_neither_listed_nor_replayed() {
    let fixture = Fixture::start().await;
    let event = json!({ "source_id": "fw", "event_id": "e1", "n": 1 });
    let stored = fixture.send("acme", &event).await;
    let (mut headers, place) = (stored.headers.clone(), stored.sequence.to_string());
    for (name, value) in [
        ("Nats-Msg-Id", "1"),
        ("Udm-Credential", "key:forged"),
        ("Udm-Received-At", "1"),
        ("ce-time", "1999-01-01T00:00:00Z"),
        ("Udm-Dlq-Stream", "UDM"),
        ("Udm-Dlq-Sequence", place.as_str()),
    ] {
        headers.insert(name, value);
    }
    let changed = r#"{"source_id":"fw","event_id":"e1","n":2}"#;
    let sent = fixture.broker.publish_with_headers("udm.dlq.v1.acme.archive", headers, changed.into()).await;
    let sequence = sent.unwrap().await.unwrap().sequence;
    assert_eq!(fixture.list("archive", "").await.items[0].event.get(), event.to_string());
    assert_eq!(fixture.replay("archive", &[sequence]).await.handled, [sequence]);
    let last = stored.sequence + 1;
    let replayed = fixture.broker.get_stream("UDM").await.unwrap().get_raw_message(last).await.unwrap();
    assert_eq!(replayed.payload, stored.payload);
    for name in ["ce-time", "Udm-Received-At", "Udm-Credential", "Udm-Request-Id"] {
        assert_eq!(replayed.headers.get(name), stored.headers.get(name), "{name}");
    }
}

#[tokio::test]
async fn a_dead_letter_that_refers_to_another_event_or_none_shows_no_event_and_is_kept() {
    let fixture = Fixture::start().await;
    let event = |id: &str| json!({ "source_id": "fw", "event_id": id, "secret": id });
    // The same source and id as the event of the other tenant.
    let own = fixture.send("acme", &event("e1")).await;
    let foreign = fixture.send("globex", &event("e1")).await;
    let [own_place, foreign_place] = [own.sequence.to_string(), foreign.sequence.to_string()];
    let mut other_id = own.headers.clone();
    other_id.insert("ce-id", "e2");
    let mut other_source = own.headers.clone();
    other_source.insert("ce-source", "fw-2");
    let mut sequences = Vec::new();
    for (headers, stream, place) in [
        (&own.headers, "UDM", foreign_place.as_str()),
        (&own.headers, "UDM", "999"),
        (&own.headers, "UDM", "0"),
        (&own.headers, "UDM", "-1"),
        (&own.headers, "UDM", "18446744073709551615"),
        (&own.headers, "UDM_DLQ", "1"),
        (&own.headers, "AUDIT", "1"),
        (&own.headers, "UDM.>", "1"),
        (&other_id, "UDM", &own_place),
        (&other_source, "UDM", &own_place),
        (&HeaderMap::new(), "UDM", &own_place),
    ] {
        sequences.push(fixture.refer(headers, stream, place).await);
    }
    let listed = fixture.list("archive", "").await.items;
    assert_eq!(listed.len(), sequences.len());
    for letter in &listed {
        assert_eq!(letter.event.get(), "null", "{letter:?}");
        assert_eq!(letter.reason.as_deref(), Some("too large"));
    }
    let result = fixture.replay("archive", &sequences).await;
    assert_eq!((result.handled, result.skipped), (vec![], sequences));
    // The control.
    fixture.refer(&own.headers, "UDM", &own_place).await;
    let listed = fixture.list("archive", "").await.items;
    assert_eq!(listed.last().unwrap().event.get(), event("e1").to_string());
}

#[tokio::test]
async fn a_deleted_dead_letter_is_gone_and_those_of_another_consumer_are_skipped() {
    let fixture = Fixture::start().await;
    let other = fixture.store("other", &[]).await;
    let [first, second] = [
        fixture.store("archive", &[("Nats-Msg-Id", "1")]).await,
        fixture.store("archive", &[("Nats-Msg-Id", "2")]).await,
    ];
    let body = json!({ "sequences": [first, other, 999] });
    let client = fixture.system.platform_admin();
    let result = client.post("/consumers/archive/dead-letters/delete", &body).await;
    assert_eq!(result.expect::<Value>(200), json!({ "handled": [first], "skipped": [other, 999] }));
    let left = fixture.list("archive", "").await.items;
    assert_eq!(left.iter().map(|letter| letter.sequence).collect::<Vec<_>>(), [second]);
    assert_eq!(fixture.list("other", "").await.items.len(), 1);
}

#[tokio::test]
async fn replay_and_deletion_are_audit_events_of_the_tenant_of_the_dead_letters() {
    let fixture = Fixture::start().await;
    let admin = fixture.system.create_tenant("acme").await;
    let client = fixture.system.platform_admin();
    let mut sequences = Vec::new();
    for id in ["1", "2", "3"] {
        sequences.push(fixture.store("archive", &[("Nats-Msg-Id", id)]).await);
    }
    assert_eq!(fixture.replay("archive", &sequences[..2]).await.handled, sequences[..2]);
    client.delete("/consumers/archive").await.expect_empty(204);
    let body = json!({ "sequences": [sequences[2]] });
    client.post("/consumers/archive/dead-letters/delete", &body).await.expect::<Value>(200);
    let records = recorded(&fixture.system, &admin.client).await;
    // The consumer reads all tenants, so its creation and deletion are in the log only.
    assert_eq!(abouts(&records), ["dead_letters_replayed", "dead_letters_deleted"]);
    assert!(records.iter().all(|record| record.consumer.as_deref() == Some("archive")), "{records:?}");
}

#[tokio::test]
async fn a_request_has_1_to_100_numbers() {
    let fixture = Fixture::start().await;
    for (action, count) in [("replay", 0), ("replay", 101), ("delete", 0), ("delete", 101)] {
        let sequences: Vec<_> = (1..=count).collect();
        let body = json!({ "sequences": sequences });
        let path = format!("/consumers/archive/dead-letters/{action}");
        let response = fixture.system.platform_admin().post(&path, &body).await;
        response.expect_problem(422, "validation_failed");
    }
}

#[tokio::test]
async fn without_the_broker_dead_letters_are_unavailable() {
    let mut fixture = Fixture::start().await;
    fixture.system.nats.stop();
    let client = fixture.system.platform_admin();
    let listed = client.get("/consumers/archive/dead-letters").await;
    listed.expect_problem(503, "dependency_unavailable");
}

#[tokio::test]
async fn a_consumer_that_neither_exists_nor_has_dead_letters_is_not_found() {
    let fixture = Fixture::start().await;
    let client = fixture.system.platform_admin();
    client.get("/consumers/unknown/dead-letters").await.expect_problem(404, "not_found");
    let body = json!({ "sequences": [1] });
    for action in ["replay", "delete"] {
        let path = format!("/consumers/unknown/dead-letters/{action}");
        client.post(&path, &body).await.expect_problem(404, "not_found");
    }
}

#[tokio::test]
async fn dead_letters_of_a_deleted_consumer_are_listed_and_kept() {
    let fixture = Fixture::start().await;
    let sequence = fixture.store("archive", &[]).await;
    let client = fixture.system.platform_admin();
    client.delete("/consumers/archive").await.expect_empty(204);
    assert_eq!(fixture.list("archive", "").await.items.len(), 1);
    let body = json!({ "sequences": [sequence] });
    client.post("/consumers/archive/dead-letters/replay", &body).await.expect_problem(404, "not_found");
    assert_eq!(fixture.list("archive", "").await.items.len(), 1);
}
