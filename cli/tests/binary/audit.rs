//! `svc audit list`.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const KEY: &str = "01890a5d-ac97-774b-bcce-b302099a8058";

fn record(position: &str) -> Value {
    json!({
        "position": position, "id": USER, "occurred_at": "2026-01-31T12:00:00Z", "tenant_id": "acme",
        "context": "identity", "event": "authn_login_fail", "count": 7, "actor": {"type": "anonymous"},
        "user_id": USER, "ip": "192.0.2.1",
    })
}

/// Two pages: the first has no items, as after a filter that selects few of many events.
fn service(request: &StubRequest) -> (u16, String) {
    let query = request.line.strip_prefix("GET /api/v1/audit?").unwrap_or_default();
    let page = match () {
        () if query.contains("kind=user_deleted") => json!({"items": []}),
        () if query.contains("cursor=9") => json!({"items": [record("p17")]}),
        () if !query.is_empty() => json!({"items": [], "next_cursor": "9"}),
        () => return problem(ProblemKind::NotFound),
    };
    (200, page.to_string())
}

fn lines(stub: &Stub) -> Vec<String> {
    stub.request_lines().iter().map(|line| line.replace("GET /api/v1/audit?", "")).collect()
}

#[test]
fn administrator_lists_events_across_empty_pages() {
    let stub = Stub::new(service);
    let client =
        Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme");
    let list =
        ["audit", "list", "--kind", "authn_login_fail", "--user-id", USER, "--since", "2026-01-01T00:00:00Z"];
    let table = client.run(&list);
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("authn_login_fail ×7") && table.stdout.contains("192.0.2.1"), "{table:?}");
    let filter =
        format!("kind=authn_login_fail&user_id={USER}&since=2026-01-01T00%3A00%3A00%2B00%3A00&limit=200");
    assert_eq!(lines(&stub), [filter.clone(), format!("{filter}&cursor=9")]);
    assert_eq!(stub.requests()[0].header("x-tenant-id"), Some("acme"));
    let printed = client.run(&[&list[..], &["--output", "json"]].concat()).json();
    assert_eq!(printed["items"][0]["position"], "p17");
    assert_valid_output("audit list", &printed);
    let none = client.run(&["audit", "list", "--kind", "user_deleted"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "No audit events.\n"));
}

#[test]
fn events_of_an_api_key_are_listed_by_its_id() {
    let stub = Stub::new(service);
    let client =
        Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme");
    let list = ["audit", "list", "--after", "p3", "--key-id"];
    assert_eq!(client.run(&[&list[..], &[KEY]].concat()).code, Some(0));
    assert_eq!(lines(&stub)[0], format!("key_id={KEY}&after=p3&limit=200"));
    assert_eq!(client.run(&[&list[..], &[&KEY[32..]]].concat()).code, Some(2), "a part of an id");
}

#[test]
fn platform_administrator_lists_all_tenants_or_one() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let list = ["audit", "list", "--after", "p3"];
    assert_eq!(client.run(&list).code, Some(0));
    assert_eq!(client.run(&[&["--tenant", "acme"], &list[..]].concat()).code, Some(0));
    let expected = ["after=p3&limit=200", "after=p3&limit=200&cursor=9", "tenant_id=acme&after=p3&limit=200"];
    assert_eq!(lines(&stub)[..3], expected);
    assert_eq!(stub.requests()[0].header("authorization"), Some("Bearer svc_pt_x"));
}

#[test]
fn a_position_can_begin_with_a_hyphen_and_a_list_that_is_cut_names_the_next_one() {
    let stub = Stub::new(|_| (200, json!({"items": [record("-oplQz")], "next_cursor": "9"}).to_string()));
    let client =
        Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme");
    for position in ["-nHuJ", "-oplQz", "--limit"] {
        let result = client.run(&["audit", "list", "--after", position, "--limit", "1"]);
        assert_eq!(result.code, Some(0), "{result:?}");
        assert!(result.stderr.contains("; continue with --after -oplQz\n"), "{result:?}");
    }
    assert_eq!(lines(&stub), ["after=-nHuJ&limit=1", "after=-oplQz&limit=1", "after=--limit&limit=1"]);
}

#[test]
fn without_a_time_the_last_day_is_listed_and_api_keys_are_not_used() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    assert_eq!(client.run(&["audit", "list"]).code, Some(4));
    assert!(stub.requests().is_empty());
    client.with_variable("SVC_TOKEN", "svc_st_x").run(&["audit", "list"]);
    assert!(lines(&stub)[0].starts_with("since=20"), "{:?}", lines(&stub));
}
