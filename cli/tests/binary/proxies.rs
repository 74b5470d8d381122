//! Proxies of the environment: one that cannot be used or does not connect is named, and none is ignored.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use contract::ProblemKind;

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, problem};

/// A proxy that answers each CONNECT with this status.
fn proxy(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        }
    });
    url
}

fn list_users(url: &str, variables: &[(&str, &str)]) -> CommandResult {
    let client =
        Client::for_url(url).with_variable("SVC_TOKEN", "svc_st_x").with_variable("SVC_TENANT", "acme");
    let client = variables.iter().fold(client, |client, (name, value)| client.with_variable(name, value));
    client.run(&["users", "list", "--output", "json", "--timeout", "5s"])
}

#[test]
fn a_variable_that_names_no_proxy_is_an_invalid_configuration() {
    for (url, variable, value) in [
        ("https://svc.example", "HTTPS_PROXY", "nonsense://hunter22"),
        ("https://svc.example", "https_proxy", "proxy:hunter22"),
        ("https://svc.example", "ALL_PROXY", "socks5://user:hunter22@proxy:1080"),
        ("http://svc.example", "HTTP_PROXY", "http://proxy/hunter22"),
    ] {
        let result = list_users(url, &[(variable, value)]);
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(11), &"configuration_invalid".into()), "{result:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(variable) && message.contains("http://HOST:PORT"), "{message}");
        assert!(!result.stderr.contains("hunter22"), "{result:?}");
    }
}

#[test]
fn a_proxy_that_does_not_connect_is_named_with_its_variable_and_its_status() {
    for (status, retryable, advice) in [
        ("407 Proxy Authentication Required", false, "Set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT"),
        ("403 Forbidden", false, "Ask the administrator of the proxy to allow https://svc.example:8443"),
        ("502 Bad Gateway", true, "Check the address https://svc.example:8443"),
    ] {
        let proxy = proxy(status);
        let result = list_users("https://svc.example:8443", &[("HTTPS_PROXY", &proxy)]);
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(9), &"unreachable".into()), "{result:?}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("the proxy {proxy} (HTTPS_PROXY) did not connect")),
            "{message}"
        );
        assert!(message.ends_with(&format!("HTTP {}", &status[..3])), "{message}");
        assert_eq!(error["retryable"], retryable, "{error}");
        assert!(error["remediation"].as_str().unwrap().starts_with(advice), "{error}");
    }
}

#[test]
fn a_proxy_that_cannot_be_reached_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = format!("127.0.0.1:{port}");
    let result = list_users("http://svc.example", &[("HTTP_PROXY", &proxy)]);
    let message = result.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&format!("through the proxy http://{proxy} (HTTP_PROXY)")), "{message}");
}

#[test]
fn an_address_in_no_proxy_is_reached_directly() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let users = |no_proxy: &str| {
        let result =
            list_users("http://svc.invalid:8080", &[("HTTP_PROXY", &stub.url), ("NO_PROXY", no_proxy)]);
        result.error()["code"].as_str().unwrap().to_owned()
    };
    for no_proxy in ["", "svc.invalid:80", "10.0.0.0/8", ".example"] {
        assert_eq!(users(no_proxy), "not_found", "{no_proxy}: through the proxy");
    }
    for no_proxy in ["svc.invalid:8080", ".invalid", "*.invalid", "*", "other svc.invalid"] {
        assert_eq!(users(no_proxy), "unreachable", "{no_proxy}: without the proxy, the name does not exist");
    }
}
