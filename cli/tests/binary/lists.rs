//! What all lists have in common: they are complete without `--limit`, and a list that it cuts has a warning.

use contract::audit::AuditRecord;
use contract::consumers::{Consumer, DeadLetter};
use contract::identity::{Invite, Tenant, UndeliveredMail, User};
use contract::session::{ApiKey, Session};
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::client::Client;
use crate::stub::{Stub, StubRequest};

/// The item of the documentation.
fn example<T: JsonSchema>() -> Value {
    schema_for!(T).as_value()["examples"][0].clone()
}

/// Two pages with one item each.
fn service(request: &StubRequest) -> (u16, String) {
    let path = request.line.trim_start_matches("GET /api/v1").split('?').next().unwrap();
    let item = match path {
        "/users" => example::<User>(),
        "/users/invites" => example::<Invite>(),
        "/api-keys" => example::<ApiKey>(),
        "/auth/sessions" => example::<Session>(),
        "/audit" => example::<AuditRecord>(),
        "/tenants" => example::<Tenant>(),
        "/mails" => example::<UndeliveredMail>(),
        "/consumers" => example::<Consumer>(),
        _ => example::<DeadLetter>(),
    };
    let is_last = request.line.contains("cursor=next");
    (200, json!({"items": [item], "next_cursor": (!is_last).then_some("next")}).to_string())
}

#[test]
fn every_list_is_complete_without_a_limit_and_warns_when_the_limit_cuts_it() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TENANT", "acme");
    let client =
        client.with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let user = "01890a5d-ac96-774b-bcce-b302099a8057";
    let own_sessions = format!("auth sessions list --user-id {user}");
    for line in [
        "users list",
        "invites list",
        "api-keys list",
        &own_sessions,
        "audit list",
        "tenants list",
        "mails list",
        "consumers list",
        "events dlq list archive",
        "events dlq list _ingest",
    ] {
        let run = |options: &[&str]| {
            let words: Vec<_> = line.split(' ').chain(options.iter().copied()).collect();
            let result = client.run(&words);
            assert_eq!(result.code, Some(0), "{result:?}");
            result
        };
        let complete = run(&["--output", "json"]);
        assert_eq!(complete.json()["items"].as_array().unwrap().len(), 2, "{complete:?}");
        assert_eq!(complete.stderr, "", "{line}");
        assert_eq!(run(&["--output", "ndjson"]).stdout.lines().count(), 2, "{line}");
        let cut = run(&["--limit", "1", "--output", "json"]);
        assert_eq!(cut.json()["items"].as_array().unwrap().len(), 1, "{cut:?}");
        assert!(cut.stderr.starts_with(r#"{"warning":"#) && cut.stderr.contains("--limit 1"), "{cut:?}");
        assert_eq!(run(&["--limit", "2", "--output", "json"]).stderr, "", "{line}");
    }
}

#[test]
fn a_list_that_never_ends_is_an_error() {
    let stub = Stub::new(|request| {
        let next = if request.line.contains("cursor=a") { "b" } else { "a" };
        (200, json!({"items": [example::<Tenant>()], "next_cursor": next}).to_string())
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    let error = client.run(&["tenants", "list", "--output", "json"]).error();
    assert_eq!(error["message"], "the service repeats a page of the list");
}
