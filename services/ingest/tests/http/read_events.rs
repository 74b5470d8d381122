//! `/events/stream`.

use std::collections::VecDeque;
use std::time::Duration;

use contract::Role;
use contract::events::{AcceptedEvent, StreamedEvent};
use futures::StreamExt as _;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use testkit::{Client, wait_until, within};
use testsystem::TestSystem;

const JSON: &str = "application/json";
const LIMIT: Duration = Duration::from_mins(1);

/// A response with server-sent events that is being read.
struct Reader {
    response: Response,
    text: String,
    frames: VecDeque<Frame>,
    last_id: String,
}

/// A server-sent event.
#[derive(Clone, Debug)]
struct Frame {
    event: String,
    data: String,
}

impl Reader {
    async fn open(client: &Client, query: &str) -> Self {
        let request = client.request(Method::GET, &format!("/events/stream{query}"));
        let response = within(LIMIT, "the response", request.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        Self { response, text: String::new(), frames: VecDeque::new(), last_id: String::new() }
    }

    /// Opens a stream and waits until it has started.
    async fn started(client: &Client, query: &str) -> Self {
        let mut reader = Self::open(client, query).await;
        assert_eq!(reader.next().await.unwrap().event, "position");
        reader
    }

    /// Returns the next event, or `None` at the end.
    async fn next(&mut self) -> Option<Frame> {
        while self.frames.is_empty() {
            // An error is an end too, for example if the server closes the connection of a slow reader.
            let chunk = within(LIMIT, "the next event", self.response.chunk()).await.ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines: Vec<_> = frame.lines().filter_map(|line| line.strip_prefix(name)).collect();
                    assert_eq!(lines.len(), 1, "{frame}");
                    lines[0].to_owned()
                };
                self.last_id = field("id: ");
                self.frames.push_back(Frame { event: field("event: "), data: field("data: ") });
                let rest = rest.to_owned();
                self.text = rest;
            }
        }
        self.frames.pop_front()
    }

    async fn next_event(&mut self) -> StreamedEvent {
        loop {
            let frame = self.next().await.unwrap();
            assert_ne!(frame.event, "gap");
            if frame.event == "udm" {
                return serde_json::from_str(&frame.data).unwrap();
            }
        }
    }

    async fn next_ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.len() < count {
            ids.push(self.next_event().await.event_id);
        }
        ids
    }

    /// Reads to the end. Returns the ids of the events.
    async fn rest(mut self) -> Vec<String> {
        let (mut ids, mut is_complete) = (Vec::new(), false);
        while let Some(frame) = self.next().await {
            is_complete = frame.event == "end";
            if frame.event == "udm" {
                ids.push(serde_json::from_str::<StreamedEvent>(&frame.data).unwrap().event_id);
            }
        }
        assert!(is_complete, "the response ended before the stored events");
        ids
    }
}

async fn send(client: &Client, source_id: &str, event_type: &str, event_id: &str) {
    let event =
        json!({ "source_id": source_id, "event_id": event_id, "metadata": { "event_type": event_type } });
    client.post("/events", &event).await.expect::<AcceptedEvent>(202);
}

async fn send_all(client: &Client, ids: std::ops::Range<u32>) {
    for id in ids {
        send(client, &format!("fw-{}", id % 3), "LOGIN", &id.to_string()).await;
    }
}

fn ids(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|id| id.to_string()).collect()
}

#[tokio::test]
async fn tenant_reads_its_own_new_events_with_their_metadata() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    send(&acme.client, "fw", "LOGIN", "before").await;
    let mut reader = Reader::started(&acme.client, "").await;
    assert_eq!(reader.response.headers()["content-type"], "text/event-stream");
    assert_eq!(reader.response.headers()["cache-control"], "no-store");
    assert_eq!(reader.response.headers()["x-accel-buffering"], "no");
    send(&other.client, "fw", "LOGIN", "foreign").await;
    let body = "{ \"source_id\":\"fire wall/1\",\r\n \"event_id\": \"1\", \"x\": \"a\\nb\", \"n\": 1.0 }";
    let accepted: AcceptedEvent = acme.client.post_bytes("/events", JSON, body).await.expect(202);
    let event = reader.next_event().await;
    assert_eq!((event.event_id.as_str(), event.source_id.as_str()), ("1", "fire wall/1"));
    assert_eq!(
        (event.server_event_id, event.event_type.as_str()),
        (accepted.server_event_id, "GENERIC_EVENT")
    );
    assert!((event.received_at - accepted.received_at).num_milliseconds().abs() <= 1);
    assert_eq!(event.event.get(), body.replace("\r\n", "  "));
}

#[tokio::test]
async fn reader_continues_after_the_last_id_without_loss_and_repetition() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let mut reader = Reader::started(&acme.client, "").await;
    let start = reader.last_id.clone();
    let mut seen = Vec::new();
    for round in 0..6 {
        send_all(&other.client, round * 10..round * 10 + 2).await;
        send_all(&acme.client, round * 10..round * 10 + 10).await;
        seen.extend(reader.next_ids(7).await);
        let (id, client) = (reader.last_id.clone(), acme.client.clone());
        drop(reader);
        reader = if round % 2 == 0 {
            Reader::open(&client.header("Last-Event-ID", &id), &format!("?after={start}")).await
        } else {
            Reader::open(&client, &format!("?after={id}")).await
        };
    }
    seen.extend(reader.next_ids(18).await);
    assert_eq!(seen, ids(0..60));
    let since = Reader::open(&acme.client, "?since=2020-01-01T00:00:00Z&follow=false").await;
    assert_eq!(since.rest().await, ids(0..60));
    let none = Reader::open(&acme.client, &format!("?after={}&follow=false", reader.last_id)).await;
    assert!(none.rest().await.is_empty());
}

#[tokio::test]
async fn events_that_are_not_stored_any_more_are_a_gap() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let start = Reader::started(&acme.client, "").await.last_id;
    send_all(&acme.client, 0..10).await;
    let client = system.nats.connect("administrator").await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("UDM").await.unwrap();
    stream.purge().sequence(6).await.unwrap();
    let mut reader = Reader::open(&acme.client, &format!("?after={start}&follow=false")).await;
    assert_eq!(reader.next().await.unwrap().event, "gap");
    assert_eq!(reader.rest().await, ids(5..10));
}

#[tokio::test]
async fn filters_select_types_and_a_source() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    for (id, (source, event_type)) in
        [("a", "A"), ("b", "A"), ("a", "B"), ("b", "C"), ("ä b", "A")].into_iter().enumerate()
    {
        send(&acme.client, source, event_type, &id.to_string()).await;
    }
    for (query, expected) in [
        ("", &["0", "1", "2", "3", "4"][..]),
        ("&event_type=A", &["0", "1", "4"]),
        ("&event_type=B&event_type=C", &["2", "3"]),
        ("&source_id=b", &["1", "3"]),
        ("&source_id=%C3%A4%20b&event_type=A", &["4"]),
        ("&source_id=c", &[]),
    ] {
        let query = format!("?since=2020-01-01T00:00:00Z&follow=false{query}");
        assert_eq!(Reader::open(&acme.client, &query).await.rest().await, expected, "{query}");
    }
}

#[tokio::test]
async fn api_key_reads_the_events_of_its_sources_only() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let key = json!({ "name": "reader", "scopes": ["events:read"], "source_ids": ["fw-1", "fw-2"] });
    let (_, holder) = system.create_api_key(&acme, &key).await;
    send_all(&acme.client, 0..6).await;
    let all = "?since=2020-01-01T00:00:00Z&follow=false";
    assert_eq!(Reader::open(&holder, all).await.rest().await, ["1", "2", "4", "5"]);
    assert_eq!(Reader::open(&holder, &format!("{all}&source_id=fw-2")).await.rest().await, ["2", "5"]);
    holder.get("/events/stream?source_id=fw-0").await.expect_problem(403, "source_not_allowed");
    holder.post("/events", &json!({ "source_id": "fw-1" })).await.expect_problem(403, "insufficient_scope");
}

#[tokio::test]
async fn members_and_keys_without_the_scope_cannot_read() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let member = system.add_user(&acme, "ada@acme.example", Role::Member).await;
    member.client.get("/events/stream").await.expect_problem(403, "forbidden");
    let (_, key) = system.create_api_key(&acme, &json!({ "name": "sender" })).await;
    let problem = key.get("/events/stream").await.expect_problem(403, "insufficient_scope");
    assert!(problem.detail.contains("events:read"), "{}", problem.detail);
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let many = format!("?{}", "event_type=A&".repeat(21));
    for (query, pointer) in [
        ("?event_type=lower", "/event_type"),
        ("?event_type=A&event_type=B.C", "/event_type"),
        (many.as_str(), "/event_type"),
        ("?source_id=", "/source_id"),
        ("?source_id=%00", "/source_id"),
        ("?source_id=%E4", "/source_id"),
        ("?source_id=a&source_id=b", "/source_id"),
        ("?after=7", "/after"),
        ("?since=yesterday", "/since"),
        ("?after=x&since=2026-01-01T00:00:00Z", "/since"),
        ("?type=SCAN_HOST", "/type"),
        ("?since=2026-01-01T00:00:00Z&limit=5", "/limit"),
        ("?follow=maybe", "/follow"),
    ] {
        let problem = acme.client.get(&format!("/events/stream{query}")).await;
        let problem = problem.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, pointer, "{query}");
    }
    let client = acme.client.clone().header("Last-Event-ID", "7");
    client.get("/events/stream").await.expect_problem(400, "header_invalid");
}

#[tokio::test]
async fn stream_ends_within_a_second_of_a_revocation() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let key = json!({ "name": "reader", "scopes": ["events:read"] });
    let (revoked, first) = system.create_api_key(&acme, &key).await;
    let (_, second) = system.create_api_key(&acme, &key).await;
    let mut readers = [Reader::started(&first, "").await, Reader::started(&second, "").await];
    acme.client.delete(&format!("/api-keys/{}", revoked.id)).await.expect_empty(204);
    let ended = within(Duration::from_secs(1), "the end of the stream", readers[0].next()).await;
    assert!(ended.is_none(), "{ended:?}");
    first.get("/events/stream").await.expect_problem(401, "credential_invalid");

    send(&acme.client, "fw", "LOGIN", "1").await;
    assert_eq!(readers[1].next_event().await.event_id, "1", "another key is not affected");
    let suspended = json!({ "status": "suspended" });
    system.platform_admin().patch("/tenants/acme", &suspended).await.expect::<Value>(200);
    let ended = within(Duration::from_secs(1), "the end of the stream", readers[1].next()).await;
    assert!(ended.is_none(), "{ended:?}");
}

#[tokio::test]
async fn the_number_of_streams_of_a_tenant_is_limited() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(Reader::started(&acme.client, "").await);
    }
    acme.client.get("/events/stream").await.expect_problem(429, "too_many_streams");
    Reader::started(&other.client, "").await;
    readers.pop();
    wait_until("a stream is free", async || {
        let request = acme.client.request(Method::GET, "/events/stream");
        (request.send().await.unwrap().status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_tenant_opens_a_limited_number_of_streams_in_a_short_time() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_EVENT_STREAM", "3/h")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let member = json!({ "name": "reader", "scopes": ["events:read"] });
    let (_, key) = system.create_api_key(&acme, &member).await;
    // A rejected request does not count.
    acme.client.get("/events/stream?after=7").await.expect_problem(422, "validation_failed");
    for client in [&acme.client, &key, &acme.client] {
        assert!(Reader::open(client, "?follow=false").await.rest().await.is_empty());
    }
    for client in [&acme.client, &key] {
        let problem = client.get("/events/stream?follow=false").await.expect_problem(429, "rate_limited");
        assert!(problem.retry_after_ms.unwrap() > 0);
    }
    Reader::started(&other.client, "").await;
}

#[tokio::test]
async fn events_of_invented_types_have_a_bounded_number_of_subjects_and_filters_find_them() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    for first in [0, 600] {
        let event = |number| {
            let event_type = format!("INVENTED_{number}");
            json!({ "source_id": "fw", "event_id": event_type, "metadata": { "event_type": event_type } })
        };
        let events: Vec<_> = (first..first + 600).map(event).collect();
        acme.client.post("/events/batch", &events).await.expect::<Value>(202);
    }
    send(&acme.client, "fw", "INVENTED_7", "again").await;
    send(&acme.client, "fw", "GENERIC_EVENT", "generic").await;
    send(&other.client, "fw", "INVENTED_1100", "of-other").await;

    let client = system.nats.connect("administrator").await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("UDM").await.unwrap();
    let subjects = async |filter: &str| {
        let subjects = stream.info_with_subjects(filter).await.unwrap();
        subjects.map(|subject| subject.unwrap().0).collect::<Vec<_>>().await
    };
    let of_acme = subjects("udm.v1.*.acme.*").await;
    assert_eq!(of_acme.len(), 1_001);
    assert!(of_acme.iter().any(|subject| subject.ends_with(".GENERIC_EVENT")));
    assert_eq!(subjects("udm.v1.*.other.INVENTED_1100").await.len(), 1);

    for (query, expected) in [
        ("event_type=INVENTED_7", &["INVENTED_7", "again"][..]),
        ("event_type=INVENTED_1100&event_type=INVENTED_1199", &["INVENTED_1100", "INVENTED_1199"]),
        ("event_type=INVENTED_7&event_type=INVENTED_1100", &["INVENTED_7", "INVENTED_1100", "again"]),
        ("event_type=INVENTED_1100&source_id=fw", &["INVENTED_1100"]),
        ("event_type=GENERIC_EVENT", &["generic"]),
        ("event_type=INVENTED_9999", &[]),
    ] {
        let query = format!("?since=2020-01-01T00:00:00Z&follow=false&{query}");
        assert_eq!(Reader::open(&acme.client, &query).await.rest().await, expected, "{query}");
    }
    let query = "?since=2020-01-01T00:00:00Z&event_type=INVENTED_1100";
    let event = Reader::open(&acme.client, query).await.next_event().await;
    assert_eq!(event.event_type, "INVENTED_1100");
}

#[tokio::test]
async fn stream_of_a_reader_that_does_not_read_affects_no_other_and_loses_nothing() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let mut slow = Reader::started(&acme.client, "").await;
    let mut fast = Reader::started(&acme.client, "").await;
    let padding = "x".repeat(200 * 1024);
    for id in 0..60 {
        let event = json!({ "source_id": "fw", "event_id": id.to_string(), "padding": padding });
        acme.client.post("/events", &event).await.expect::<AcceptedEvent>(202);
        assert_eq!(fast.next_event().await.event_id, id.to_string());
    }
    let mut seen = Vec::new();
    while seen.len() < 60 {
        match slow.next().await {
            Some(frame) if frame.event == "udm" => {
                seen.push(serde_json::from_str::<StreamedEvent>(&frame.data).unwrap().event_id);
            }
            Some(_) => {}
            // The server closes the connection of a client that does not read for 30 seconds.
            None => slow = Reader::open(&acme.client, &format!("?after={}", slow.last_id)).await,
        }
    }
    assert_eq!(seen, ids(0..60));
}

#[tokio::test]
async fn during_an_outage_of_the_broker_streams_end_and_new_ones_are_rejected() {
    let mut system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let mut reader = Reader::started(&acme.client, "").await;
    send_all(&acme.client, 0..3).await;
    assert_eq!(reader.next_ids(3).await, ids(0..3));
    system.nats.stop();
    while reader.next().await.is_some() {}
    acme.client.get("/events/stream").await.expect_problem(503, "dependency_unavailable");
    system.nats.restart().await.unwrap();
    wait_until("events are accepted", async || {
        (system.client().get("/health").await.status == 200).then_some(())
    })
    .await;
    send_all(&acme.client, 3..5).await;
    let query = format!("?after={}", reader.last_id);
    let mut resumed = wait_until("the stream can be opened", async || {
        let request = acme.client.request(Method::GET, &format!("/events/stream{query}"));
        (request.send().await.unwrap().status() == 200).then_some(())?;
        Some(Reader::open(&acme.client, &query).await)
    })
    .await;
    assert_eq!(resumed.next_ids(2).await, ids(3..5));
}

#[tokio::test]
async fn consumer_is_deleted_when_the_client_disconnects() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    let client = system.nats.connect("administrator").await.unwrap();
    let context = async_nats::jetstream::new(client);
    let consumers = async || context.get_stream("UDM").await.unwrap().cached_info().state.consumer_count;
    let reader = Reader::started(&acme.client, "").await;
    assert_eq!(consumers().await, 1);
    drop(reader);
    wait_until("the consumer is deleted", async || (consumers().await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_position_is_opaque_and_useless_for_another_tenant() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let mut reader = Reader::started(&acme.client, "").await;
    let mut seen = Vec::new();
    for count in [1, 3] {
        send_all(&other.client, 0..count).await;
        send(&acme.client, "fw", "LOGIN", &count.to_string()).await;
        reader.next_event().await;
        seen.push(reader.last_id.clone());
    }
    assert!(seen.iter().all(|id| id.len() == 43), "{seen:?}");
    assert_ne!(seen[0][..8], seen[1][..8]);
    let problem = other.client.get(&format!("/events/stream?after={}", seen[0])).await;
    let problem = problem.expect_problem(422, "validation_failed");
    assert!(problem.errors[0].message.contains("tenant"), "{problem:?}");
    let client = other.client.clone().header("Last-Event-ID", &seen[0]);
    client.get("/events/stream").await.expect_problem(400, "header_invalid");
}

#[tokio::test]
async fn a_poller_with_a_filter_continues_at_the_end_that_it_has_scanned() {
    let system = TestSystem::start().await.unwrap();
    let acme = system.create_tenant("acme").await;
    send(&acme.client, "quiet", "LOGIN", "1").await;
    send_all(&acme.client, 0..20).await;
    let client = system.nats.connect("administrator").await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("UDM").await.unwrap();
    for (id, filter) in [("2", "source_id=quiet"), ("3", "event_type=NETWORK_DNS")] {
        let mut reader =
            Reader::open(&acme.client, &format!("?since=2020-01-01T00:00:00Z&follow=false&{filter}")).await;
        while reader.next().await.is_some() {}
        send_all(&acme.client, 20..22).await;
        // The events that were scanned expire.
        let last = stream.get_info().await.unwrap().state.last_sequence;
        stream.purge().sequence(last - 1).await.unwrap();
        let mut next =
            Reader::open(&acme.client, &format!("?after={}&follow=false&{filter}", reader.last_id)).await;
        while let Some(frame) = next.next().await {
            assert_ne!(frame.event, "gap", "{filter}");
        }
        send(&acme.client, "quiet", "LOGIN", id).await;
    }
}

#[tokio::test]
async fn a_tenant_with_few_streams_gets_the_place_of_the_idlest_stream_of_the_one_with_the_most() {
    let system = TestSystem::start().await.unwrap();
    let mut readers = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let tenant = system.create_tenant(name).await;
        for number in 0..20 {
            readers.push(Reader::started(&tenant.client, &format!("?source_id=fw-{number}")).await);
        }
        if name == "a" {
            send(&tenant.client, "fw-0", "LOGIN", "1").await;
            assert_eq!(readers[0].next_event().await.event_id, "1");
        }
    }
    let other = system.create_tenant("other").await;
    let mut reader = Reader::started(&other.client, "").await;
    assert_eq!(readers[1].next().await.unwrap().event, "replaced");
    assert!(readers[1].next().await.is_none());
    let metrics = testkit::client::plain_http().get(format!("{}/metrics", system.admin_url)).send().await;
    let metrics = metrics.unwrap().text().await.unwrap();
    assert!(metrics.contains("\nsvc_event_streams_open 80\n"), "{metrics}");
    send(&other.client, "fw", "LOGIN", "2").await;
    assert_eq!(reader.next_event().await.event_id, "2");
}
