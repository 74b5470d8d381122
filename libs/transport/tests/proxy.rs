//! Proxies of the environment. Variables belong to a process, so each case runs in a separate one.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, which reads its own variables"
)]

use std::process::Command;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport, UdmEvent};

const CHILD: &str = "TRANSPORT_TEST_ENDPOINT";

/// In the process of a case: sends an event and prints the error.
#[tokio::test]
async fn sends_in_the_environment_of_a_case() {
    let Ok(endpoint) = std::env::var(CHILD) else { return };
    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new("svc_ak_x")),
        max_retries: 0,
        ..HttpTransportConfig::new(endpoint)
    });
    let error = transport.send(&UdmEvent::new("fw")).await.error.unwrap();
    println!("error: {:?} {} {error}", error.kind, error.retryable);
}

/// Sends an event in a process with this variable. Returns kind, whether it is retryable, and the message.
async fn error_with(endpoint: &str, variable: &str, value: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "sends_in_the_environment_of_a_case", "--nocapture"]);
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
    ] {
        child.env_remove(name);
    }
    child.env(CHILD, endpoint).env(variable, value);
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    output.split_once("error: ").unwrap_or_else(|| panic!("{output}")).1.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_variable_that_names_no_proxy_is_a_configuration_error() {
    for value in ["nonsense://hunter22", "proxy:hunter22", "socks5://user:hunter22@proxy:1080"] {
        let error = error_with("https://svc.example", "ALL_PROXY", value).await;
        assert!(error.starts_with("Configuration false") && error.contains("ALL_PROXY"), "{error}");
        assert!(!error.contains("hunter22"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_connect_is_named_with_its_variable_and_its_status() {
    for (status, retryable) in [(407, false), (403, false), (502, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let error = error_with("https://svc.example", "https_proxy", &proxy.to_string()).await;
        assert!(error.starts_with(&format!("Connection {retryable}")), "{error}");
        assert!(error.contains(&format!("http://{proxy} (https_proxy)")), "{error}");
        assert!(error.contains(&format!("HTTP {status}")), "{error}");
    }
}
