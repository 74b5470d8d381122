//! What ingest does with the requests of consumers: a malformed one ends nothing, and a dead letter has no other effect than its storage.

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, HeaderMap};
use bus::{
    Config, Connection, ConsumerRequests, DEAD_LETTER_STREAM, DurableFilter, Durables, EventContext,
    EventStreams, PublishLimits, Publisher, QuarantinedItem,
};
use contract::consumers::ConsumerStart;
use hashing::SystemEntropy;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use service::Tasks;
use service::telemetry::Metrics;
use testkit::{NatsServer, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{System, consumers, login};

const SUBJECT: &str = "udm.dlq.v1.acme.consumer";

/// A broker with the streams, and what ingest runs to answer consumers.
struct Ingest {
    server: NatsServer,
    admin: Context,
    connection: Connection,
    dead_letters: Publisher,
    /// Number of dead letters for which no space was left.
    rejected: Counter,
    _system: System,
}

impl Ingest {
    async fn start() -> Self {
        let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
        let system = System::start(&server.url, 1).await;
        let admin = system.administrators[0].1.context.clone();
        let url = server.url_of("ingest");
        let config = Config { inbox_prefix: Some("_INBOX.ingest".to_owned()), ..Config::new(url, "test") };
        let tasks = Tasks::default();
        let limits = PublishLimits::default();
        let metrics = Metrics::new("test");
        let dead_letters =
            Publisher::start(config.clone(), DEAD_LETTER_STREAM, limits, &metrics, &tasks).unwrap();
        let connection = Connection::open(&config).await.unwrap();
        let rejected: Counter = metrics.metric("rejected", "Test", &[]);
        let requests = ConsumerRequests {
            streams: EventStreams::ONE,
            admits: Box::new(|_| true),
            dead_letters: dead_letters.clone(),
            stream_share: 25,
            rejected: rejected.clone(),
        };
        requests.start(config, connection.clone(), &tasks).unwrap();
        dead_letters.ready().await;
        let ingest = Self { server, admin, connection, dead_letters, rejected, _system: system };
        let consumer = ingest.login("consumer").await;
        wait_until("requests are answered", async || ingest.names(&consumer).await).await;
        ingest
    }

    /// Deletes all dead letters, and changes the maximum size of their stream.
    async fn limit(&self, max_bytes: i64) {
        let stream = self.admin.get_stream("UDM_DLQ").await.unwrap();
        stream.purge().await.unwrap();
        let config = stream::Config { max_bytes, ..stream.cached_info().config.clone() };
        self.admin.update_stream(config).await.unwrap();
    }

    async fn login(&self, name: &str) -> Client {
        login(&self.server, name).await
    }

    /// The response to a request of the API that ingest answers.
    async fn names(&self, client: &Client) -> Option<Value> {
        let response = client.request("$JS.API.CONSUMER.NAMES.UDM", "".into()).await.ok()?;
        serde_json::from_slice(&response.payload).ok()
    }

    /// Number of dead letters, and all of their subjects.
    async fn stored(&self) -> (u64, Vec<String>) {
        let stream = self.admin.get_stream("UDM_DLQ").await.unwrap();
        let state = &stream.cached_info().state;
        let mut subjects = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            subjects.push(stream.get_raw_message(sequence).await.unwrap().subject.to_string());
        }
        (state.messages, subjects)
    }
}

async fn send(client: &Client, headers: &[(&'static str, &str)], payload: &[u8]) -> Value {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, *value);
    }
    let response = client.request_with_headers(SUBJECT, map, payload.to_vec().into()).await.unwrap();
    serde_json::from_slice(&response.payload).unwrap()
}

#[tokio::test]
async fn a_client_library_stores_a_dead_letter_once_with_known_headers() {
    let ingest = Ingest::start().await;
    let context = jetstream::new(ingest.login("consumer").await);
    let (before, _) = ingest.stored().await;
    for is_duplicate in [false, true] {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("Nats-Msg-Id", "1"), ("ce-id", "e1"), ("Udm-Dlq-Reason", "no such column"), ("other", "x")]
        {
            headers.insert(name, value);
        }
        #[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
        let sent = context.publish_with_headers(SUBJECT, headers, "{}".into()).await.unwrap();
        let ack = sent.await.unwrap();
        assert_eq!((ack.stream.as_str(), ack.sequence, ack.duplicate), ("UDM_DLQ", 1, is_duplicate));
    }
    let (after, subjects) = ingest.stored().await;
    assert_eq!((after, subjects.last().unwrap().as_str()), (before + 1, SUBJECT));
    let stored = ingest.admin.get_stream("UDM_DLQ").await.unwrap().get_raw_message(after).await.unwrap();
    let names: Vec<_> = stored.headers.iter().map(|(name, _)| name.to_string()).collect();
    assert!(names.len() == 3 && !names.contains(&"other".to_owned()), "{names:?}");
}

#[tokio::test]
async fn events_are_not_stored_as_dead_letters_by_a_pull_request_with_that_reply_subject() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    let before = ingest.stored().await;
    let next = "$JS.API.CONSUMER.MSG.NEXT.UDM.consumer";
    for payload in [r#"{"batch":10,"no_wait":true}"#, r#"{"batch":10,"expires":200000000}"#] {
        super::send(&consumer, (next, payload, None), SUBJECT).await;
    }
    // Afterwards, ingest has received what the server sent.
    wait_until("the events are delivered", async || {
        let info = consumer.request("$JS.API.CONSUMER.INFO.UDM.consumer", "".into()).await.ok()?;
        let info: Value = serde_json::from_slice(&info.payload).ok()?;
        (info["num_ack_pending"].as_u64()? > 0).then_some(())
    })
    .await;
    assert_eq!(send(&consumer, &[], b"last").await, json!({ "stream": "UDM_DLQ", "seq": 1 }));
    let (_, subjects) = ingest.stored().await;
    assert!(subjects.iter().all(|subject| subject.starts_with("udm.dlq.v1.")), "{subjects:?}");
    let stream = ingest.admin.get_stream("UDM_DLQ").await.unwrap();
    for sequence in before.0 + 1..=stream.cached_info().state.last_sequence {
        let payload = stream.get_raw_message(sequence).await.unwrap().payload;
        let is_event = payload == "{}";
        assert!(!is_event, "number {sequence} is an event");
    }
}

#[tokio::test]
async fn acknowledgements_reveal_neither_numbers_nor_subjects_of_other_dead_letters() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    let first = send(&consumer, &[], b"1").await;
    for (name, value) in [
        ("Nats-Expected-Last-Sequence", "999999"),
        ("Nats-Expected-Last-Subject-Sequence", "999999"),
        ("Nats-Expected-Last-Msg-Id", "x"),
        ("Nats-Expected-Stream", "UDM"),
        ("Nats-Rollup", "all"),
        ("Nats-TTL", "1s"),
    ] {
        let headers =
            [(name, value), ("Nats-Expected-Last-Subject-Sequence-Subject", "udm.dlq.v1.acme.victim")];
        assert_eq!(send(&consumer, &headers, b"2").await, first, "{name}");
    }
    assert_eq!(first, json!({ "stream": "UDM_DLQ", "seq": 1 }));
    assert_eq!(ingest.stored().await.0, 20 + 7, "nothing is deleted");
}

#[tokio::test]
async fn a_consumer_cannot_suppress_a_quarantined_item_with_its_message_id() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    let received_at = "2026-01-31T12:00:00Z".parse().unwrap();
    let tenant: tenancy::TenantId = "beta".parse().unwrap();
    let context = EventContext::new(tenant.clone(), received_at, "req-1", "key:k1", None);
    let item = QuarantinedItem {
        content_id: "c",
        event_id: "e",
        source_id: None,
        code: "malformed_json",
        reason: "not JSON",
        bytes: b"x",
    };
    let message = item.messages(&context).unwrap().remove(0);
    let id = message.headers().get("Nats-Msg-Id").unwrap().to_string();
    for id in [id.clone(), format!("dlq-{id}")] {
        assert!(send(&consumer, &[("Nats-Msg-Id", id.as_str())], b"{}").await.get("duplicate").is_none());
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    let stored = ingest.dead_letters.publish(&tenant, message, deadline).await.unwrap();
    assert!(!stored.duplicate);
}

#[tokio::test]
async fn malformed_messages_of_a_consumer_end_nothing() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    let deep = "[".repeat(4000);
    for payload in
        ["", "[]", "null", "0", "\"\"", "{", r#"{"config":[]}"#, r#"{"config":0}"#, "\0", deep.as_str()]
    {
        for subject in [
            "CREATE.UDM.consumer",
            "CREATE.UDM",
            "DURABLE.CREATE.UDM.consumer",
            "CREATE.UDM.consumer.udm.v1.>",
        ] {
            let subject = format!("$JS.API.CONSUMER.{subject}");
            let response = consumer.request(subject.clone(), payload.to_owned().into()).await.unwrap();
            let response: Value = serde_json::from_slice(&response.payload).unwrap();
            assert_eq!(response["error"]["err_code"], 10_025, "{subject} {payload}");
        }
    }
    let address = ingest.server.url.rsplit_once('@').unwrap().1;
    let mut raw = TcpStream::connect(address).await.unwrap();
    let connect = r#"CONNECT {"user":"consumer","pass":"consumer","headers":true,"verbose":false}"#;
    raw.write_all(format!("{connect}\r\n").as_bytes()).await.unwrap();
    for headers in [
        &b"garbage"[..],
        b"NATS/1.0\r\nx: \xff\xfe\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/9.9 abc\r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0\r\n a b: c\r\n\r\n",
        b"\0",
    ] {
        for subject in [SUBJECT, "$JS.API.CONSUMER.NAMES.UDM", "$JS.API.CONSUMER.CREATE.UDM.consumer"] {
            let (of_headers, total) = (headers.len(), headers.len() + 2);
            raw.write_all(format!("HPUB {subject} reply {of_headers} {total}\r\n").as_bytes()).await.unwrap();
            raw.write_all(headers).await.unwrap();
            raw.write_all(b"{}\r\n").await.unwrap();
        }
    }
    raw.write_all(b"PING\r\n").await.unwrap();
    let mut received = Vec::new();
    while !received.windows(6).any(|bytes| bytes == b"PONG\r\n") {
        assert!(raw.read_buf(&mut received).await.unwrap() > 0, "{}", received.escape_ascii());
    }
    // Without a retry: the connection of ingest is the same.
    let names = ingest.names(&consumer).await.unwrap();
    assert_eq!(names["consumers"], json!(["consumer"]));
    assert_eq!(send(&consumer, &[], b"{}").await["seq"], 1);
}

#[tokio::test]
async fn a_repeated_request_to_create_the_durable_is_accepted_also_after_a_reset() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    ingest.admin.delete_consumer_from_stream("consumer", "UDM").await.unwrap();
    let durables = wait_until("ingest is connected", async || {
        Durables::over(&ingest.connection, EventStreams::ONE).await.ok()
    })
    .await;
    let filter = DurableFilter { tenant_id: "acme".parse().ok(), ..DurableFilter::default() };
    durables.create("consumer", &filter.into(), &SystemEntropy).await.unwrap();
    let create = json!({ "stream_name": "UDM", "config": {
        "durable_name": "consumer", "ack_policy": "explicit", "deliver_policy": "all",
        "filter_subject": "udm.v1.*.acme.>",
    } });
    let time = ConsumerStart::At("2026-01-31T12:00:00Z".parse().unwrap());
    for reset in [None, Some(time), Some(ConsumerStart::New)] {
        if let Some(start) = reset {
            assert!(durables.reset("consumer", start).await.unwrap());
        }
        let subject = "$JS.API.CONSUMER.CREATE.UDM.consumer";
        let response = consumer.request(subject, create.to_string().into()).await.unwrap();
        let response: Value = serde_json::from_slice(&response.payload).unwrap();
        assert_eq!(response["name"], "consumer", "{reset:?}: {response}");
    }
}

#[tokio::test]
async fn a_dead_letter_has_at_most_8_kib_and_the_tenant_of_the_consumer() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    let (before, _) = ingest.stored().await;
    assert_eq!(send(&consumer, &[], &[b'x'; 8 << 10]).await["seq"], 1);
    consumer.request(SUBJECT, vec![b'x'; (8 << 10) + 1].into()).await.unwrap_err();
    let other = login(&ingest.server, "consumer").await;
    let error = other.request("udm.dlq.v1.beta.consumer", "{}".into()).await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::NoResponders);
    assert_eq!(ingest.stored().await.0, before + 1);
}

#[tokio::test]
async fn a_consumer_that_has_filled_its_share_gets_an_error_and_others_store_dead_letters() {
    let ingest = Ingest::start().await;
    ingest.limit(256 << 10).await;
    let (consumer, victim) = (ingest.login("consumer").await, ingest.login("victim").await);
    let mut error = Value::Null;
    for number in 0..20 {
        let response = send(&consumer, &[], &[b'x'; 8 << 10]).await;
        if response.get("error").is_some() {
            // A quarter of half of the stream, which has space for 15 dead letters.
            assert_eq!(number, 4);
            error = response["error"].clone();
            break;
        }
    }
    assert_eq!((&error["code"], &error["err_code"]), (&json!(503), &json!(10_077)), "{error}");
    assert!(error["description"].as_str().unwrap().contains("of this tenant or consumer"), "{error}");
    let send_as_victim = async || {
        let response = victim.request("udm.dlq.v1.acme.victim", "{}".into()).await.unwrap();
        serde_json::from_slice::<Value>(&response.payload).unwrap()
    };
    // The first one is always stored. The consumers of a tenant have one share.
    assert_eq!(send_as_victim().await, json!({ "stream": "UDM_DLQ", "seq": 1 }));
    assert_eq!(send_as_victim().await["error"]["code"], 503);
    assert_eq!(ingest.rejected.get(), 2);
}

#[tokio::test]
async fn dead_letters_of_all_consumers_leave_half_of_the_stream_for_quarantined_items() {
    let ingest = Ingest::start().await;
    let consumer = ingest.login("consumer").await;
    ingest.limit(1 << 20).await;
    // Half of the stream has space for 60. Small ones count in the same way.
    for number in 0..59 {
        #[expect(clippy::disallowed_methods, reason = "represents consumers of other tenants")]
        let sent = ingest.admin.publish(format!("udm.dlq.v1.t{number}.other"), "{}".into()).await.unwrap();
        sent.await.unwrap();
    }
    assert_eq!(send(&consumer, &[], b"{}").await["seq"], 1);
    let error = send(&consumer, &[], b"{}").await["error"].clone();
    assert_eq!(error["code"], 503);
    assert!(error["description"].as_str().unwrap().contains("or enlarge UDM_DLQ"), "{error}");
    assert_eq!((ingest.stored().await.0, ingest.rejected.get()), (60, 1));
}

#[tokio::test]
async fn without_ingest_a_dead_letter_has_no_responders() {
    let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
    let consumer = login(&server, "consumer").await;
    let error = consumer.request(SUBJECT, "{}".into()).await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::NoResponders);
}
