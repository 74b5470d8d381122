//! `svc api-keys`.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const CREATOR: &str = "01890a5d-ac96-774b-bcce-b302099a8058";

fn key() -> Value {
    json!({
        "id": ID, "name": "firewalls", "scopes": ["events:write"], "source_ids": ["fw-1", "fw-2"], "created_by": CREATOR,
        "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-04-01T00:00:00Z", "last_used_at": null,
    })
}

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/api-keys" => {
            let mut key = key();
            key["key"] = "svc_ak_raw".into();
            (201, key.to_string())
        }
        "GET /api/v1/api-keys?limit=200" => (200, json!({"items": [key()]}).to_string()),
        line if line == format!("DELETE /api/v1/api-keys/{ID}") => (204, String::new()),
        _ => problem(ProblemKind::NotFound),
    }
}

#[test]
fn creates_a_key_and_shows_it_once() {
    let stub = Stub::new(service);
    // SVC_API_KEY is ignored, because an API key cannot create API keys.
    let client = Client::for_url(&stub.url)
        .with_variable("SVC_TOKEN", "svc_st_x")
        .with_variable("SVC_API_KEY", "svc_ak_x");
    let made = client.run(&["api-keys", "create", "--name", "firewalls"]);
    assert!(made.stdout.contains("svc_ak_raw") && made.stderr.contains("not shown again"), "{made:?}");
    let request = &stub.requests()[0];
    assert_eq!(request.json(), json!({"name": "firewalls", "scopes": ["events:write"]}));
    assert_eq!(request.header("authorization"), Some("Bearer svc_st_x"));

    let options = "--scope users:read --scope users:write --source-id fw-1 --source-id fw-2 \
        --expires-at 2026-04-01T00:00:00+02:00 --output json";
    let options: Vec<_> = options.split_whitespace().collect();
    let printed = client.run(&[&["api-keys", "create", "--name", "n"], &options[..]].concat()).json();
    assert_eq!(printed["key"], "svc_ak_raw");
    assert_valid_output("api-keys create", &printed);
    let sent = json!({
        "name": "n", "scopes": ["users:read", "users:write"], "source_ids": ["fw-1", "fw-2"],
        "expires_at": "2026-03-31T22:00:00Z",
    });
    assert_eq!(stub.requests()[1].json(), sent);
}

#[test]
fn rejects_invalid_options_and_api_keys_as_credential() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    let create = |options: &[&str]| client.run(&[&["api-keys", "create"], options].concat()).code;
    for wrong in
        [&[][..], &["--name", "n", "--scope", "everything"], &["--name", "n", "--expires-at", "tomorrow"]]
    {
        assert_eq!(create(wrong), Some(2), "{wrong:?}");
    }
    assert_eq!(create(&["--name", "n"]), Some(4));
    assert_eq!(stub.request_lines(), [] as [&str; 0]);
}

#[test]
fn the_platform_administrator_lists_and_revokes_keys_of_the_tenant_that_is_named() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x");
    for command in [&["api-keys", "list"][..], &["api-keys", "revoke", ID, "--yes"]] {
        assert_eq!(client.run(command).code, Some(12), "the tenant is missing: {command:?}");
        let before = stub.requests().len();
        let result = client.run(&[command, &["--tenant", "acme"]].concat());
        assert_eq!(result.code, Some(0), "{result:?}");
        for request in &stub.requests()[before..] {
            assert_eq!(request.header("authorization"), Some("Bearer svc_pt_x"));
            assert_eq!(request.header("x-tenant-id"), Some("acme"));
        }
    }
    assert_eq!(client.run(&["api-keys", "create", "--name", "n", "--tenant", "acme"]).code, Some(4));
}

#[test]
fn lists_and_revokes_keys() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let listed = client.run(&["api-keys", "list", "--output", "json"]).json();
    assert_eq!(listed, json!({"items": [key()]}));
    assert_valid_output("api-keys list", &listed);
    let table = client.run(&["api-keys", "list"]).stdout;
    assert!(table.contains("fw-1 fw-2") && table.contains(CREATOR), "{table}");
    let revoked = client.run(&["api-keys", "revoke", ID, "--yes", "--output", "json"]).json();
    assert_eq!(revoked, json!({"key_id": ID, "revoked": true}));
    assert_valid_output("api-keys revoke", &revoked);
    assert_eq!(client.run(&["api-keys", "revoke", ID]).code, Some(12));
    let other = "01890a5d-ac96-774b-bcce-b302099a8099";
    assert_eq!(client.run(&["api-keys", "revoke", other, "--yes"]).code, Some(3));
}

#[cfg(target_os = "linux")]
#[test]
fn a_key_that_could_not_be_printed_is_found_and_revoked() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    for is_full in [true, false] {
        let result = client.run_without_output(&["api-keys", "create", "--name", "n"], is_full);
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(13), Some("response_lost")), "{result:?}");
        assert_eq!(error["retryable"], false, "{error}");
        assert!(error["remediation"].as_str().unwrap().contains("svc api-keys revoke"), "{error}");
    }
    // Nothing is lost that a second run does not print.
    let list = |is_full| client.run_without_output(&["api-keys", "list"], is_full);
    assert_eq!((list(true).code, list(true).error()["code"].as_str()), (Some(1), Some("output_failed")));
    assert_eq!((list(false).code, list(false).stderr.as_str()), (Some(141), ""));
}
