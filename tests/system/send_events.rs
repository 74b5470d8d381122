//! `svc events send` with real processes: a run that is killed continues at its checkpoint.

use e2e::{ApiUser, EventStream, Installation};
use serde_json::{Value, json};
use testkit::wait_until;

const EVENTS: usize = 20_000;

#[tokio::test]
async fn a_killed_delivery_continues_and_the_stream_has_each_event_once() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let key: Value = user.client.post("/api-keys", &json!({ "name": "producer" })).await.expect(201);
    let svc = run.svc().with_api_key(key["key"].as_str().unwrap());
    // Without ids: they follow from the content of the file and the line.
    let lines: Vec<_> =
        (0..EVENTS).map(|n| format!("{{\"source_id\":\"fw-{}\",\"n\":{n}}}", n % 7)).collect();
    let (input, checkpoint) = (installation.path("events.ndjson"), installation.path("checkpoint"));
    std::fs::write(&input, lines.join("\n")).unwrap();
    let send = ["events", "send", "--batch-size", "5", "--file", input.to_str().unwrap()];
    let send = [&send[..], &["--checkpoint", checkpoint.to_str().unwrap()]].concat();
    let mut stream = EventStream::connect(&run.run_file.nats_url).await;
    for killed_after in [500, 4_000] {
        let mut child = svc.start(&send);
        wait_until("events are stored", async || (stream.count().await >= killed_after).then_some(())).await;
        child.kill().await.unwrap();
    }
    assert!(stream.count().await < EVENTS as u64, "the runs were killed before the end");
    let summary = svc.json(&send, "").await;
    let names = ["total", "accepted", "rejected", "failed"];
    assert_eq!(
        names.map(|name| summary[name].as_u64().unwrap()),
        [EVENTS as u64, EVENTS as u64, 0, 0],
        "{summary}"
    );
    assert!(summary["skipped_lines"].as_u64().unwrap() > 1_000, "{summary}");
    let ids = stream.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (EVENTS, Some(&1)));
}
