//! `svc events`.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::run_at_terminal;

/// Events of a batch, decompressed if necessary.
fn events(request: &StubRequest) -> Vec<Value> {
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
fn service(request: &StubRequest) -> (u16, String) {
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

fn client(stub: &Stub) -> Client {
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

/// Rejects the first request for a second.
fn overloaded_once(request: &StubRequest) -> (u16, String) {
    static REJECTED: AtomicBool = AtomicBool::new(false);
    if REJECTED.swap(true, Ordering::Relaxed) {
        return service(request);
    }
    let (status, body) = problem(ProblemKind::Overloaded);
    let mut body: Value = serde_json::from_str(&body).unwrap();
    body["retry_after_ms"] = json!(1000);
    (status, body.to_string())
}

#[test]
fn progress_on_a_terminal_contains_the_number_of_events_that_wait_for_a_retry() {
    let stub = Stub::new(overloaded_once);
    let client = client(&stub);
    let lines = "{\"source_id\":\"a\"}\n{\"source_id\":\"b\"}\n";
    std::fs::write(client.home().join("events.ndjson"), lines).unwrap();
    let result = run_at_terminal(&client, &["events", "send", "--file", "events.ndjson"], "");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.stderr.contains("0 accepted, 0 rejected, 2 waiting for a retry"), "{result:?}");
    assert!(result.stderr.ends_with("\r\u{1b}[K"), "the line is cleared: {result:?}");
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
    let mut first = summary["first_rejects"].as_array().unwrap().clone();
    first.sort_by_key(|reject| reject["line"].as_u64());
    assert_eq!(
        (&first[0]["line"], &first[0]["message"]),
        (&json!(2), &json!("not this one (at /source_id)"))
    );
    assert_eq!(
        first[1],
        json!({"line": 3, "event_id": null, "code": "malformed_json", "message": "the line is not JSON"})
    );
    assert_valid_output("events send", &summary);
    assert!(error["remediation"].as_str().unwrap().contains("--rejects file"), "{error}");

    let rejects = std::fs::read_to_string(client.home().join("rejects.ndjson")).unwrap();
    let mut rejects: Vec<Value> = rejects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rejects.sort_by_key(|reject| reject["line"].as_u64());
    assert_eq!((&rejects[0]["line"], &rejects[0]["code"]), (&json!(2), &json!("validation_failed")));
    assert_eq!(rejects[0]["event"]["event_id"], rejects[0]["event_id"]);
    assert_eq!(
        (&rejects[1]["line"], &rejects[1]["code"], &rejects[1]["text"]),
        (&json!(3), &json!("malformed_json"), &json!("nonsense"))
    );
}

#[test]
fn summary_contains_the_first_rejects_and_remediation_names_rejects_option() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let send = ["events", "send", "-f", "-", "--output", "json"];
    for accepted in ["", "{\"source_id\":\"fw\"}\n"] {
        let result = client.run_with(&send, &("{\"source_id\":\"bad\"}\n".repeat(30) + accepted));
        assert_eq!(
            result.error()["remediation"],
            "Correct the rejected lines (the JSON summary lists the first 20) and send only those. Pass --rejects FILE to record all rejects."
        );
        let summary: Value = serde_json::from_str(&result.stdout).unwrap();
        assert_eq!(summary["first_rejects"].as_array().unwrap().len(), 20);
    }
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
    let send = ["events", "send", "-f", "-", "--batch-size", "100", "--concurrency", "1", "--output", "json"];
    let result = client.run_with(&send, &lines);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(4), Some("credential_invalid")));
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((&summary["rejected"], &summary["stopped_before_line"]), (&json!(100), &json!(101)));
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn rejects_file_must_not_be_the_input() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let file = client.home().join("events.ndjson");
    std::fs::write(&file, "{\"source_id\":\"fw\"}\n").unwrap();
    let send = ["events", "send", "-f", "events.ndjson", "--rejects", "./events.ndjson"];
    assert_eq!(client.run(&send).code, Some(2));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"source_id\":\"fw\"}\n");
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
