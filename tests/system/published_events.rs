//! Events in lowerCamelCase, the form in which Google publishes UDM, through the real ingest to every reader.

use std::collections::BTreeSet;

use async_nats::jetstream::{self, message::StreamMessage};
use chrono::DateTime;
use e2e::{ApiUser, Installation, Svc, api_client};
use serde_json::value::RawValue;
use serde_json::{Value, json};

const EVENTS: &str = include_str!("../../libs/udm/tests/published.json");

async fn stored(nats_url: &str) -> Vec<StreamMessage> {
    let client = bus::connect(&bus::Config::new(nats_url, "e2e")).await.unwrap();
    let stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let mut messages = Vec::new();
    for number in 1..=stream.cached_info().state.last_sequence {
        messages.push(stream.get_raw_message(number).await.unwrap());
    }
    messages
}

fn header<'a>(message: &'a StreamMessage, name: &str) -> &'a str {
    message.headers.get(name).unwrap().as_str()
}

/// Returns the value of a field that has one of two names.
fn field<'a>(object: &'a Value, names: [&str; 2]) -> &'a Value {
    let value = names.iter().map(|name| &object[*name]).find(|value| !value.is_null());
    value.unwrap_or(&Value::Null)
}

fn event_type(event: &Value) -> &str {
    field(&event["metadata"], ["eventType", "event_type"]).as_str().unwrap_or("GENERIC_EVENT")
}

fn source_id(event: &Value) -> &str {
    field(event, ["sourceId", "source_id"]).as_str().unwrap()
}

/// Returns the sources of the events of a type.
fn sources(events: &[Value], of_type: &str) -> BTreeSet<String> {
    let events = events.iter().filter(|event| event_type(event) == of_type);
    events.map(|event| source_id(event).to_owned()).collect()
}

async fn tail(svc: &Svc, event_type: &str) -> Vec<Value> {
    let tail = ["events", "tail", "--type", event_type, "--since", "1h", "--no-follow", "--output", "json"];
    let lines = svc.run_ok(&tail, "").await;
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn published_events_have_their_type_and_time_for_every_reader_and_keep_their_bytes() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
    let platform = api_client(&run.run_file.base_url).bearer(token.trim());
    let consumer = json!({ "name": "logins", "tenant_id": "demo", "event_types": ["USER_LOGIN"] });
    platform.post("/consumers", &consumer).await.expect::<Value>(201);

    let sent: Value = user.client.post_bytes("/events/batch", "application/json", EVENTS).await.expect(202);
    let raw: Vec<&RawValue> = serde_json::from_str(EVENTS).unwrap();
    let events: Vec<Value> = serde_json::from_str(EVENTS).unwrap();
    assert_eq!(sent["successful_events"], raw.len());

    let stored = stored(&run.run_file.nats_url).await;
    assert_eq!(stored.len(), raw.len());
    for ((message, raw), event) in stored.iter().zip(&raw).zip(&events) {
        assert_eq!(message.payload, raw.get().as_bytes());
        assert_eq!(message.subject.rsplit('.').next(), Some(event_type(event)));
        assert_eq!(header(message, "ce-type"), event_type(event));
        assert_eq!(header(message, "ce-source"), source_id(event));
        if let Some(id) = field(event, ["eventId", "event_id"]).as_str() {
            assert_eq!(header(message, "ce-id"), id);
        }
        let time = DateTime::parse_from_rfc3339(header(message, "ce-time")).unwrap();
        match field(&event["metadata"], ["eventTimestamp", "event_timestamp"]).as_str() {
            Some(sent) => assert_eq!(time, DateTime::parse_from_rfc3339(sent).unwrap()),
            None => assert_eq!(time.timestamp_millis().to_string(), header(message, "Udm-Received-At")),
        }
    }

    let query = "/events/stream?event_type=USER_LOGIN&follow=false&since=2020-01-01T00:00:00Z";
    let stream = user.client.get(query).await.body;
    let found = stream.lines().filter_map(|line| line.strip_prefix("data: {\"event_id\"")).count();
    assert_eq!(found, 2, "{stream}");
    let consumers: Value = platform.get("/consumers").await.expect(200);
    // A durable with event types also delivers the events without a type.
    let selected = |event: &&Value| ["USER_LOGIN", "GENERIC_EVENT"].contains(&event_type(event));
    assert_eq!(consumers["items"][0]["pending"], events.iter().filter(selected).count(), "{consumers}");
}

#[tokio::test]
async fn svc_sends_published_events_once_and_tail_filters_them() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let key = json!({ "name": "both", "scopes": ["events:write", "events:read"] });
    let key: Value = user.client.post("/api-keys", &key).await.expect(201);
    let svc = run.svc().with_api_key(key["key"].as_str().unwrap());
    let events: Vec<Value> = serde_json::from_str(EVENTS).unwrap();
    let input = installation.path("published.json");
    std::fs::write(&input, EVENTS).unwrap();
    let send = ["events", "send", "--file", input.to_str().unwrap()];
    for duplicates in [0, events.len()] {
        let summary = svc.json(&send, "").await;
        assert_eq!(
            (&summary["accepted"], &summary["duplicates"]),
            (&json!(events.len()), &json!(duplicates))
        );
    }
    // The same ids in the other spelling.
    let repeated = json!({ "source_id": "okta-prod", "event_id": "okta:5c1d2e0a" });
    let answer: Value = user.client.post("/events", &repeated).await.expect(202);
    assert_eq!(answer["duplicate"], true, "{answer}");
    assert_eq!(stored(&run.run_file.nats_url).await.len(), events.len());

    for of_type in ["USER_LOGIN", "NETWORK_DNS", "GENERIC_EVENT"] {
        let tailed = tail(&svc, of_type).await;
        let found: BTreeSet<_> =
            tailed.iter().map(|line| line["source_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(found, sources(&events, of_type));
        for line in &tailed {
            assert_eq!(line["event_type"], of_type);
            assert_eq!(field(&line["event"], ["event_id", "eventId"]), &line["event_id"], "{line}");
            assert_eq!(source_id(&line["event"]), line["source_id"]);
        }
    }
}
