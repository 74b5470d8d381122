//! `svc api`: requests to any route.

use contract::ProblemKind;
use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/users/invite" => (201, json!({"email": request.json()["email"]}).to_string()),
        "GET /api/v1/pages/device" => (200, "<p>hello</p>".into()),
        _ => problem(ProblemKind::NotFound),
    }
}

#[test]
fn sends_the_body_and_prints_the_response() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let invite = r#"{"email": "bob@acme.example", "role": "member"}"#;
    let called =
        client.run_with(&["api", "post", "/users/invite", "--data", "-", "--output", "json"], invite).json();
    assert_eq!(called["email"], "bob@acme.example");
    let request = &stub.requests()[0];
    assert_eq!((request.line.as_str(), &request.body[..]), ("POST /api/v1/users/invite", invite.as_bytes()));
    assert_eq!(client.run(&["api", "GET", "/api/v1/pages/device", "--anonymous"]).stdout, "<p>hello</p>\n");
    assert_eq!(stub.requests()[1].header("authorization"), None);
    assert_eq!(client.run(&["api", "GET", "/nowhere"]).code, Some(3));
    for path in ["pages/device", "api/v1/pages/device"] {
        assert_eq!(client.run(&["api", "GET", path]).stdout, "<p>hello</p>\n");
    }
    assert_eq!(stub.request_lines().last().unwrap(), "GET /api/v1/pages/device");
    let url = client.run(&["api", "GET", &format!("{}/api/v1/nowhere", stub.url)]);
    assert_eq!(url.code, Some(2), "{url:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn only_the_output_of_a_request_with_an_effect_is_lost() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let post = client.run_without_output(&["api", "POST", "/users/invite", "--data", "{}"], false);
    assert_eq!((post.code, post.error()["code"].as_str()), (Some(13), Some("response_lost")), "{post:?}");
    let get = client.run_without_output(&["api", "GET", "/pages/device"], false);
    assert_eq!((get.code, get.stderr.as_str()), (Some(141), ""));
}
