//! `svc events dlq`, with the platform token.

use data_encoding::BASE64;
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

fn quarantined(sequence: u64, payload: Option<&[u8]>) -> Value {
    json!({
        "sequence": sequence, "tenant_id": "acme", "failed_at": "2026-01-01T00:00:00Z", "reason": "not JSON", "event": "broken",
        "quarantine": { "code": "malformed_json", "request_id": "req-1", "payload": payload.map(|bytes| BASE64.encode(bytes)) },
    })
}

/// An event with names and numbers that change when JSON is read and written again.
const VERBATIM: &str = r#"{"z":1.50, "big":12345678901234567890123,"a":1,"a":2}"#;

/// Has 150 dead letters in two pages. Number 7 does not exist.
fn service(request: &StubRequest) -> (u16, String) {
    let page = |numbers: std::ops::RangeInclusive<u64>, next: Option<&str>| {
        let items: Vec<_> = numbers.map(letter).collect();
        (200, json!({ "items": items, "next_cursor": next }).to_string())
    };
    match request.line.as_str() {
        "GET /api/v1/consumers/empty/dead-letters?limit=200" => (200, json!({ "items": [] }).to_string()),
        "GET /api/v1/consumers/verbatim/dead-letters?limit=200" => {
            let letter = letter(1).to_string().replace(r#"{"source_id":"fw"}"#, VERBATIM);
            (200, format!(r#"{{"items":[{letter}]}}"#))
        }
        "GET /api/v1/events/quarantine/23" => {
            (200, quarantined(23, None).to_string().replace(r#""broken""#, VERBATIM))
        }
        "GET /api/v1/consumers/archive/dead-letters?limit=200" => page(1001..=1100, Some("1100")),
        "GET /api/v1/consumers/archive/dead-letters?limit=200&cursor=1100" => page(1101..=1150, None),
        "GET /api/v1/events/quarantine?tenant_id=acme&limit=200"
        | "GET /api/v1/events/quarantine?limit=200" => {
            (200, json!({ "items": [quarantined(21, None)] }).to_string())
        }
        "GET /api/v1/events/quarantine/21" => (200, quarantined(21, Some(b"\xff{\x1b[1m")).to_string()),
        "GET /api/v1/events/quarantine/22" => {
            let mut part = quarantined(22, Some(b"[{"));
            part["quarantine"]["part"] = json!("1/2");
            (200, part.to_string())
        }
        "POST /api/v1/consumers/archive/dead-letters/replay"
        | "POST /api/v1/consumers/archive/dead-letters/delete"
        | "POST /api/v1/events/quarantine/delete" => {
            let (skipped, handled): (Vec<Value>, Vec<Value>) =
                request.json()["sequences"].as_array().unwrap().iter().cloned().partition(|n| n == 7);
            (200, json!({ "handled": handled, "skipped": skipped }).to_string())
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
    assert!(table.contains("no such column") && table.contains("e1150"), "{table}");
    let listed = client(&stub).run(&["events", "dlq", "list", "archive", "--output", "json"]).json();
    assert_valid_output("events dlq list", &listed);
    assert_eq!(listed["items"][0]["event"]["source_id"], "fw");
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_pt_x"));
}

#[test]
fn every_json_output_has_the_bytes_of_the_event() {
    let stub = Stub::new(service);
    for command in [&["list", "verbatim"][..], &["show", "_ingest", "23"]] {
        for format in ["json", "ndjson"] {
            let arguments = [&["events", "dlq"][..], command, &["--output", format]].concat();
            let printed = client(&stub).run(&arguments).stdout;
            assert!(printed.contains(VERBATIM), "{arguments:?}: {printed}");
        }
    }
}

#[test]
fn replay_sends_the_given_numbers_and_warns_about_those_that_do_not_exist() {
    let stub = Stub::new(service);
    let run = client(&stub).run(&["events", "dlq", "replay", "archive", "3", "7"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let warning = "archive has no dead letter that can be replayed with this number: 7";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    assert_eq!(stub.requests()[0].json(), json!({ "sequences": [3, 7] }));
    let result = client(&stub).run(&["events", "dlq", "replay", "archive", "3", "--output", "json"]).json();
    assert_valid_output("events dlq replay", &result);
    assert_eq!(result, json!({ "handled": [3], "skipped": [] }));
}

#[test]
fn a_command_that_handles_no_dead_letter_fails() {
    let stub = Stub::new(service);
    for (command, skipped) in
        [("replay", "no dead letter that can be replayed"), ("delete", "no dead letter")]
    {
        let result = client(&stub).run(&["events", "dlq", command, "archive", "7", "--output", "json"]);
        assert_eq!(
            (result.code, result.error()["code"].as_str()),
            (Some(7), Some("input_invalid")),
            "{result:?}"
        );
        assert_eq!(result.error()["message"], format!("archive has {skipped} with this number: 7"));
    }
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
    assert_eq!(result, json!({ "handled": [3], "skipped": [] }));
    let arguments = ["events", "dlq", "delete", "archive", "--all"];
    let sent = stub.requests().len();
    assert_eq!(client(&stub).run(&arguments).code, Some(12));
    assert!(stub.request_lines()[sent..].iter().all(|line| line.starts_with("GET")));
    let run = client(&stub).run(&[&arguments[..], &["--yes"]].concat());
    assert!(run.stdout.contains("handled  150"), "{}", run.stdout);
}

#[test]
fn replay_needs_numbers_or_all_and_accepts_an_empty_list() {
    let stub = Stub::new(service);
    assert_eq!(client(&stub).run(&["events", "dlq", "replay", "archive"]).code, Some(2));
    assert_eq!(client(&stub).run(&["events", "dlq", "replay", "archive", "3", "--all"]).code, Some(2));
    let run = client(&stub).run(&["events", "dlq", "replay", "empty", "--all"]);
    assert_eq!((run.code, stub.requests().len()), (Some(0), 1), "{}", run.stderr);
}

#[test]
fn quarantined_items_are_listed_with_their_code_as_an_administrator_or_with_the_platform_token() {
    let stub = Stub::new(service);
    let list = ["events", "dlq", "list", "_ingest"];
    let admin = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let table = admin.run(&list).stdout;
    assert!(table.contains("malformed_json") && table.contains("not JSON"), "{table}");
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_st_x"));
    let listed = client(&stub).run(&[&list[..], &["--tenant", "acme", "--output", "json"]].concat()).json();
    assert_valid_output("events dlq list", &listed);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        admin.run(&["events", "dlq", "list", "archive"]).code,
        Some(4),
        "a consumer needs the platform token"
    );
}

#[test]
fn show_writes_the_original_bytes_of_quarantined_items() {
    let stub = Stub::new(service);
    let output = client(&stub).command(&["events", "dlq", "show", "_ingest", "21", "22"]).output().unwrap();
    assert_eq!(output.stdout, b"\xff{\x1b[1m\n[{");
    let shown = client(&stub).run(&["events", "dlq", "show", "_ingest", "21", "--output", "json"]).json();
    assert_valid_output("events dlq show", &shown);
    assert_eq!(shown["quarantine"]["request_id"], "req-1");
    let run = client(&stub).run(&["events", "dlq", "show", "archive", "21"]);
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    assert!(run.stderr.contains("svc events dlq list archive --output json"), "{}", run.stderr);
}

#[test]
fn the_parts_of_an_item_are_marked_in_a_list() {
    let list = Stub::new(|_| {
        let mut part = quarantined(22, None);
        part["quarantine"]["part"] = json!("1/2");
        (200, json!({ "items": [quarantined(21, None), part] }).to_string())
    });
    let table = client(&list).run(&["events", "dlq", "list", "_ingest"]).stdout;
    assert_eq!(table.matches("  part 1/2: ").count(), 1, "{table}");
}

#[test]
fn a_command_without_numbers_names_the_list_of_them() {
    let stub = Stub::new(service);
    for (line, expected) in [
        ("show", "`_ingest`, the name of quarantined items"),
        ("show", "as `svc events dlq list _ingest` prints"),
        ("show _ingest", "as `svc events dlq list _ingest` prints"),
        ("replay archive", "as `svc events dlq list` prints"),
        ("replay archive", "--all is required"),
        ("delete archive", "--all is required"),
    ] {
        let words: Vec<_> = ["events", "dlq"].into_iter().chain(line.split(' ')).collect();
        let run = client(&stub).run(&words);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
        let error = client(&stub).run(&[&words[..], &["--output", "json"]].concat()).error();
        assert_eq!(error["code"], "usage");
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn quarantined_items_are_not_replayed_and_the_error_names_the_way() {
    let stub = Stub::new(service);
    for selection in ["21", "--all"] {
        let run = client(&stub).run(&["events", "dlq", "replay", "_ingest", selection]);
        assert_eq!(run.code, Some(7), "{}", run.stderr);
        assert!(run.stderr.contains("svc events dlq show _ingest SEQUENCE"), "{}", run.stderr);
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn quarantined_items_are_deleted_by_number_or_all_after_confirmation() {
    let stub = Stub::new(service);
    let result = client(&stub).run(&["events", "dlq", "delete", "_ingest", "21", "--output", "json"]).json();
    assert_eq!(result, json!({ "handled": [21], "skipped": [] }));
    assert_eq!(client(&stub).run(&["events", "dlq", "delete", "_ingest", "--all"]).code, Some(12));
    let run = client(&stub).run(&["events", "dlq", "delete", "_ingest", "--all", "--yes"]);
    assert!(run.stdout.contains("handled  1"), "{}", run.stdout);
}

/// Each consumer, and the quarantine, has a dead letter of acme and one of beta.
fn of_two_tenants(request: &StubRequest) -> (u16, String) {
    if request.line.starts_with("POST") {
        return (200, json!({ "handled": request.json()["sequences"], "skipped": [] }).to_string());
    }
    if request.line.starts_with("GET /api/v1/tenants/") {
        return problem(contract::ProblemKind::NotFound);
    }
    let mut of_beta = quarantined(22, Some(b"x"));
    of_beta["tenant_id"] = "beta".into();
    if request.line.ends_with("/22") {
        return (200, of_beta.to_string());
    }
    let mut items = vec![quarantined(21, None), of_beta];
    if let Some((_, query)) = request.line.split_once("tenant_id=") {
        items.retain(|item| query.split('&').next() == item["tenant_id"].as_str());
    }
    (200, json!({ "items": items }).to_string())
}

#[test]
fn dead_letters_of_several_tenants_are_selected_only_if_all_tenants_are_named() {
    for owner in ["archive", "_ingest"] {
        let stub = Stub::new(of_two_tenants);
        let delete = ["events", "dlq", "delete", owner, "--all", "--yes"];
        let run = client(&stub).run(&delete);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains("acme 1, beta 1") && run.stderr.contains("--all-tenants"), "{run:?}");
        assert!(stub.request_lines().iter().all(|line| line.starts_with("GET")), "nothing is deleted");
        let run = client(&stub).run(&[&delete[..], &["--all-tenants"]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(stub.requests().pop().unwrap().json(), json!({ "sequences": [21, 22] }));
        let both = client(&stub).run(&[&delete[..], &["--all-tenants", "--tenant", "acme"]].concat());
        assert_eq!(both.code, Some(2), "{both:?}");
    }
}

#[test]
fn the_tenant_of_an_option_or_the_context_limits_all_commands() {
    let stub = Stub::new(of_two_tenants);
    let in_context = client(&stub);
    assert_eq!(in_context.run(&["config", "set", "tenant", "acme"]).code, Some(0));
    let with_option = client(&stub).with_variable("SVC_TENANT", "acme");
    for client in [&in_context, &with_option] {
        for owner in ["archive", "_ingest"] {
            let listed = client.run(&["events", "dlq", "list", owner, "--output", "json"]).json();
            let tenants: Vec<_> =
                listed["items"].as_array().unwrap().iter().map(|item| &item["tenant_id"]).collect();
            assert_eq!(tenants, ["acme"], "{owner}");
            for (numbers, sent) in [("--all", 21), ("22", 22)] {
                let run = client.run(&["events", "dlq", "delete", owner, numbers, "--yes"]);
                assert_eq!(run.code, Some(0), "{run:?}");
                let expected = json!({ "sequences": [sent], "tenant_id": "acme" });
                assert_eq!(stub.requests().pop().unwrap().json(), expected, "the service skips others");
            }
        }
        let shown = client.run(&["events", "dlq", "show", "_ingest", "22"]);
        assert_eq!((shown.code, &*shown.stdout), (Some(3), ""), "an item of another tenant: {shown:?}");
    }
    for (client, is_warned) in [(&in_context, true), (&with_option, false)] {
        let stderr = client.run(&["events", "dlq", "list", "archive"]).stderr;
        assert_eq!(stderr.contains("limited to the tenant acme of context default"), is_warned, "{stderr}");
    }
    let all =
        in_context.run(&["events", "dlq", "list", "archive", "--all-tenants", "--output", "json"]).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
}

#[test]
fn an_unknown_tenant_is_not_an_empty_list() {
    let stub = Stub::new(of_two_tenants);
    for command in [&["events", "dlq", "list", "_ingest"][..], &["consumers", "list"], &["audit", "list"]] {
        for format in ["json", "ndjson"] {
            let result = client(&stub).run(&[command, &["--tenant", "never", "--output", format]].concat());
            assert_eq!(result.code, Some(3), "{result:?}");
            assert_eq!(result.error()["message"], "Tenant not found");
        }
    }
}
