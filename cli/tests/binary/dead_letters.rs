//! `svc events dlq`, with the platform token.

use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

fn letter(sequence: u64) -> Value {
    json!({
        "sequence": sequence, "tenant_id": "acme", "source_id": "fw", "event_id": format!("e{sequence}"),
        "event_type": "USER_LOGIN", "failed_at": "2026-01-01T00:00:00Z", "reason": "no such column", "attempts": 5,
        "event": { "source_id": "fw" },
    })
}

/// Has 150 dead letters in two pages. Number 7 does not exist.
fn service(request: &StubRequest) -> (u16, String) {
    let page = |numbers: std::ops::RangeInclusive<u64>, next: Option<&str>| {
        let items: Vec<_> = numbers.map(letter).collect();
        (200, json!({ "items": items, "next_cursor": next }).to_string())
    };
    match request.line.as_str() {
        "GET /api/v1/consumers/empty/dead-letters?limit=200" => (200, json!({ "items": [] }).to_string()),
        "GET /api/v1/consumers/archive/dead-letters" => page(1..=2, None),
        "GET /api/v1/consumers/archive/dead-letters?limit=200" => page(1001..=1100, Some("1100")),
        "GET /api/v1/consumers/archive/dead-letters?limit=200&cursor=1100" => page(1101..=1150, None),
        "POST /api/v1/consumers/archive/dead-letters/replay" => {
            let (skipped, replayed): (Vec<Value>, Vec<Value>) =
                request.json()["sequences"].as_array().unwrap().iter().cloned().partition(|n| n == 7);
            (200, json!({ "replayed": replayed, "skipped": skipped }).to_string())
        }
        "POST /api/v1/consumers/archive/dead-letters/delete" => {
            (200, json!({ "deleted": request.json()["sequences"], "skipped": [] }).to_string())
        }
        _ => problem(contract::ProblemKind::NotFound),
    }
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
}

#[test]
fn list_shows_why_each_event_failed_and_its_json_contains_the_event() {
    let stub = Stub::new(service);
    let table = client(&stub).run(&["events", "dlq", "list", "archive"]).stdout;
    assert!(table.contains("no such column") && table.contains("e2"), "{table}");
    let listed = client(&stub).run(&["events", "dlq", "list", "archive", "--output", "json"]).json();
    assert_valid_output("events dlq list", &listed);
    assert_eq!(listed["items"][0]["event"]["source_id"], "fw");
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_pt_x"));
}

#[test]
fn replay_sends_the_given_numbers_and_warns_about_those_that_do_not_exist() {
    let stub = Stub::new(service);
    let run = client(&stub).run(&["events", "dlq", "replay", "archive", "3", "7"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("1 numbers are no dead letter of this consumer"), "{}", run.stderr);
    assert_eq!(stub.requests()[0].json(), json!({ "sequences": [3, 7] }));
    let result = client(&stub).run(&["events", "dlq", "replay", "archive", "3", "--output", "json"]).json();
    assert_valid_output("events dlq replay", &result);
    assert_eq!(result, json!({ "replayed": [3], "skipped": [] }));
}

#[test]
fn replay_of_all_asks_for_confirmation_and_sends_parts_of_100() {
    let stub = Stub::new(service);
    let arguments = ["events", "dlq", "replay", "archive", "--all"];
    assert_eq!(client(&stub).run(&arguments).code, Some(12));
    assert!(stub.request_lines().iter().all(|line| line.starts_with("GET")), "{:?}", stub.request_lines());
    let run = client(&stub).run(&[&arguments[..], &["--yes"]].concat());
    assert!(run.stderr.contains("100 of 150 dead letters"), "{}", run.stderr);
    let requests = stub.requests();
    let sent = requests.iter().filter(|request| request.line.starts_with("POST"));
    let counts: Vec<_> = sent.map(|request| request.json()["sequences"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [100, 50]);
}

#[test]
fn delete_removes_the_given_numbers_and_asks_before_it_removes_all() {
    let stub = Stub::new(service);
    let result = client(&stub).run(&["events", "dlq", "delete", "archive", "3", "--output", "json"]).json();
    assert_valid_output("events dlq delete", &result);
    assert_eq!(result, json!({ "deleted": [3], "skipped": [] }));
    let arguments = ["events", "dlq", "delete", "archive", "--all"];
    let sent = stub.requests().len();
    assert_eq!(client(&stub).run(&arguments).code, Some(12));
    assert!(stub.request_lines()[sent..].iter().all(|line| line.starts_with("GET")));
    let run = client(&stub).run(&[&arguments[..], &["--yes"]].concat());
    assert!(run.stdout.contains("deleted  150"), "{}", run.stdout);
}

#[test]
fn replay_needs_numbers_or_all_and_accepts_an_empty_list() {
    let stub = Stub::new(service);
    assert_eq!(client(&stub).run(&["events", "dlq", "replay", "archive"]).code, Some(2));
    assert_eq!(client(&stub).run(&["events", "dlq", "replay", "archive", "3", "--all"]).code, Some(2));
    let run = client(&stub).run(&["events", "dlq", "replay", "empty", "--all"]);
    assert_eq!((run.code, stub.requests().len()), (Some(0), 1), "{}", run.stderr);
}
