//! `svc version`.

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, assert_valid_output};
use crate::stub::{Handler, Stub, StubRequest, problem};

const CLIENT: &str = env!("CARGO_PKG_VERSION");

fn of_a_later_release(_: &StubRequest) -> (u16, String) {
    (200, json!({"version": "99.7.1"}).to_string())
}

fn of_the_same_release(_: &StubRequest) -> (u16, String) {
    let release = CLIENT.rsplit_once('.').unwrap().0;
    (200, json!({"version": format!("{release}.9999")}).to_string())
}

fn failing(_: &StubRequest) -> (u16, String) {
    problem(ProblemKind::Internal)
}

#[test]
fn warns_if_the_server_is_of_another_release() {
    for (server, version, skew) in
        [(of_a_later_release as Handler, "99.7.1", true), (of_the_same_release, "9999", false)]
    {
        let stub = Stub::new(server);
        let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
        let printed = client.run(&["version", "-o", "json"]).json();
        assert_valid_output("version", &printed);
        assert_eq!((printed["version"].as_str(), printed["skew"].as_bool()), (Some(CLIENT), Some(skew)));
        assert!(printed["server_version"].as_str().unwrap().ends_with(version), "{printed}");
        let result = client.run(&["version"]);
        assert_eq!(result.stderr.contains("warning: client"), skew, "{result:?}");
        assert_eq!(result.stderr.contains("use a client of release 99.7"), skew, "{result:?}");
        assert!(stub.requests().iter().all(|request| request.header("authorization").is_none()));
    }
}

#[test]
fn prints_the_version_of_the_client_without_a_server() {
    let failing = Stub::new(failing);
    for url in ["http://127.0.0.1:1", &failing.url] {
        let result = Client::for_url(url).run(&["version", "-o", "json"]);
        let printed = result.json();
        assert_eq!((&printed["version"], &printed["server_version"]), (&json!(CLIENT), &Value::Null));
        assert!(result.stderr.contains("the version of the server is unknown: "), "{result:?}");
    }
}

#[test]
fn client_option_sends_no_request() {
    let stub = Stub::new(of_a_later_release);
    let result = Client::for_url(&stub.url).run(&["version", "--client"]);
    assert_eq!((result.code, result.stderr.as_str()), (Some(0), ""));
    assert!(result.stdout.contains(CLIENT) && stub.requests().is_empty(), "{result:?}");
}
