//! Quotas of tenants.

use std::convert::Infallible;
use std::io::Write as _;
use std::time::Instant;

use contract::events::{AcceptedEvent, BatchResponse};
use futures::StreamExt as _;
use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use testkit::{Client, DEADLINE, TestResponse, wait_until, within};
use testsystem::{TestSystem, TestUser};

use super::stream::messages;

const JSON: &str = "application/json";

async fn set_quota(system: &TestSystem, tenant_id: &str, quota: Value) {
    let patch = json!({ "quota": quota });
    system.platform_admin().patch(&format!("/tenants/{tenant_id}"), &patch).await.expect::<Value>(200);
}

async fn send_event(user: &TestUser, bytes: usize) -> TestResponse {
    let padding = "x".repeat(bytes);
    user.client.post("/events", &json!({ "source_id": "s", "padding": padding })).await
}

async fn send_batch(user: &TestUser, count: usize) -> TestResponse {
    let items: Vec<_> =
        (0..count).map(|id| json!({ "source_id": "s", "event_id": id.to_string() })).collect();
    user.client.post("/events/batch", &items).await
}

fn seconds(answer: &TestResponse) -> u64 {
    answer.headers["retry-after"].to_str().unwrap().parse().unwrap()
}

/// The number of rejected events, which are the last ones. Each can be sent again.
fn over_quota(batch: &BatchResponse) -> usize {
    for rejected in &batch.results[batch.successful_events..] {
        assert_eq!((rejected.code.as_deref(), rejected.retryable), (Some("quota_exceeded"), Some(true)));
        assert!(rejected.event_id.is_some());
    }
    batch.failed_events
}

#[tokio::test]
async fn event_above_the_quota_is_rejected_until_the_announced_delay_has_passed() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    set_quota(&system, "acme", json!({ "bytes_per_second": 50_000 })).await;
    let start = Instant::now();
    send_event(&admin, 150_000).await.expect::<AcceptedEvent>(202);
    let rejected = send_event(&admin, 1).await;
    let problem = rejected.expect_problem(429, "quota_exceeded");
    assert!(problem.detail.contains("50000 bytes per second"), "{}", problem.detail);
    assert!((1..=3).contains(&seconds(&rejected)), "{rejected}");
    let accepted = wait_until("the event is accepted", async || {
        Some(send_event(&admin, 1).await).filter(|answer| answer.status != 429)
    })
    .await;
    accepted.expect::<AcceptedEvent>(202);
    assert!(
        start.elapsed().as_secs_f64() > 2.0,
        "150,000 bytes are three seconds of the quota, one is burst"
    );
    assert_eq!(messages(&system).await.len(), 2);
}

#[tokio::test]
async fn a_batch_without_memory_takes_no_tokens_and_is_processed_when_responses_were_read() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |client: &Client, line: &str, count: usize| {
        let request = client.request(Method::POST, "/events/batch");
        let request = request.header(CONTENT_TYPE, "application/x-ndjson").body(line.repeat(count));
        within(DEADLINE, "the response", request.send()).await.unwrap()
    };
    // Each result takes memory until the client has read it, and a tenant has 64 MiB. Its pointer has twice the bytes of this name, and an
    // item of this size takes no memory beyond the body.
    let item = format!("{{\"source_id\":\"s\",\"{}\":1e999}}\n", "~".repeat(1024));
    let mut unread = Vec::new();
    loop {
        let response = send(&admin.client, &item, 5000).await;
        if response.status() != 422 {
            break;
        }
        unread.push(response);
        assert!(unread.len() < 20, "no response takes memory");
    }
    set_quota(&system, "acme", json!({ "bytes_per_second": 10_000 })).await;
    let (_, holder) = system.create_api_key(&admin, &json!({ "name": "limited" })).await;
    // Each is twenty seconds of the quota.
    for _ in 0..5 {
        let refused = send(&holder, "77777777777777777777\n", 10_000).await;
        assert_eq!(refused.status(), 503, "the quota was used by batches that were not processed");
    }
    drop(unread);
    wait_until("the memory is free", async || {
        (send(&holder, "7\n", 10_000).await.status() == 422).then_some(())
    })
    .await;
}

#[tokio::test]
async fn batch_above_the_quota_stores_the_first_events_and_the_others_are_retryable() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    set_quota(&system, "acme", json!({ "events_per_second": 5 })).await;
    let start = Instant::now();
    let answer = send_batch(&admin, 1000).await;
    let batch: BatchResponse = answer.expect(207);
    assert_eq!(batch.successful_events, 15, "a burst of one second, and two seconds in advance");
    assert_eq!(over_quota(&batch), 985);
    assert_eq!(seconds(&answer), 3);
    let mut accepted = 15;
    for _ in 0..3 {
        let answer = send_batch(&admin, 1000).await;
        if answer.status == 429 {
            answer.expect_problem(429, "quota_exceeded");
            continue;
        }
        let batch: BatchResponse = answer.expect(207);
        over_quota(&batch);
        accepted += batch.successful_events;
    }
    let allowed = 5.0 * (3.0 + start.elapsed().as_secs_f64());
    assert!(f64::from(u32::try_from(accepted).unwrap()) <= allowed, "{accepted} {allowed}");
}

#[tokio::test]
async fn a_tenant_without_a_token_is_429_before_its_body_is_read() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    set_quota(&system, "acme", json!({ "bytes_per_second": 1000 })).await;
    send_event(&admin, 200_000).await.expect::<AcceptedEvent>(202);
    let answer = send_batch(&admin, 3).await;
    answer.expect_problem(429, "quota_exceeded");
    assert_eq!(seconds(&answer), 60);
    let client = admin.client.clone().header("Content-Encoding", "gzip");
    for path in ["/events", "/events/batch"] {
        client.post_bytes(path, JSON, "not gzip").await.expect_problem(429, "quota_exceeded");
    }
    assert_eq!(messages(&system).await.len(), 1);
}

#[tokio::test]
async fn bytes_count_whatever_becomes_of_them_and_other_tenants_have_their_own_quota() {
    let system = TestSystem::start().await.unwrap();
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let large = json!({ "source_id": "s", "padding": "x".repeat(100_000) }).to_string();
    let invalid = json!({ "padding": "x".repeat(100_000) }).to_string();
    let mut broken = gzip(&large);
    broken.truncate(broken.len() - 1);
    for (number, (path, body, code)) in [
        ("/events", gzip(&invalid), "validation_failed"),
        ("/events", gzip(&large.repeat(3)), "event_too_large"),
        ("/events", broken, "malformed_encoding"),
        ("/events/batch", gzip(&invalid), "validation_failed"),
    ]
    .into_iter()
    .enumerate()
    {
        let tenant_id = format!("tenant-{number}");
        let tenant = system.create_tenant(&tenant_id).await;
        set_quota(&system, &tenant_id, json!({ "bytes_per_second": 10_000 })).await;
        let client = tenant.client.clone().header("Content-Encoding", "gzip");
        let answer = client.post_bytes(path, JSON, body).await;
        answer.expect_problem(answer.status, code);
        let answer = send_event(&tenant, 1).await;
        answer.expect_problem(429, "quota_exceeded");
        assert!((1..=3).contains(&seconds(&answer)), "rejected bytes cost at most two seconds: {answer}");
    }
}

#[tokio::test]
async fn the_received_bytes_of_a_body_without_a_length_count_if_it_is_too_large() {
    let system = TestSystem::start().await.unwrap();
    for (number, (path, encoding, parts, code)) in [
        ("/events", "identity", 5, "event_too_large"),
        ("/events", "gzip", 5, "event_too_large"),
        ("/events/batch", "gzip", 81, "batch_too_large"),
    ]
    .into_iter()
    .enumerate()
    {
        let tenant_id = format!("tenant-{number}");
        let tenant = system.create_tenant(&tenant_id).await;
        set_quota(&system, &tenant_id, json!({ "bytes_per_second": 10_000 })).await;
        let client = tenant.client.clone().header("Content-Encoding", encoding);
        let parts = vec!["x".repeat(64 * 1024); parts];
        client.post_bytes(path, JSON, parts.concat()).await.expect_problem(413, code);
        // Nothing of a body with a length was read.
        send_event(&tenant, 1).await.expect::<AcceptedEvent>(202);
        let chunks = futures::stream::iter(parts.into_iter().map(Ok::<_, Infallible>));
        client.post_bytes(path, JSON, reqwest::Body::wrap_stream(chunks)).await.expect_problem(413, code);
        send_event(&tenant, 1).await.expect_problem(429, "quota_exceeded");
    }
}

#[tokio::test]
async fn each_item_counts_as_an_event_also_if_it_is_invalid_a_copy_or_before_the_error_of_a_body() {
    let system = TestSystem::start().await.unwrap();
    let copy = json!({ "source_id": "s", "event_id": "1" }).to_string();
    for (number, (path, body, status)) in [
        ("/events", "{}".into(), 422),
        ("/events", "{".into(), 400),
        ("/events", r#"{"source_id":"s","metadata":{"event_timestamp":"x"}}"#.into(), 422),
        ("/events", "x".repeat(300_000), 413),
        ("/events/batch", "[{},{}]".into(), 422),
        ("/events/batch", format!("[{copy},{copy}]"), 202),
        ("/events/batch", "[{},".into(), 400),
        ("/events/batch", "{}".into(), 422),
        ("/events/batch?invalid=quarantine", format!("[{copy},{copy}]"), 202),
        ("/events/batch?invalid=quarantine", "[{},".into(), 202),
        ("/events?invalid=quarantine", "{}".into(), 202),
    ]
    .into_iter()
    .enumerate()
    {
        let tenant_id = format!("tenant-{number}");
        let tenant = system.create_tenant(&tenant_id).await;
        set_quota(&system, &tenant_id, json!({ "events_per_second": 1 })).await;
        let answers: Vec<_> =
            futures::stream::repeat_with(|| tenant.client.post_bytes(path, JSON, body.clone()))
                .take(4)
                .buffered(1)
                .map(|answer| answer.status)
                .collect()
                .await;
        assert_eq!(answers[0], status, "{path} {body:.40}");
        assert_eq!(answers[3], 429, "{path} {body:.40} {answers:?}");
    }
}

#[tokio::test]
async fn changed_and_removed_quota_applies_without_a_new_login() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    send_event(&admin, 200_000).await.expect::<AcceptedEvent>(202);
    set_quota(&system, "acme", json!({ "bytes_per_second": 1000 })).await;
    wait_until("the quota applies", async || (send_event(&admin, 200_000).await.status == 429).then_some(()))
        .await;
    set_quota(&system, "acme", json!({})).await;
    wait_until("the quota is removed", async || (send_event(&admin, 1).await.status == 202).then_some(()))
        .await;
}

#[tokio::test]
async fn default_quota_applies_to_tenants_without_an_own_one() {
    let system = TestSystem::start_with(&[("SVC_DEFAULT_BYTES_PER_SECOND", "1KiB")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    set_quota(&system, "other", json!({ "bytes_per_second": 2_000_000_000 })).await;
    for user in [&acme, &other] {
        send_event(user, 200_000).await.expect::<AcceptedEvent>(202);
    }
    send_event(&acme, 1).await.expect_problem(429, "quota_exceeded");
    send_event(&other, 1).await.expect::<AcceptedEvent>(202);
}

#[tokio::test]
async fn events_that_fail_with_503_take_nothing_from_the_quota() {
    let mut system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    set_quota(&system, "acme", json!({ "bytes_per_second": 1000 })).await;
    system.nats.stop();
    wait_until("the event is rejected", async || {
        (send_event(&admin, 200_000).await.status == 503).then_some(())
    })
    .await;
    send_event(&admin, 200_000).await.expect_problem(503, "dependency_unavailable");
    system.nats.restart().await.unwrap();
    let answer = wait_until("the stream is available", async || {
        Some(send_event(&admin, 200_000).await).filter(|answer| answer.status != 503)
    })
    .await;
    answer.expect::<AcceptedEvent>(202);
}

/// Sends batches of ten events of 200 kB until an event is rejected. Returns the answer and the number of accepted events.
async fn fill_stream(user: &TestUser) -> (TestResponse, usize) {
    let items: Vec<_> =
        (0..10).map(|_| json!({ "source_id": "s", "padding": "x".repeat(200_000) })).collect();
    let body = serde_json::to_string(&items).unwrap();
    let mut accepted = 0;
    loop {
        let answer = user.client.post_bytes("/events/batch", JSON, body.clone()).await;
        let batch: BatchResponse = answer.expect(answer.status);
        accepted += batch.successful_events;
        if answer.status != 202 {
            return (answer, accepted);
        }
    }
}

#[tokio::test]
async fn one_tenant_fills_its_share_of_the_stream_and_others_can_still_send() {
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "24MiB")]).await.unwrap();
    let (alpha, beta) = (system.create_tenant("alpha").await, system.create_tenant("beta").await);
    let (answer, accepted) = fill_stream(&alpha).await;
    let batch: BatchResponse = answer.expect(answer.status);
    assert_eq!((over_quota(&batch) > 0, seconds(&answer)), (true, 60));
    assert!((29..=36).contains(&accepted), "a quarter of 24 MiB: {accepted}");
    let problem = send_event(&alpha, 1).await.expect_problem(429, "quota_exceeded");
    assert!(problem.detail.contains("share of the event stream"), "{}", problem.detail);
    send_event(&beta, 200_000).await.expect::<AcceptedEvent>(202);
    system.client().get("/health").await.expect::<Value>(200);
}

#[tokio::test]
async fn a_tenant_below_its_share_of_a_nearly_full_stream_gets_stream_full() {
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "24MiB")]).await.unwrap();
    let small = system.create_tenant("small").await;
    for _ in 0..10 {
        send_event(&small, 200_000).await.expect::<AcceptedEvent>(202);
    }
    // Each fills a third of the free space.
    for number in 0..8 {
        fill_stream(&system.create_tenant(&format!("tenant-{number}")).await).await;
    }
    let rejected = send_event(&small, 1).await;
    let problem = rejected.expect_problem(503, "stream_full");
    assert_eq!(problem.detail, "The event stream is full.");
    assert_eq!(seconds(&rejected), 60);
    let answer = send_batch(&small, 3).await;
    let batch: BatchResponse = answer.expect(503);
    assert!(batch.results.iter().all(|result| result.code.as_deref() == Some("stream_full")), "{answer}");
}

#[tokio::test]
async fn repeated_events_do_not_count_towards_the_share() {
    let system = TestSystem::start_with(&[("SVC_STREAM_MAX_BYTES", "24MiB")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let event = json!({ "source_id": "s", "event_id": "1", "padding": "x".repeat(200_000) });
    for _ in 0..60 {
        admin.client.post("/events", &event).await.expect::<AcceptedEvent>(202);
    }
}

#[tokio::test]
async fn a_share_of_100_percent_is_no_limit() {
    let variables = [("SVC_STREAM_MAX_BYTES", "8MiB"), ("SVC_TENANT_STREAM_SHARE", "100")];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let (answer, accepted) = fill_stream(&admin).await;
    let batch: BatchResponse = answer.expect(answer.status);
    assert_eq!(batch.results.last().unwrap().code.as_deref(), Some("stream_full"));
    assert!(accepted > 35, "{accepted}");
}
