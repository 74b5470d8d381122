//! `svc consumers`, with the platform token.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

fn consumer(name: &str) -> Value {
    json!({
        "name": name, "tenant_id": "acme", "event_types": ["USER_LOGIN"], "partitions": {"first": 0, "last": 31},
        "streams": ["UDM"], "created_at": "2026-01-01T00:00:00Z", "pending": 7, "ack_pending": 2, "redelivered": 0,
        "nats": {
            "api_prefix": "JS.API", "inbox_prefix": format!("_INBOX.{name}"),
            "publish": [format!("JS.API.CONSUMER.MSG.NEXT.UDM.{name}"), format!("$JS.ACK.UDM.{name}.>")],
            "subscribe": [format!("_INBOX.{name}.>")],
        },
    })
}

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/consumers" if request.json()["name"] == "taken" => problem(ProblemKind::ConsumerExists),
        "POST /api/v1/consumers" => (201, consumer("acme-logins").to_string()),
        "GET /api/v1/consumers?limit=200" => {
            (200, json!({"items": [consumer("a")], "next_cursor": "a"}).to_string())
        }
        "GET /api/v1/consumers?limit=200&cursor=a" => (200, json!({"items": [consumer("b")]}).to_string()),
        "DELETE /api/v1/consumers/archive" => (204, String::new()),
        _ => problem(ProblemKind::NotFound),
    }
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
}

#[test]
fn create_prints_the_permissions_of_the_nats_user_and_a_connection_example() {
    let stub = Stub::new(service);
    let arguments = [
        "consumers",
        "create",
        "acme-logins",
        "--tenant",
        "acme",
        "--event-type",
        "USER_LOGIN",
        "--partitions",
        "0-31",
    ];
    let run = client(&stub).run(&arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("$JS.ACK.UDM.acme-logins.>"), "{}", run.stdout);
    for line in [
        "    { user: acme-logins, password: $NATS_ACME_LOGINS_PASSWORD\n",
        "          \"JS.API.CONSUMER.MSG.NEXT.UDM.acme-logins\"\n",
        "        subscribe: { allow: [ \"_INBOX.acme-logins.>\" ] }\n",
        "  NATS_URL=nats://HOST:4222 NATS_USER=acme-logins NATS_PASSWORD=... nats --js-api-prefix JS.API --inbox-prefix _INBOX.acme-logins consumer next UDM acme-logins --ack\n",
    ] {
        assert!(run.stderr.contains(line), "{line} is missing in:\n{}", run.stderr);
    }
    let request = &stub.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
    let expected = json!({
        "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"],
        "partitions": {"first": 0, "last": 31},
    });
    assert_eq!(request.json(), expected);
}

#[test]
fn create_without_options_reads_everything_and_a_conflict_is_exit_6() {
    let stub = Stub::new(service);
    let client = client(&stub);
    let run = client.run(&["consumers", "create", "archive", "--output", "json"]);
    assert_valid_output("consumers create", &run.json());
    assert_eq!(run.stderr, "");
    assert_eq!(stub.requests()[0].json(), json!({"name": "archive"}));
    assert_eq!(client.run(&["consumers", "create", "taken"]).code, Some(6));
    for invalid in [&["a.b"][..], &["a", "--partitions", "7"]] {
        assert_eq!(client.run(&[&["consumers", "create"], invalid].concat()).code, Some(2), "{invalid:?}");
    }
}

#[test]
fn list_reads_all_pages() {
    let stub = Stub::new(service);
    let listed = client(&stub).run(&["consumers", "list", "--output", "json"]).json();
    assert_valid_output("consumers list", &listed);
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    let table = client(&stub).run(&["consumers", "list"]).stdout;
    assert!(table.starts_with("CONSUMER") && table.contains("USER_LOGIN"), "{table}");
}

#[test]
fn delete_asks_for_confirmation() {
    let stub = Stub::new(service);
    let client = client(&stub);
    assert_eq!(client.run(&["consumers", "delete", "archive"]).code, Some(12));
    assert!(stub.requests().is_empty());
    let deleted = client.run(&["consumers", "delete", "archive", "--yes", "--output", "json"]).json();
    assert_valid_output("consumers delete", &deleted);
    assert_eq!(deleted, json!({"name": "archive", "deleted": true}));
    assert_eq!(client.run(&["consumers", "delete", "unknown", "--yes"]).code, Some(3));
}
