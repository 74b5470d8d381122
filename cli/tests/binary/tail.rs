//! `svc events tail`.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x")
}

fn frame(name: &str, id: u32, data: &Value) -> String {
    format!("event: {name}\nid: 00000001-{id}\ndata: {data}\n\n")
}

fn event(id: u32) -> String {
    let data = json!({
        "event_id": id.to_string(), "server_event_id": "01890a5d-ac96-774b-bcce-b302099a8057", "source_id": "fw\u{1b}",
        "event_type": "LOGIN", "received_at": "2026-01-31T12:00:00Z", "event": { "source_id": "fw\u{1b}", "n": id },
    });
    frame("udm", id, &data)
}

fn empty(name: &str, id: u32) -> String {
    frame(name, id, &json!({}))
}

/// Sends two events, ends the response, sends one more event, and then rejects the credential.
fn until_revoked(request: &StubRequest) -> (u16, String) {
    match request.line.rsplit_once("after=").map(|(_, position)| position) {
        None => (200, "retry: 1000\n".to_owned() + &empty("position", 0) + &event(1) + &event(2)),
        Some("00000001-2") => (200, empty("position", 2) + &event(3) + &empty("position", 7)),
        Some("00000001-7") => problem(ProblemKind::CredentialInvalid),
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn prints_one_line_per_event_and_continues_after_the_last_one_until_the_credential_is_revoked() {
    let stub = Stub::new(until_revoked);
    let tail = ["events", "tail", "--type", "A", "--type", "B", "--source", "fw 1", "--output", "json"];
    let result = client(&stub).run(&tail);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(4), Some("credential_invalid")));
    let lines: Vec<Value> = result.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = lines.iter().map(|line| (line["id"].as_str(), line["event"]["n"].as_u64())).collect();
    let expected =
        [(Some("00000001-1"), Some(1)), (Some("00000001-2"), Some(2)), (Some("00000001-3"), Some(3))];
    assert_eq!(ids, expected);
    assert_valid_output("events tail", &lines[0]);
    let requests = stub.requests();
    assert_eq!(requests[0].line, "GET /api/v1/events/stream?event_type=A&event_type=B&source_id=fw+1");
    assert_eq!(requests[0].header("authorization"), Some("Bearer svc_ak_x"));
    assert_eq!(requests.len(), 3);
}

#[test]
fn without_follow_the_command_ends_after_the_stored_events() {
    let stub = Stub::new(|_| (200, empty("gap", 4) + &event(5) + &empty("end", 9)));
    let since = ["events", "tail", "--since", "2026-01-31T12:00:00Z", "--no-follow"];
    let result = client(&stub).run(&since);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(result.stdout, "2026-01-31T12:00:00Z LOGIN fw\\u{1b} {\"n\":5,\"source_id\":\"fw\\u001b\"}\n");
    assert!(result.stderr.contains("events before the next one are not stored any more"), "{result:?}");
    assert_eq!(
        stub.request_lines(),
        ["GET /api/v1/events/stream?since=2026-01-31T12%3A00%3A00%2B00%3A00&follow=false"]
    );
}

#[test]
fn first_connection_that_fails_is_an_error() {
    let stub = Stub::new(|_| problem(ProblemKind::DependencyUnavailable));
    let result = client(&stub).run(&["events", "tail", "--after", "00000001-1", "--output", "json"]);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(9), Some("dependency_unavailable")));
    assert_eq!(stub.request_lines(), ["GET /api/v1/events/stream?after=00000001-1"]);
    let wrong = client(&stub).run(&["events", "tail", "--since", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    client(&stub).run(&["events", "tail", "--since", "1h", "--no-follow"]);
    assert!(stub.request_lines()[1].contains("stream?since=20"), "{:?}", stub.request_lines());
}

#[test]
fn a_page_that_answers_in_place_of_the_service_is_an_error() {
    let stub = Stub::new(|_| (200, "<html>Log in to the network</html>".to_owned()));
    for follow in [&[][..], &["--no-follow"]] {
        let result = client(&stub).run(&[&["events", "tail", "--output", "json"], follow].concat());
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(1), Some("unexpected_response")));
    }
    assert_eq!(stub.requests().len(), 2);
}
