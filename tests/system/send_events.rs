//! `svc events send` with real processes: a run that is killed continues at its checkpoint, a slow link loses nothing, and invalid events
//! are quarantined, corrected and sent again.

use std::iter::repeat_with;
use std::time::Duration;

use contract::consumers::DeadLetter;
use e2e::{ApiUser, EventStream, Installation, Svc, SvcOutput};
use serde_json::{Value, json};
use testkit::{Disturbance, Forwarder, wait_until};

const EVENTS: usize = 20_000;
const EVENTS_OVER_A_SLOW_LINK: usize = 24;

#[tokio::test]
async fn a_killed_delivery_continues_and_the_stream_has_each_event_once() {
    let installation = Installation::new(&[]);
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

/// A line that the service quarantines, with the code of the problem, and the corrected event.
fn quarantined_line(n: usize) -> (String, &'static str, Value) {
    let (mut sent, code) = match n % 5 {
        0 => (json!({ "source_id": "fw" }), "validation_failed"),
        1 => (json!({ "source_id": "fw", "padding": "x".repeat(300_000) }), "event_too_large"),
        2 => (json!({ "source_id": "other" }), "source_not_allowed"),
        3 => (json!({ "source_id": "fw", "metadata": { "Event-Type": "USER_LOGIN" } }), "validation_failed"),
        _ => (json!({ "source_id": "fw", "udm": {} }), "validation_failed"),
    };
    sent["event_id"] = format!("corrected-{n}").into();
    sent["n"] = n.into();
    let corrected = json!({ "source_id": "fw", "event_id": sent["event_id"], "n": n });
    match n % 5 {
        0 => sent["metadata"] = json!({ "event_timestamp": "yesterday" }),
        4 => return (sent.to_string().replacen('{', "{\"n\":0,", 1), "validation_failed", corrected),
        _ => {}
    }
    (sent.to_string(), code, corrected)
}

/// Runs a command with `--output json`. Returns its summary, also after an error.
async fn summary(svc: &Svc, arguments: &[&str]) -> (SvcOutput, Value) {
    let output = svc.run(&[arguments, &["--output", "json"]].concat(), "").await;
    let summary = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, summary)
}

#[tokio::test]
async fn quarantined_events_of_a_file_are_listed_corrected_sent_and_deleted_and_none_is_lost() {
    const LINES: usize = 3000;
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let limited = json!({ "name": "producer", "source_ids": ["fw"] });
    let key: Value = user.client.post("/api-keys", &limited).await.expect(201);
    let producer = run.svc().with_api_key(key["key"].as_str().unwrap());
    let admin = run.svc().with_variable("SVC_TOKEN", &user.token);
    // One percent is invalid. The last two are not JSON objects: those stay with the sender.
    let invalid: Vec<_> = (0..LINES / 100 - 2).map(quarantined_line).collect();
    let unreadable = ["{\"source_id\":\"fw\",\"event_id\":\"text-1\"", "text-2"];
    let broken = invalid.iter().map(|(line, ..)| line.clone()).chain(unreadable.map(str::to_owned));
    let mut broken = broken.collect::<Vec<_>>().into_iter();
    let lines: Vec<_> = (0..LINES)
        .map(|n| match n % 100 {
            50 => broken.next().unwrap(),
            _ => json!({ "source_id": "fw", "event_id": format!("valid-{n}") }).to_string(),
        })
        .collect();
    let input = installation.path("events.ndjson");
    std::fs::write(&input, lines.join("\n")).unwrap();
    let rejects = installation.path("rejects.ndjson");
    let command = ["events", "send", "--invalid", "quarantine", "--file", input.to_str().unwrap()];
    let command = [&command[..], &["--concurrency", "1", "--rejects", rejects.to_str().unwrap()]].concat();

    let (output, sent) = summary(&producer, &command).await;
    let counts = |summary: &Value| {
        ["total", "accepted", "quarantined", "rejected", "failed"]
            .map(|name| usize::try_from(summary[name].as_u64().unwrap()).unwrap())
    };
    let valid = LINES / 100 * 99;
    assert_eq!((output.code, counts(&sent)), (Some(10), [LINES, valid, invalid.len(), 2, 0]), "{sent}");
    assert!(output.stderr.contains("2970 accepted, 28 quarantined, 2 rejected"), "{output:?}");
    assert_eq!(sent["first_rejects"].as_array().unwrap().len(), 2, "{sent}");
    let kept = std::fs::read_to_string(&rejects).unwrap();
    let mut kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kept.iter().map(|reject| &reject["text"]).collect::<Vec<_>>(), unreadable);

    let list = ["events", "dlq", "list", "_ingest"];
    let listed = admin.json(&list, "").await;
    let letters: Vec<DeadLetter> = serde_json::from_value(listed["items"].clone()).unwrap();
    let details = |letter: &DeadLetter| letter.quarantine.clone().unwrap();
    // The parts of an item follow each other.
    let is_first = |letter: &DeadLetter| details(letter).part.is_none_or(|part| part.starts_with("1/"));
    let items: Vec<_> = letters.chunk_by(|_, next| !is_first(next)).collect();
    let codes: Vec<_> = items.iter().map(|item| details(&item[0]).code).collect();
    assert_eq!(codes, invalid.iter().map(|(_, code, _)| *code).collect::<Vec<_>>());

    for (item, (line, code, corrected)) in items.iter().zip(&invalid) {
        let numbers: Vec<_> = item.iter().map(|letter| letter.sequence).collect();
        let texts: Vec<_> = numbers.iter().map(u64::to_string).collect();
        let with_numbers = |command| {
            let command = ["events", "dlq", command, "_ingest"].into_iter();
            command.chain(texts.iter().map(String::as_str)).collect::<Vec<_>>()
        };
        let shown = admin.run_ok(&with_numbers("show"), "").await;
        assert!(shown.trim_end_matches('\n') == line, "{code}: {} bytes", shown.len());
        let file = installation.path("item.json");
        std::fs::write(&file, corrected.to_string()).unwrap();
        let again = ["events", "send", "--invalid", "quarantine", "--file", file.to_str().unwrap()];
        let (output, sent) = summary(&producer, &again).await;
        assert_eq!((output.code, counts(&sent)), (Some(0), [1, 1, 0, 0, 0]), "{sent}");
        let deleted = admin.json(&with_numbers("delete"), "").await;
        assert_eq!(deleted, json!({ "handled": numbers, "skipped": [] }));
    }
    assert_eq!(admin.json(&list, "").await["items"], json!([]));

    for (n, reject) in (1..).zip(&mut kept) {
        reject["text"] = json!({ "source_id": "fw", "event_id": format!("text-{n}") }).to_string().into();
    }
    std::fs::write(&rejects, kept.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).unwrap();
    let (output, sent) = summary(&producer, &["events", "send", "--file", rejects.to_str().unwrap()]).await;
    assert_eq!((output.code, counts(&sent)), (Some(0), [2, 2, 0, 0, 0]), "{sent}");
    let ids = EventStream::connect(&run.run_file.nats_url).await.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (LINES, Some(&1)));
    assert!((0..invalid.len()).all(|n| ids.contains_key(&format!("corrected-{n}"))));
}

#[tokio::test]
async fn a_full_quarantine_makes_the_rest_rejects_and_a_repeated_run_stores_nothing_twice() {
    let installation = Installation::new(&[("SVC_QUARANTINE_MAX_ITEMS", "3")]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let key: Value = user.client.post("/api-keys", &json!({ "name": "producer" })).await.expect(201);
    let producer = run.svc().with_api_key(key["key"].as_str().unwrap());
    let line = |n: usize| match n % 2 {
        0 => json!({ "source_id": "fw", "n": n }).to_string(),
        _ => json!({ "source_id": "fw", "network": n }).to_string(),
    };
    let input = installation.path("events.ndjson");
    std::fs::write(&input, (0..10).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let command = ["events", "send", "--invalid", "quarantine", "--file", input.to_str().unwrap()];
    for (duplicates, quarantined) in [(0, 3), (5, 0)] {
        let (output, sent) = summary(&producer, &command).await;
        let counts =
            ["accepted", "duplicates", "quarantined", "rejected"].map(|name| sent[name].as_u64().unwrap());
        assert_eq!(
            (output.code, counts),
            (Some(10), [5, duplicates, quarantined, 5 - quarantined]),
            "{sent}"
        );
    }
    let admin = run.svc().with_variable("SVC_TOKEN", &user.token);
    let listed = admin.json(&["events", "dlq", "list", "_ingest"], "").await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
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
