//! `/events/batch`.

use std::convert::Infallible;
use std::future::pending;
use std::io::Write as _;
use std::time::{Duration, Instant};

use contract::events::{BatchResponse, EventStatus};
use testkit::TestResponse;
use testsystem::{TestSystem, TestUser};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::stream::{header, messages};

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

fn outcomes(answer: &BatchResponse) -> Vec<String> {
    let outcome = |result: &contract::events::EventResult| match (&result.code, result.duplicate) {
        (Some(code), _) => code.clone(),
        (None, Some(true)) => "duplicate".to_owned(),
        (None, _) => "accepted".to_owned(),
    };
    assert!(answer.results.iter().enumerate().all(|(index, result)| result.index == index));
    assert_eq!(answer.total_events, answer.results.len());
    assert_eq!(answer.successful_events + answer.failed_events, answer.total_events);
    let accepted = answer.results.iter().filter(|result| result.status == EventStatus::Accepted).count();
    assert_eq!(answer.successful_events, accepted);
    answer.results.iter().map(outcome).collect()
}

#[tokio::test]
async fn json_list_and_ndjson_are_accepted_in_order() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let mut items = Vec::new();
    // A body of 1 KiB is validated at once, one of 100 KiB in parts, and one of 400 KiB on another thread.
    for padding in [0, 4 * 1024, 16 * 1024].map(|bytes| "x".repeat(bytes)) {
        let first = items.len();
        let event =
            |n| format!(r#"{{"source_id":"s", "event_id":"{n}", "additional":{{"padding":"{padding}"}}}}"#);
        items.extend((first..first + 50).map(event));
        let (list, lines) = items[first..].split_at(25);
        let (list, lines) = (format!("[{}]", list.join(" ,\n")), lines.join("\r\n") + "\n\n");
        for (media_type, body) in [(JSON, list), (NDJSON, lines)] {
            let answer: BatchResponse =
                admin.client.post_bytes("/events/batch", media_type, body).await.expect(202);
            assert_eq!(outcomes(&answer), vec!["accepted"; 25]);
        }
    }
    let stored = messages(&system).await;
    assert_eq!(
        stored.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect::<Vec<_>>(),
        items
    );
}

#[tokio::test]
async fn invalid_event_does_not_block_valid_events() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"[{"source_id":"s","event_id":"1"}, {"event_id":"2"}, 3, {"source_id":"s","event_id":"4"}]"#;
    let answer = admin.client.post_bytes("/events/batch", JSON, body).await;
    let batch: BatchResponse = answer.expect(207);
    assert_eq!(outcomes(&batch), ["accepted", "validation_failed", "validation_failed", "accepted"]);
    assert_eq!(batch.results[1].event_id.as_deref(), Some("2"));
    assert_eq!(batch.results[1].pointer.as_deref(), Some("/source_id"));
    assert_eq!(batch.results[1].retryable, Some(false));
    assert!(!answer.headers.contains_key("retry-after"), "no event can be retried");
    let lines = "{\"source_id\":\"s\",\"event_id\":\"5\"}\n{broken\n";
    let batch: BatchResponse = admin.client.post_bytes("/events/batch", NDJSON, lines).await.expect(207);
    assert_eq!(outcomes(&batch), ["accepted", "malformed_json"]);
    assert_eq!(messages(&system).await.len(), 3);
}

#[tokio::test]
async fn a_batch_without_a_stored_event_is_503_if_some_errors_are_temporary() {
    let mut system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system.nats.stop();
    let answer = admin.client.post_bytes("/events/batch", JSON, r#"[{"source_id":"s"}, 3]"#).await;
    let batch: BatchResponse = answer.expect(503);
    assert_eq!((batch.successful_events, batch.failed_events), (0, 2));
    let retryable: Vec<_> = batch.results.iter().map(|result| result.retryable).collect();
    assert_eq!(retryable, [Some(true), Some(false)]);
    assert!(answer.headers.contains_key("retry-after"), "{answer}");
}

#[tokio::test]
async fn repeated_id_in_a_batch_is_a_duplicate_or_a_conflict() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"[{"source_id":"s","event_id":"1"},{"source_id":"s","event_id":"1"},{"source_id":"s","event_id":"1","x":1}]"#;
    let batch: BatchResponse = admin.client.post_bytes("/events/batch", JSON, body).await.expect(207);
    assert_eq!(outcomes(&batch), ["accepted", "duplicate", "event_id_conflict"]);
    let batch: BatchResponse = admin.client.post_bytes("/events/batch", JSON, body).await.expect(207);
    assert_eq!(outcomes(&batch), ["duplicate", "duplicate", "event_id_conflict"]);
    assert_eq!(messages(&system).await.len(), 1);
}

#[tokio::test]
async fn repeated_id_in_a_batch_is_found_in_both_spellings() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = r#"[{"source_id":"s","event_id":"1"},{"sourceId":"s","eventId":"1"},{"sourceId":"s","eventId":"1 "}]"#;
    let batch: BatchResponse = admin.client.post_bytes("/events/batch", JSON, body).await.expect(207);
    assert_eq!(outcomes(&batch), ["accepted", "event_id_conflict", "validation_failed"]);
    let pointers: Vec<_> = batch.results.iter().map(|result| result.pointer.as_deref()).collect();
    assert_eq!(pointers, [None, Some("/eventId"), Some("/eventId")]);
}

#[tokio::test]
async fn invalid_batch_is_rejected_with_a_problem() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |media_type: &str, body: String| -> TestResponse {
        admin.client.post_bytes("/events/batch", media_type, body).await
    };
    send(JSON, "[]".into()).await.expect_problem(400, "empty_batch");
    send(NDJSON, "\n \n".into()).await.expect_problem(400, "empty_batch");
    send(JSON, "[{}".into()).await.expect_problem(400, "malformed_json");
    send(JSON, "{}".into()).await.expect_problem(422, "validation_failed");
    let lines = send(JSON, "{}\n{}".into()).await.expect_problem(400, "malformed_json");
    assert!(lines.detail.ends_with("as lines with Content-Type: application/x-ndjson"), "{}", lines.detail);
    for media_type in ["text/csv", "text/plain", "application/jsonl", "application/ndjson"] {
        let problem = send(media_type, "{}\n{}".into()).await.expect_problem(415, "media_type");
        assert!(
            problem.detail.contains("one event per line with application/x-ndjson"),
            "{}",
            problem.detail
        );
    }
    let problem = send("application/json; charset=utf-16le", "[{}]".into()).await;
    let problem = problem.expect_problem(415, "media_type");
    assert!(problem.detail.starts_with("Send the body in UTF-8"), "{}", problem.detail);
    let utf_16: Vec<u8> = "[{}]".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let problem = admin.client.post_bytes("/events/batch", JSON, utf_16).await;
    let problem = problem.expect_problem(400, "malformed_json");
    assert!(problem.detail.contains("looks like UTF-16"), "{}", problem.detail);
    let many = format!("[{}1]", "1,".repeat(10_000));
    send(JSON, many).await.expect_problem(413, "batch_too_large");
    send(JSON, " ".repeat(10 * 1024 * 1024 + 1025)).await.expect_problem(413, "batch_too_large");
    let none: BatchResponse = send(JSON, "[1,2]".into()).await.expect(422);
    assert_eq!(outcomes(&none), ["validation_failed", "validation_failed"]);
}

#[tokio::test]
async fn compressed_batch_is_decompressed_within_its_limits() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let client = admin.client.clone().header("Content-Encoding", "gzip");
    let body = gzip(r#"[{"source_id":"s","event_id":"1"}]"#);
    let batch: BatchResponse = client.post_bytes("/events/batch", JSON, body).await.expect(202);
    assert_eq!(outcomes(&batch), ["accepted"]);
    let bomb = gzip(&" ".repeat(64 * 1024 * 1024));
    client.post_bytes("/events/batch", JSON, bomb).await.expect_problem(413, "batch_too_large");
    client.post_bytes("/events/batch", JSON, "[]").await.expect_problem(400, "malformed_encoding");
    let other = admin.client.clone().header("Content-Encoding", "br");
    other.post_bytes("/events/batch", JSON, "[]").await.expect_problem(415, "content_encoding");
    assert_eq!(header(&messages(&system).await[0], "ce-id"), "1");
}

/// Sends a batch of lines over a socket, in pieces of 10 KB. Each follows after a pause. Returns the response.
async fn send_slowly(
    system: &TestSystem,
    user: &TestUser,
    body: &[u8],
    piece: usize,
    pause: Duration,
) -> String {
    let address = system.base_url.strip_prefix("http://").unwrap();
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let head = format!(
        "POST /api/v1/events/batch HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: {NDJSON}\r\n\
         Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        user.session.session_id.expose(),
        body.len()
    );
    let sending = async {
        writer.write_all(head.as_bytes()).await.unwrap();
        for piece in body.chunks(piece) {
            // The service closes the connection of a body that is too slow.
            let _ = writer.write_all(piece).await;
            sleep(pause).await;
        }
        pending::<Infallible>().await
    };
    let receiving = async {
        let mut response = String::new();
        reader.read_to_string(&mut response).await.unwrap();
        response
    };
    tokio::select! { never = sending => match never {}, response = receiving => response }
}

#[tokio::test]
async fn a_slow_upload_is_stored_as_long_as_it_makes_progress() {
    let system = TestSystem::start_with(&[("SVC_BODY_GRACE", "1s")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let line = format!("{{\"source_id\":\"s\",\"padding\":\"{}\"}}\n", "x".repeat(10_000));
    let started = Instant::now();
    let pause = Duration::from_millis(100);
    let response = send_slowly(&system, &admin, line.repeat(25).as_bytes(), line.len(), pause).await;
    assert!(started.elapsed() > Duration::from_secs(2), "longer than twice the grace time");
    assert!(
        response.starts_with("HTTP/1.1 202") && response.contains("\"successful_events\":25"),
        "{response}"
    );
    let response = send_slowly(&system, &admin, line.as_bytes(), 1, pause).await;
    assert!(
        response.starts_with("HTTP/1.1 408") && response.contains("it paused or was late for 1 s"),
        "{response}"
    );
    assert_eq!(messages(&system).await.len(), 25);
}
