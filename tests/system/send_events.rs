//! `svc events send` with real processes: a run that is killed continues at its checkpoint, and a slow link loses nothing.

use std::iter::repeat_with;
use std::time::Duration;

use e2e::{ApiUser, EventStream, Installation, Svc};
use serde_json::{Value, json};
use testkit::{Disturbance, Forwarder, wait_until};

const EVENTS: usize = 20_000;
const EVENTS_OVER_A_SLOW_LINK: usize = 24;

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
    assert!(summary["skipped"].as_u64().unwrap() > 1_000, "{summary}");
    let ids = stream.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (EVENTS, Some(&1)));
}

/// A link of 320 kB/s for each connection. With the rate of the second case, the service rejects requests that are too large for it.
#[tokio::test]
async fn a_slow_link_delays_events_and_loses_none() {
    // Hardly compressible, so that each request takes longer than the grace time.
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'A' + (state >> 59) as u8)
    };
    let mut event = || {
        let padding: String =
            repeat_with(&mut letter).take(40_000).filter(|letter| *letter != '\\').collect();
        format!("{{\"source_id\":\"fw\",\"padding\":\"{padding}\"}}\n")
    };
    let input: String = repeat_with(&mut event).take(EVENTS_OVER_A_SLOW_LINK).collect();
    for (rate, too_slow) in [("8KiB", false), ("1MiB", true)] {
        let installation = Installation::new(&[("SVC_BODY_GRACE", "1s"), ("SVC_BODY_MIN_RATE", rate)]);
        let run = installation.up().await;
        let user = ApiUser::first_admin(&run.run_file).await;
        let key: Value = user.client.post("/api-keys", &json!({ "name": "producer" })).await.expect(201);
        let link = Forwarder::start().await.unwrap();
        link.set_target(run.run_file.base_url.rsplit_once(':').unwrap().1.parse().unwrap());
        link.disturb(Disturbance::Delayed(Duration::from_millis(200)));
        let svc = Svc::new(&run.run_file.svc, &format!("http://{}", link.address), &run.run_file.tenant);
        let svc = svc.with_api_key(key["key"].as_str().unwrap());
        let output =
            svc.run(&["events", "send", "--file", "-", "--output", "json", "--verbose"], &input).await;
        let summary: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(
            (output.code, &summary["accepted"]),
            (Some(0), &json!(EVENTS_OVER_A_SLOW_LINK)),
            "{output:?}"
        );
        assert_eq!(output.stderr.contains("408"), too_slow, "{}", output.stderr);
        let ids = EventStream::connect(&run.run_file.nats_url).await.event_ids().await;
        assert_eq!((ids.len(), ids.values().max()), (EVENTS_OVER_A_SLOW_LINK, Some(&1)));
    }
}
