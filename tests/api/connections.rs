//! Connections of clients that send a request in several segments, on every route.

use std::time::Duration;

use contract::API_PREFIX;
use contract::routes;
use futures::StreamExt as _;
use testsystem::TestSystem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Reads a response with its body. Returns its head, or what arrived until the connection was closed.
async fn response(stream: &mut TcpStream, has_body: bool) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    if has_body {
        stream.read_exact(&mut vec![0; length.unwrap_or_default()]).await.unwrap();
    }
    head
}

/// Sends the segments of a request, and then another request. Returns a sentence about the failure.
async fn exchange(address: &str, target: &str, segments: &[&str]) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for segment in segments {
        // The server can have closed the connection.
        let _ = stream.write_all(segment.as_bytes()).await;
        // The time between segments is a part of the input.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut first = response(&mut stream, !target.starts_with("HEAD")).await;
    if first.starts_with("http/1.1 100") {
        first = response(&mut stream, true).await;
    }
    let next = format!("GET {API_PREFIX}/version HTTP/1.1\r\nhost: test\r\n\r\n");
    let _ = stream.write_all(next.as_bytes()).await;
    let second = response(&mut stream, false).await;
    let is_announced = first.contains("connection: close");
    let is_right = !first.is_empty() && second.is_empty() == is_announced;
    (!is_right).then(|| format!("{target} {segments:?}: {first}then: {second:?}"))
}

#[tokio::test]
async fn no_route_closes_a_connection_without_notice_however_a_request_is_cut_into_segments() {
    let system = TestSystem::start().await.unwrap();
    let public = routes::all()
        .map(|route| (&system.base_url, route.method.as_str(), format!("{API_PREFIX}{}", route.path)));
    let internal = [&system.admin_url, &system.internal_urls.identity, &system.internal_urls.session];
    let internal = internal.map(|origin| (origin, "POST", "/readyz".to_owned()));
    let mut exchanges = Vec::new();
    for (origin, method, path) in public.chain(internal) {
        let (address, path) = (origin.trim_start_matches("http://"), path.replace(['{', '}'], ""));
        for method in [method, "HEAD", "PUT"] {
            for (framing, first, rest) in [
                ("content-length: 2", "{", "}"),
                ("transfer-encoding: chunked", "2\r\n{", "}\r\n0\r\n\r\n"),
                ("expect: 100-continue\r\ncontent-length: 2", "{", "}"),
            ] {
                let target = format!("{method} {path}");
                let head = format!(
                    "{target} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
                );
                exchanges.push(async move { exchange(address, &target, &[&head, first, rest]).await });
            }
        }
    }
    let wrong: Vec<_> =
        futures::stream::iter(exchanges).buffer_unordered(32).filter_map(async |wrong| wrong).collect().await;
    assert!(wrong.is_empty(), "{} wrong exchanges:\n{}", wrong.len(), wrong.join("\n"));
}
