//! `svc events`.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Handler, Stub, StubRequest, problem};
use crate::terminal::{read_until, resize, rest_of, run_at_terminal, terminal};

/// Events of a batch, decompressed if necessary.
pub(crate) fn events(request: &StubRequest) -> Vec<Value> {
    let mut text = Vec::new();
    match request.header("content-encoding") {
        Some("gzip") => {
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&request.body[..]), &mut text)
                .unwrap();
        }
        _ => text.extend_from_slice(&request.body),
    }
    match request.header("content-type") {
        Some("application/x-ndjson") => text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect(),
        _ => serde_json::from_slice(&text).unwrap(),
    }
}

/// Rejects events of the source `bad`.
pub(crate) fn service(request: &StubRequest) -> (u16, String) {
    let results: Vec<_> = events(request)
        .iter()
        .enumerate()
        .map(|(index, event)| match event["source_id"].as_str() {
            Some("bad") | None => json!({
                "index": index, "event_id": event["event_id"], "status": "rejected", "code": "validation_failed",
                "message": "not this one", "pointer": "/source_id", "retryable": false,
            }),
            Some(_) => json!({
                "index": index, "event_id": event["event_id"], "status": "accepted", "duplicate": false,
                "server_event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            }),
        })
        .collect();
    let accepted = results.iter().filter(|result| result["status"] == "accepted").count();
    let answer = json!({
        "batch_id": "01890a5d-ac96-774b-bcce-b302099a8057", "total_events": results.len(),
        "successful_events": accepted, "failed_events": results.len() - accepted, "results": results,
    });
    let status = if accepted == results.len() {
        202
    } else if accepted == 0 {
        422
    } else {
        207
    };
    (status, answer.to_string())
}

pub(crate) fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x")
}

fn sent_ids(stub: &Stub) -> Vec<String> {
    let all = stub.requests();
    all.iter().flat_map(events).map(|event| event["event_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sends_a_file_with_deterministic_ids() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let lines: Vec<_> = (0..1_200).map(|n| format!("{{\"source_id\":\"fw\",\"n\":{n}}}")).collect();
    std::fs::write(client.home().join("events.ndjson"), lines.join("\n")).unwrap();
    let send = ["events", "send", "--file", "events.ndjson", "--concurrency", "1", "--output", "json"];
    let summary = client.run(&send).json();
    assert_eq!(
        (&summary["total"], &summary["accepted"], &summary["rejected"]),
        (&json!(1200), &json!(1200), &json!(0))
    );
    assert_eq!(
        stub.requests().iter().map(|request| events(request).len()).collect::<Vec<_>>(),
        [500, 500, 200]
    );
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_ak_x"));
    client.run(&send).json();
    let ids = sent_ids(&stub);
    assert_eq!(ids[..1_200], ids[1_200..]);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 1_200);
}

#[test]
fn tenant_option_is_sent_so_that_a_credential_of_another_tenant_is_rejected() {
    let stub = Stub::new(|request| match request.header("x-tenant-id") {
        None | Some("acme") => service(request),
        Some(_) => problem(ProblemKind::TenantMismatch),
    });
    let send = ["events", "send", "-f", "-", "--output", "json"];
    let event = "{\"source_id\":\"fw\"}\n";
    assert_eq!(client(&stub).run_with(&send, event).code, Some(0));
    assert_eq!(client(&stub).with_variable("SVC_TENANT", "acme").run_with(&send, event).code, Some(0));
    let result = client(&stub).run_with(&[&["--tenant", "other"], &send[..]].concat(), event);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(5), Some("tenant_mismatch")));
}

#[test]
fn events_of_stdin_get_random_ids_unless_they_have_one() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let input = "{\"source_id\":\"fw\"}\n{\"source_id\":\"fw\",\"event_id\":\"mine\"}\n";
    for _ in 0..2 {
        assert_eq!(client.run_with(&["events", "send", "-f", "-"], input).code, Some(0));
    }
    let ids = sent_ids(&stub);
    assert_eq!((ids[1].as_str(), ids[3].as_str()), ("mine", "mine"));
    assert_ne!(ids[0], ids[2]);
}

#[test]
fn id_of_an_event_has_either_spelling_and_no_other_one() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let lines = [
        r#"{"source_id":"fw","eventId":"mine"}"#,
        r#"{"source_id":"fw","Event_Id":"mine"}"#,
        r#"{"source_id":"fw","event_id":"mine","eventId":"mine"}"#,
        r#"{"source_id":"fw","eventId":null}"#,
    ];
    let result = client.run_with(&["events", "send", "-f", "-", "--output", "json"], &lines.join("\n"));
    assert_eq!(result.code, Some(10), "{result:?}");
    let sent = events(&stub.requests()[0]);
    assert_eq!(sent[0], json!({ "source_id": "fw", "eventId": "mine" }));
    assert!(sent[1]["eventId"].is_string() && sent[1].get("event_id").is_none(), "{}", sent[1]);
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    let rejects = summary["first_rejects"].as_array().unwrap();
    let expected =
        ["Event_Id: write this name as event_id or eventId", "the event has more than one event_id"];
    for ((reject, line), message) in rejects.iter().zip([2, 3]).zip(expected) {
        assert_eq!(
            (&reject["line"], &reject["code"]),
            (&json!(line), &json!("validation_failed")),
            "{reject}"
        );
        assert!(reject["message"].as_str().unwrap().starts_with(message), "{reject}");
    }
    assert_eq!(rejects.len(), 2);
}

#[test]
fn a_wrong_path_in_the_base_url_is_no_missing_object() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let client = Client::for_url(&format!("{}/x", stub.url)).with_variable("SVC_API_KEY", "svc_ak_x");
    let send = ["events", "send", "-f", "-", "--output", "json"];
    let result = client.run_with(&send, "{\"source_id\":\"fw\"}\n");
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(1), Some("unexpected_response")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("has no path /x/api/v1/events/batch"), "{error}");
    assert!(error["remediation"].as_str().unwrap().contains("--base-url"), "{error}");
}

/// Rejects a request for a second.
fn overloaded() -> (u16, String) {
    let (status, body) = problem(ProblemKind::Overloaded);
    let mut body: Value = serde_json::from_str(&body).unwrap();
    body["retry_after_ms"] = json!(1000);
    (status, body.to_string())
}

#[test]
fn progress_on_a_terminal_announces_why_events_wait_for_a_retry() {
    static REJECTED: AtomicBool = AtomicBool::new(false);
    let stub =
        Stub::new(
            |request| if REJECTED.swap(true, Ordering::Relaxed) { service(request) } else { overloaded() },
        );
    let client = client(&stub);
    let lines = "{\"source_id\":\"a\"}\n{\"source_id\":\"b\"}\n";
    std::fs::write(client.home().join("events.ndjson"), lines).unwrap();
    let result = run_at_terminal(&client, &["events", "send", "--file", "events.ndjson"], "");
    assert_eq!(result.code, Some(0), "{result:?}");
    let title = ProblemKind::Overloaded.title().to_lowercase();
    assert!(result.stderr.contains("] 100% 0 accepted, waiting "), "{result:?}");
    assert!(result.stderr.contains(&format!(" s with 2 events: {title}")), "{result:?}");
    assert!(result.stderr.ends_with("\r\u{1b}[K"), "the line is cleared: {result:?}");
}

#[test]
fn progress_shows_the_part_of_the_input_the_accepted_events_and_the_rate() {
    static SHOWN: Barrier = Barrier::new(2);
    let stub = Stub::new(|request| {
        if events(request)[0]["n"] == 1 {
            SHOWN.wait();
        }
        service(request)
    });
    let client = client(&stub);
    let input = "{\"source_id\":\"fw\",\"n\":0}\n{\"source_id\":\"fw\",\"n\":1}\n";
    std::fs::write(client.home().join("events.ndjson"), input).unwrap();
    let (screen, terminal) = terminal();
    let send = ["events", "send", "--file", "events.ndjson", "--batch-size", "1", "--concurrency", "1"];
    let mut command = client.command(&send);
    let mut child = command.stderr(terminal).spawn().unwrap();
    drop(command);
    let shown = read_until(&screen, "/s");
    SHOWN.wait();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let (bar, rate) = shown.rsplit('\r').next().unwrap().split_once(" 1 accepted, ").unwrap();
    assert!(bar.contains("[==") && bar.ends_with('%'), "{shown:?}");
    assert!(rate.trim_end_matches("/s").parse::<u64>().is_ok(), "{shown:?}");
}

#[test]
fn progress_fits_on_one_line_of_a_narrow_terminal() {
    static REJECTED: AtomicBool = AtomicBool::new(false);
    let stub =
        Stub::new(
            |request| if REJECTED.swap(true, Ordering::Relaxed) { service(request) } else { overloaded() },
        );
    let client = client(&stub);
    std::fs::write(client.home().join("events.ndjson"), "{\"source_id\":\"a\"}\n").unwrap();
    let (screen, terminal) = terminal();
    resize(&terminal, 40);
    let mut command = client.command(&["events", "send", "--file", "events.ndjson"]);
    let mut child = command.stderr(terminal).spawn().unwrap();
    drop(command);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let shown = rest_of(screen);
    let lines: Vec<_> = shown.split("\r\u{1b}[K").collect();
    assert!(lines.iter().any(|line| line.ends_with('…')), "{shown:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 40), "{shown:?}");
}

#[test]
fn sends_one_event_and_a_list() {
    let stub = Stub::new(service);
    let client = client(&stub);
    for input in ["{\n  \"source_id\": \"fw\"\n}\n", "[{\"source_id\":\"fw\"},\n {\"source_id\":\"fw\"}]"] {
        assert_eq!(client.run_with(&["events", "send", "-f", "-"], input).code, Some(0), "{input}");
    }
    assert_eq!(sent_ids(&stub).len(), 3);
}

#[test]
fn partial_success_is_exit_status_10_with_a_rejects_file() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let input = "{\"source_id\":\"fw\"}\n{\"source_id\":\"bad\"}\nnonsense\n{\"source_id\":\"fw\"}\n";
    let send = ["events", "send", "-f", "-", "--rejects", "rejects.ndjson", "--output", "json"];
    let result = client.run_with(&send, input);
    let error = result.error();
    assert_eq!(
        (result.code, error["code"].as_str(), error["retryable"].as_bool()),
        (Some(10), Some("partial_success"), Some(false))
    );
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!(
        (&summary["total"], &summary["accepted"], &summary["rejected"]),
        (&json!(4), &json!(2), &json!(2))
    );
    let first = &summary["first_rejects"];
    assert_eq!(
        (&first[0]["line"], &first[0]["message"]),
        (&json!(2), &json!("not this one (at /source_id)"))
    );
    assert_eq!(
        first[1],
        json!({
            "line": 3, "item": null, "event_id": null, "code": "malformed_json",
            "message": "not JSON: expected a value (NaN, Infinity, None and single quotes are not JSON) at column 2"
        })
    );
    assert_valid_output("events send", &summary);
    assert_eq!(
        error["remediation"],
        "Do not send the input again: correct the events and send only the rejects with `svc events send --file rejects.ndjson`."
    );

    let rejects = std::fs::read_to_string(client.home().join("rejects.ndjson")).unwrap();
    let rejects: Vec<Value> = rejects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rejects[0]["line"], &rejects[0]["code"]), (&json!(2), &json!("validation_failed")));
    assert_eq!(rejects[0]["event"]["event_id"], rejects[0]["event_id"]);
    assert_eq!(
        (&rejects[1]["line"], &rejects[1]["code"], &rejects[1]["text"]),
        (&json!(3), &json!("malformed_json"), &json!("nonsense"))
    );
}

#[test]
fn without_the_option_rejects_are_kept_in_a_new_file_that_the_summary_names() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let send = ["events", "send", "-f", "-", "--output", "json"];
    let names = ["events.rejects.ndjson", "events.2.rejects.ndjson"];
    for (accepted, name) in ["", "{\"source_id\":\"fw\"}\n"].into_iter().zip(names) {
        let result = client.run_with(&send, &("{\"source_id\":\"bad\"}\n".repeat(30) + accepted));
        let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
        assert!(remediation.ends_with(&format!("`svc events send --file {name}`.")), "{remediation}");
        let summary: Value = serde_json::from_str(&result.stdout).unwrap();
        assert_eq!(summary["first_rejects"].as_array().unwrap().len(), 20);
        assert_eq!(summary["rejects_file"], name);
        let path = client.home().join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 30);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let files = || std::fs::read_dir(client.home()).unwrap().count();
    let before = files();
    assert_eq!(client.run_with(&send, "{\"source_id\":\"fw\"}\n").json()["rejects_file"], Value::Null);
    assert_eq!(files(), before, "no file without rejects");
}

/// Rejects the batch with the first event for a second.
fn first_batch_late(request: &StubRequest) -> (u16, String) {
    static REJECTED: AtomicBool = AtomicBool::new(false);
    if events(request)[0]["n"] != 0 || REJECTED.swap(true, Ordering::Relaxed) {
        return service(request);
    }
    problem(ProblemKind::Overloaded)
}

#[test]
fn rejects_are_in_the_order_of_the_input() {
    let stub = Stub::new(first_batch_late);
    let client = client(&stub);
    let lines: Vec<_> = (0..40).map(|n| format!("{{\"source_id\":\"bad\",\"n\":{n}}}\nnonsense\n")).collect();
    let send = ["events", "send", "-f", "-", "--batch-size", "4", "--rejects", "r", "--output", "json"];
    let result = client.run_with(&send, &lines.concat());
    assert_eq!(result.code, Some(7), "{result:?}");
    let first = stub.requests().iter().position(|request| events(request)[0]["n"] == 4);
    assert!(first < Some(stub.requests().len() - 1), "the first batch is not the last to be answered");
    let rejects = std::fs::read_to_string(client.home().join("r")).unwrap();
    let order: Vec<_> =
        rejects.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].as_u64()).collect();
    assert_eq!(order, (1..=80).map(Some).collect::<Vec<_>>());
}

#[test]
fn rejects_can_be_sent_again_with_the_same_ids_and_bytes() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let input = "{\"source_id\":\"bad\",\"n\":1.50e+2}\n{\"source_id\":\"fw\",\nnonsense\n";
    let send = ["events", "send", "-f", "-", "--rejects", "rejects.ndjson", "--output", "json"];
    assert_eq!(client.run_with(&send, input).code, Some(7));
    let path = client.home().join("rejects.ndjson");
    let rejects = std::fs::read_to_string(&path).unwrap();
    let id = serde_json::from_str::<Value>(rejects.lines().next().unwrap()).unwrap()["event_id"].clone();
    let corrected = rejects
        .replace("\"bad\"", "\"fw\"")
        .replace(r#"{\"source_id\":\"fw\","#, r#"{\"source_id\":\"fw\"}"#);
    assert_ne!(corrected, rejects);
    std::fs::write(&path, corrected).unwrap();
    let again = ["events", "send", "-f", "rejects.ndjson", "--output", "json"];
    let result = client.run(&again);
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["accepted"], &summary["rejected"]), (&json!(2), &json!(1)), "{summary}");
    let request = stub.requests().pop().unwrap();
    assert_eq!(events(&request)[0]["event_id"], id);
    assert!(String::from_utf8_lossy(&request.body).contains("\"n\":1.50e+2"), "{request:?}");
    assert_eq!(summary["rejects_file"], "rejects.ndjson.rejects.ndjson");
    let left = std::fs::read_to_string(client.home().join("rejects.ndjson.rejects.ndjson")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&left).unwrap()["text"], "nonsense");
    let overwrite = client.run(&["events", "send", "-f", "rejects.ndjson", "--rejects", "rejects.ndjson"]);
    assert_eq!(overwrite.code, Some(2), "{overwrite:?}");
}

/// Quarantines the events of the source `bad`.
fn quarantining_service(request: &StubRequest) -> (u16, String) {
    let (status, body) = service(request);
    if !request.line.ends_with("/events/batch?invalid=quarantine") {
        return (status, body);
    }
    let mut answer: Value = serde_json::from_str(&body).unwrap();
    for result in answer["results"].as_array_mut().unwrap() {
        if result["status"] == "rejected" {
            result["status"] = "quarantined".into();
        }
    }
    answer["quarantined_events"] = answer["failed_events"].clone();
    answer["successful_events"] = answer["total_events"].clone();
    answer["failed_events"] = 0.into();
    (202, answer.to_string())
}

#[test]
fn quarantined_events_are_success_and_lines_that_are_not_json_are_rejects() {
    let stub = Stub::new(quarantining_service);
    let client = client(&stub);
    let valid = "{\"source_id\":\"fw\"}\n{\"source_id\":\"bad\"}\n";
    let send = ["events", "send", "-f", "-", "--output", "json", "--rejects", "r.ndjson"];
    let quarantine = [&send[..], &["--invalid", "quarantine"]].concat();
    let counts = |output: &str| {
        let summary: Value = serde_json::from_str(output).unwrap();
        ["total", "accepted", "quarantined", "rejected"].map(|name| summary[name].as_u64().unwrap())
    };
    let result = client.run_with(&quarantine, valid);
    assert_eq!((result.code, counts(&result.stdout)), (Some(0), [2, 1, 1, 0]), "{result:?}");
    assert!(result.json()["rejects_file"].is_null());
    let text = client.run_with(&["events", "send", "-f", "-", "--invalid", "quarantine"], valid);
    assert!(format!("{text:?}").contains("svc events dlq list _ingest"), "{text:?}");
    // All events quarantined is not an input without events.
    let result = client.run_with(&quarantine, "{\"source_id\":\"bad\"}\n");
    assert_eq!((result.code, counts(&result.stdout)), (Some(0), [1, 0, 1, 0]), "{result:?}");
    let result = client.run_with(&quarantine, &format!("{valid}nonsense\n"));
    assert_eq!((result.code, counts(&result.stdout)), (Some(10), [3, 1, 1, 1]), "{result:?}");
    let rejects = std::fs::read_to_string(client.home().join("r.ndjson")).unwrap();
    assert_eq!(rejects.lines().count(), 1, "{rejects}");
    assert!(rejects.contains("nonsense"), "{rejects}");
    // Without the option, the invalid event is a reject.
    let result = client.run_with(&send, valid);
    assert_eq!((result.code, counts(&result.stdout)), (Some(10), [2, 1, 0, 1]), "{result:?}");
}

#[test]
fn duplicates_are_counted_and_requests_are_logged() {
    let stub = Stub::new(|request| {
        let (status, body) = service(request);
        (status, body.replace("\"duplicate\":false", "\"duplicate\":true"))
    });
    let send = ["events", "send", "-f", "-", "--output", "json", "--verbose"];
    let result = client(&stub).run_with(&send, &"{\"source_id\":\"fw\"}\n".repeat(3));
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(3), &json!(3)));
    let logged = result.stderr.lines().find_map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line.get("request").cloned()
    });
    let logged = logged.unwrap();
    assert_eq!((&logged["method"], &logged["outcome"]), (&json!("POST"), &json!("202")));
    assert_eq!(logged["request_id"], "of-the-stub");
    assert!(logged["url"].as_str().unwrap().ends_with("/api/v1/events/batch"), "{logged}");
    assert!(!result.stderr.contains("svc_ak_x"), "{result:?}");
}

/// Asks to wait for longer than the time limit.
fn rate_limited(_: &StubRequest) -> (u16, String) {
    let (status, body) = problem(ProblemKind::RateLimited);
    let mut body: Value = serde_json::from_str(&body).unwrap();
    body["retry_after_ms"] = json!(60_000);
    (status, body.to_string())
}

#[test]
fn a_pause_beyond_the_time_limit_is_an_error_at_once_and_the_events_are_kept() {
    let stub = Stub::new(rate_limited);
    let client = client(&stub);
    let send = ["events", "send", "-f", "-", "--timeout", "20s", "--output", "json"];
    let result = client.run_with(&send, "{\"source_id\":\"fw\"}\n");
    let error = result.error();
    assert_eq!(
        (result.code, error["code"].as_str(), error["retryable"].as_bool()),
        (Some(9), Some("rate_limited"), Some(false))
    );
    assert_eq!(stub.requests().len(), 1);
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["stopped_before_line"], &summary["failed"]), (&Value::Null, &json!(1)));
    assert_eq!(summary["rejects_file"], "events.rejects.ndjson");
    assert_eq!(
        error["remediation"],
        "Wait. Do not send the input again: send only the rejects with `svc events send --file events.rejects.ndjson`."
    );
}

#[test]
fn a_rejected_first_request_loses_nothing_that_was_read_from_standard_input() {
    let rejecting: [Handler; 2] =
        [|_| problem(ProblemKind::QuotaExceeded), |_| problem(ProblemKind::CredentialInvalid)];
    for rejecting in rejecting {
        let stub = Stub::new(rejecting);
        let client = client(&stub);
        // More than the command reads ahead.
        let line =
            |number| format!("{}\n", json!({ "source_id": "fw", "note": number, "text": "x".repeat(300) }));
        let mut lines: Vec<_> = (1..=5_000).map(line).collect();
        lines[2] = "not an event\n".to_owned();
        let send = ["events", "send", "-f", "-", "--batch-size", "2", "--concurrency", "1"];
        let send = [&send[..], &["--timeout", "1s", "--output", "json"]].concat();
        let result = client.run_with(&send, &lines.concat());
        let summary: Value = serde_json::from_str(&result.stdout).unwrap();
        assert_eq!((&summary["accepted"], &summary["rejected"]), (&json!(0), &json!(0)), "{result:?}");
        let kept = std::fs::read_to_string(client.home().join("events.rejects.ndjson")).unwrap();
        let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<_> = kept.iter().map(|reject| reject["line"].as_u64().unwrap()).collect();
        let count = u64::try_from(kept.len()).unwrap();
        // More than the two events of the request.
        assert!(count > 2, "{summary}");
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        assert_eq!((&summary["failed"], &summary["total"]), (&json!(count), &json!(count)));
        let stopped = &summary["stopped_before_line"];
        assert!(*stopped == json!(count + 1) || count == 5_000 && stopped.is_null(), "{summary}");
        assert_eq!(kept[2]["text"], "not an event");
        let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
        assert!(remediation.contains("`svc events send --file events.rejects.ndjson`"), "{remediation}");
        let rest = format!("If the input has more, send it from line {} on: it was not sent.", count + 1);
        assert_eq!(remediation.contains(&rest), !stopped.is_null(), "{remediation}");
    }
}

#[test]
fn a_server_without_an_answer_ends_the_delivery_at_the_time_limit() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::for_url(&format!("http://{}", silent.local_addr().unwrap()))
        .with_variable("SVC_API_KEY", "svc_ak_x");
    let send = ["events", "send", "-f", "-", "--timeout", "200ms", "--output", "json"];
    let result = client.run_with(&send, "{\"source_id\":\"fw\"}\n");
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(9), Some("timed_out")), "{result:?}");
}

/// A server that closes each connection after it has read a part of the request.
fn broken_server() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let _ = std::io::Read::read(&mut connection.unwrap(), &mut [0; 64]);
        }
    });
    url
}

#[test]
fn events_that_may_be_stored_are_kept_with_their_ids() {
    let client = Client::for_url(&broken_server()).with_variable("SVC_API_KEY", "svc_ak_x");
    let send = ["events", "send", "-f", "-", "--timeout", "2s", "--output", "json"];
    let result = client.run_with(&send, "{\"source_id\":\"fw\"}\n");
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(9), Some("unreachable")), "{result:?}");
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["failed"], &summary["rejected"]), (&json!(1), &json!(0)));
    let kept = std::fs::read_to_string(client.home().join("events.rejects.ndjson")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["retryable"], &kept["event"]["event_id"]), (&json!(true), &kept["event_id"]));
    assert!(result.error()["remediation"].as_str().unwrap().contains("events.rejects.ndjson"), "{result:?}");
}

#[test]
fn without_a_connection_nothing_of_a_file_is_kept_and_the_command_can_be_repeated() {
    let client = Client::for_url("http://127.0.0.1:1").with_variable("SVC_API_KEY", "svc_ak_x");
    std::fs::write(client.home().join("file.ndjson"), "{\"source_id\":\"fw\"}\n").unwrap();
    let send = ["events", "send", "-f", "file.ndjson", "--timeout", "2s", "--output", "json"];
    let result = client.run(&send);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(9), Some("unreachable")), "{result:?}");
    assert!(!error["remediation"].as_str().unwrap().contains("Do not send"), "{error}");
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    let nothing = (&json!(0), &json!(1), &Value::Null);
    assert_eq!((&summary["total"], &summary["stopped_before_line"], &summary["rejects_file"]), nothing);
}

#[cfg(target_os = "linux")]
#[test]
fn rejects_that_cannot_be_written_stop_the_delivery() {
    let stub = Stub::new(service);
    let send =
        ["events", "send", "-f", "-", "--rejects", "/dev/full", "--batch-size", "1", "--output", "json"];
    let result = client(&stub).run_with(&send, &"{\"source_id\":\"bad\"}\n".repeat(1_000));
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(1), Some("output_failed")), "{result:?}");
    assert!(error["message"].as_str().unwrap().contains("/dev/full"), "{error}");
    assert!(
        error["message"].as_str().unwrap().ends_with("the rejects from line 1 on are not kept"),
        "{error}"
    );
    assert!(stub.requests().len() < 100, "{}", stub.requests().len());
}

#[cfg(target_os = "linux")]
#[test]
fn rejects_that_cannot_be_written_are_found_again_in_a_file_and_lost_in_a_pipe() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let input = ["fw", "bad", "fw"].map(|source| format!("{{\"source_id\":\"{source}\"}}\n")).concat();
    std::fs::write(client.home().join("file.ndjson"), &input).unwrap();
    for (file, expected) in [
        (
            "file.ndjson",
            "Not all rejects from line 2 to the end are kept: write this part of the input to a new file",
        ),
        ("-", "Not all events from line 2 on are kept: they cannot be read again and are lost"),
    ] {
        let send = ["events", "send", "-f", file, "--rejects", "/dev/full", "--output", "json"];
        let result = client.run_with(&send, &input);
        assert_eq!(result.code, Some(10), "{result:?}");
        let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
        assert!(remediation.contains(expected), "{remediation}");
    }
    let only_rejects = client.run_with(
        &["events", "send", "-f", "-", "--rejects", "/dev/full", "--output", "json"],
        "{\"source_id\":\"bad\"}\n",
    );
    let remediation = only_rejects.error()["remediation"].as_str().unwrap().to_owned();
    assert!(remediation.contains("they cannot be read again and are lost"), "{remediation}");
}

#[cfg(target_os = "linux")]
#[test]
fn failed_events_that_cannot_be_written_are_sent_again_from_a_file_and_lost_in_a_pipe() {
    let stub = Stub::new(|request| {
        let is_denied = request.json().to_string().contains("denied");
        if is_denied { problem(ProblemKind::Forbidden) } else { service(request) }
    });
    let client = client(&stub);
    let input = ["fw", "denied", "fw"].map(|source| format!("{{\"source_id\":\"{source}\"}}\n")).concat();
    std::fs::write(client.home().join("file.ndjson"), &input).unwrap();
    for (file, expected) in [
        ("file.ndjson", "run the same command again at once. Within two minutes, no event is stored twice"),
        ("-", "Not all events from line 2 on are kept: they cannot be read again and are lost"),
    ] {
        let options =
            ["--rejects", "/dev/full", "--batch-size", "1", "--concurrency", "1", "--output", "json"];
        let result = client.run_with(&[&["events", "send", "-f", file], &options[..]].concat(), &input);
        assert_eq!(result.code, Some(10), "{result:?}");
        let remediation = result.error()["remediation"].as_str().unwrap().to_owned();
        assert!(remediation.contains(expected), "{remediation}");
        for wrong in ["Do not send the input again", "it was not sent"] {
            assert!(!remediation.contains(wrong), "{remediation}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn with_a_checkpoint_rejects_that_cannot_be_written_are_sent_again_and_accepted_events_are_not() {
    let (stub, directory) = (Stub::new(service), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let input = ["a", "bad", "b"].map(|source| format!("{{\"source_id\":\"{source}\"}}\n")).concat();
    std::fs::write(path("events"), input).unwrap();
    let send = |rejects: &str| {
        let files = ["-f", &path("events"), "--checkpoint", &path("checkpoint"), "--rejects", rejects];
        client(&stub).run(&[&["events", "send", "--output", "json"], &files[..]].concat())
    };
    assert_eq!(send("/dev/full").code, Some(10));
    let result = send(&path("rejects"));
    assert_eq!(result.code, Some(10), "{result:?}");
    let sizes: Vec<_> =
        stub.requests().iter().map(|request| request.json().as_array().unwrap().len()).collect();
    assert_eq!(sizes, [3, 1]);
    assert_eq!(std::fs::read_to_string(path("rejects")).unwrap().lines().count(), 1);
}

#[test]
fn no_accepted_event_is_invalid_input() {
    let stub = Stub::new(service);
    let result = client(&stub)
        .run_with(&["events", "send", "-f", "-", "--output", "json"], "{\"source_id\":\"bad\"}\n");
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some("events_invalid")));
    let empty = client(&stub).run_with(&["events", "send", "-f", "-", "--output", "json"], "\n");
    assert_eq!((empty.code, empty.error()["code"].as_str()), (Some(7), Some("input_invalid")));
}

#[test]
fn invalid_credential_stops_sending() {
    let stub = Stub::new(|_| problem(ProblemKind::CredentialInvalid));
    let client = client(&stub);
    let lines = "{\"source_id\":\"fw\"}\n".repeat(5_000);
    std::fs::write(client.home().join("file.ndjson"), lines).unwrap();
    let send = ["events", "send", "-f", "file.ndjson", "--batch-size", "100", "--concurrency", "1"];
    let result = client.run(&[&send[..], &["--output", "json"]].concat());
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(4), Some("credential_invalid")));
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["total"], &summary["stopped_before_line"]), (&json!(0), &json!(1)));
    assert_eq!(stub.requests().len(), 1);
    assert_eq!(result.stderr.lines().count(), 1, "{result:?}");
    assert_eq!(summary["rejects_file"], Value::Null, "the same command can be repeated");
}

#[test]
fn validates_events_offline() {
    let client = Client::new();
    let good =
        client.run_with(&["events", "validate", "-f", "-", "--output", "json"], "{\"source_id\":\"fw\"}\n");
    assert_eq!(good.json(), json!({"total": 1, "valid": 1, "invalid": 0, "errors": []}));
    let bad = client.run_with(
        &["events", "validate", "-f", "-", "--output", "json"],
        "{\"source_id\":\"fw\"}\n{\"metadata\":{}}\nnonsense\n",
    );
    assert_eq!((bad.code, bad.error()["code"].as_str()), (Some(7), Some("input_invalid")));
    let findings: Value = serde_json::from_str(&bad.stdout).unwrap();
    assert_eq!((&findings["valid"], &findings["invalid"]), (&json!(1), &json!(2)));
    assert_eq!(
        (&findings["errors"][0]["line"], &findings["errors"][0]["pointer"]),
        (&json!(2), &json!("/source_id"))
    );
    assert_eq!(findings["errors"][1]["code"], "malformed_json");
    let missing = client.run(&["events", "validate", "-f", "nowhere.ndjson", "--output", "json"]);
    assert_eq!((missing.code, missing.error()["code"].as_str()), (Some(7), Some("input_unreadable")));
}

#[test]
fn schema_is_printed_offline() {
    let client = Client::new();
    let expected = udm::schema().to_value();
    assert_eq!(client.run(&["events", "schema", "--output", "json"]).json(), expected);
    assert_eq!(client.run(&["events", "schema"]).json(), expected);
}
