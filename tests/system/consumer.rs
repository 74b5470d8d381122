//! An independent consumer (nats-py) reads subject, headers and payload as docs/consumers.md specifies. The expected values are
//! computed without the code of the project.

use chrono::{DateTime, Utc};
use data_encoding::BASE64URL_NOPAD;
use e2e::{ApiUser, Installation, required_variable, variable};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use testkit::within;
use tokio::process::Command;
use uuid::Uuid;

const REQUEST_ID: &str = "consumer-test.1";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Unusual JSON formatting, which must be preserved byte for byte.
const UNUSUAL: &str = "{ \"metadata\" : {\"event_timestamp\":\"2026-01-31T13:00:00.5+01:00\",\t\"event_type\":\"NETWORK_DNS\"},\r\n \"source_id\":\"fw 1\\/\\u00e4\" ,\"event_id\":\"e:1\", \"note\":\"\u{1f600} \u{e9}t\u{e9} \\ud83d\\ude00\", \"n\": 1.50e+2 } ";
const PLAIN: &str = "{\"source_id\":\"fw-2\",   \"event_id\":\"e2\",\"x\":[ ]}";

async fn read(nats_url: &str, count: usize) -> Vec<Value> {
    let python = variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let library = required_variable("SVC_TEST_NATS_PY");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/consumers/read_event.py");
    let mut command = Command::new(python);
    command.args([script, nats_url, &count.to_string()]).env("PYTHONPATH", library).kill_on_drop(true);
    let output = within(testkit::DEADLINE, "the consumer", command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `udm.v1.<part>.<tenant>.<event_type>`.
fn subject(source_id: &str, event_type: &str) -> String {
    let digest = Sha256::digest([b"demo\0", source_id.as_bytes()].concat());
    let part = u64::from_be_bytes(digest[..8].try_into().unwrap()) % 64;
    format!("udm.v1.{part:02}.demo.{event_type}")
}

/// base64url of the first 16 bytes of SHA-256(tenant, 0, `source_id`, 0, `event_id`).
fn message_id(source_id: &str, event_id: &str) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(format!("demo\0{source_id}\0{event_id}"))[..16])
}

fn unix_milliseconds(time: &str) -> String {
    time.parse::<DateTime<Utc>>().unwrap().timestamp_millis().to_string()
}

/// The common headers of both events, and `own`.
fn headers(received_at: &str, session: &str, own: &[(&str, &str)]) -> Map<String, Value> {
    let session = Uuid::parse_str(session).unwrap();
    let credential = format!("session:{}", BASE64URL_NOPAD.encode(session.as_bytes()));
    let common = [
        ("ce-specversion", "1.0"),
        ("traceparent", TRACEPARENT),
        ("Udm-Received-At", received_at),
        ("Udm-Request-Id", REQUEST_ID),
        ("Udm-Credential", &credential),
    ];
    common.iter().chain(own).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

#[tokio::test]
async fn an_independent_consumer_reads_subject_headers_and_bytes_as_documented() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let client = user.client.clone().header("X-Request-Id", REQUEST_ID).header("traceparent", TRACEPARENT);
    let single: Value = client.post_bytes("/events", "application/json", UNUSUAL).await.expect(202);
    let list = format!("[{PLAIN}  ,\n {PLAIN}]");
    let batch: Value = client.post_bytes("/events/batch", "application/json", list).await.expect(202);
    assert_eq!(batch["results"][1]["duplicate"], true, "the batch contains the event twice: {batch}");
    let sessions: Value =
        client.clone().header("X-User-ID", &user.user_id).get("/auth/sessions").await.expect(200);
    let session = sessions["items"][0]["id"].as_str().unwrap();

    let messages = read(&run.run_file.nats_url, 2).await;
    let unusual_source = "fw 1/\u{e4}";
    let unusual_headers = headers(
        &unix_milliseconds(single["received_at"].as_str().unwrap()),
        session,
        &[
            ("Nats-Msg-Id", &message_id(unusual_source, "e:1")),
            ("ce-id", "e:1"),
            ("ce-source", "fw%201%2F%C3%A4"),
            ("ce-type", "NETWORK_DNS"),
            ("ce-time", "2026-01-31T12:00:00.500Z"),
            ("ce-timeorigin", "event"),
        ],
    );
    assert_eq!(
        messages[0],
        json!({
            "subject": subject(unusual_source, "NETWORK_DNS"),
            "headers": unusual_headers,
            "payload": UNUSUAL,
        })
    );
    // An event without a timestamp gets the time of receipt, which the response to a batch does not contain.
    let received_at = messages[1]["headers"]["Udm-Received-At"].as_str().unwrap();
    let time = messages[1]["headers"]["ce-time"].as_str().unwrap();
    assert_eq!(unix_milliseconds(time), received_at);
    let plain_headers = headers(
        received_at,
        session,
        &[
            ("Nats-Msg-Id", &message_id("fw-2", "e2")),
            ("ce-id", "e2"),
            ("ce-source", "fw-2"),
            ("ce-type", "GENERIC_EVENT"),
            ("ce-time", time),
            ("ce-timeorigin", "receipt"),
        ],
    );
    assert_eq!(
        messages[1],
        json!({
            "subject": subject("fw-2", "GENERIC_EVENT"),
            "headers": plain_headers,
            "payload": PLAIN,
        })
    );
}
