//! Connections over loopback addresses, and connections in memory with virtual time.

use std::net::Ipv4Addr;

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpSocket;

use super::*;
use crate::config::{Environment, Variables as _};
use crate::http::{Edge, body};
use crate::telemetry::{Telemetry, TraceSettings};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);
const SMALL: Limits = Limits { connections: 100, per_address: 2, bodies: 100, pace: BodyPace::DEFAULT };

/// A server on all loopback addresses.
struct TestServer {
    port: u16,
    drain: CancellationToken,
    tasks: Tasks,
    metrics: ConnectionMetrics,
}

impl TestServer {
    async fn start(limits: Limits, proxies: &str, router: Router) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let (port, drain) = (listener.local_addr().unwrap().port(), CancellationToken::new());
        let environment = Environment::from_pairs([("SVC_TRUSTED_PROXIES", proxies)]);
        let proxies = TrustedProxies::load(&environment).unwrap();
        let tasks = Tasks::default();
        let metrics = ConnectionMetrics::default();
        let connections = Connections::new(limits, metrics.clone());
        let server = Server::new(connections, proxies, router, tasks.clone());
        tasks.spawn_short(server.run(listener, drain.clone()));
        Self { port, drain, tasks, metrics }
    }

    /// Connects from 127.0.0.`host`.
    async fn connect(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, self.port).into()).await.unwrap()
    }
}

async fn send<T: AsyncRead + AsyncWrite + Unpin>(stream: &mut T, request: &[u8]) -> String {
    // The server can close the connection before it has received everything.
    let _ = stream.write_all(request).await;
    response(stream).await
}

/// Reads the head of a response, or what arrives until the connection is closed.
async fn response<T: AsyncRead + Unpin>(stream: &mut T) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => text.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(text).unwrap()
}

async fn expect_ok(stream: &mut TcpStream) {
    let response = send(stream, GET).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    stream.read_u8().await.is_err()
}

fn empty() -> Router {
    Router::new().route("/", get(async || ()))
}

/// Returns the body of `POST`.
fn echo() -> Router {
    empty().route("/", post(async |request| body::read(request, 100).await))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_new_connection_of_an_address_at_its_limit_replaces_the_one_idle_for_longest() {
    let server = TestServer::start(SMALL, "", empty()).await;
    let mut first = server.connect(1).await;
    let mut second = server.connect(1).await;
    let mut other = server.connect(2).await;
    for stream in [&mut second, &mut other, &mut first] {
        expect_ok(stream).await;
    }
    let mut third = server.connect(1).await;
    expect_ok(&mut third).await;
    assert!(is_closed(&mut second).await);
    for stream in [&mut first, &mut third, &mut other] {
        expect_ok(stream).await;
    }
    assert_eq!((server.metrics.open.get(), server.metrics.closed("address_limit").get()), (3, 1));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_address_with_requests_in_flight_on_all_connections_gets_no_further_connection() {
    let (started, mut requests) = tokio::sync::mpsc::channel(2);
    let handler = get(async move || {
        started.send(()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let server = TestServer::start(SMALL, "", Router::new().route("/", handler)).await;
    let mut busy = Vec::new();
    for host in [1, 1, 2] {
        let mut stream = server.connect(host).await;
        stream.write_all(GET).await.unwrap();
        requests.recv().await.unwrap();
        busy.push(stream);
    }
    assert!(is_closed(&mut server.connect(1).await).await);
    assert_eq!((server.metrics.open.get(), server.metrics.closed("rejected").get()), (3, 1));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_listener_closes_the_connection_that_is_idle_for_longest() {
    let limits = Limits { connections: 3, ..SMALL };
    let server = TestServer::start(limits, "127.0.0.9/32", empty()).await;
    let mut silent = server.connect(1).await;
    let mut proxy = server.connect(9).await;
    expect_ok(&mut proxy).await;
    let mut active = server.connect(2).await;
    expect_ok(&mut active).await;
    let mut new = server.connect(3).await;
    expect_ok(&mut new).await;
    assert!(is_closed(&mut silent).await);
    for stream in [&mut active, &mut proxy, &mut new] {
        expect_ok(stream).await;
    }
    assert_eq!((server.metrics.open.get(), server.metrics.closed("limit").get()), (3, 1));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_trusted_proxy_has_no_limit_of_connections() {
    let server = TestServer::start(SMALL, "127.0.0.1/32", empty()).await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(server.connect(1).await);
    }
    for stream in &mut streams {
        expect_ok(stream).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_rate_limited_client_is_disconnected_but_not_a_proxy() {
    let router = Router::new().route("/", get(async || StatusCode::TOO_MANY_REQUESTS));
    let server = TestServer::start(SMALL, "127.0.0.9/32", router).await;
    let mut client = server.connect(1).await;
    let response = send(&mut client, GET).await;
    assert!(response.starts_with("HTTP/1.1 429") && response.contains("connection: close"), "{response}");
    assert!(is_closed(&mut client).await);
    let mut proxy = server.connect(9).await;
    for _ in 0..2 {
        assert!(send(&mut proxy, GET).await.starts_with("HTTP/1.1 429"));
    }
}

#[tokio::test]
async fn a_request_head_above_its_limits_is_rejected() {
    let server = TestServer::start(SMALL, "", empty()).await;
    let head = |headers: usize, bytes: usize| {
        let head =
            format!("GET / HTTP/1.1\r\nhost: test\r\n{}b: ", "a: b\r\n".repeat(headers.saturating_sub(2)));
        format!("{head}{}\r\n\r\n", "x".repeat(bytes - head.len() - 4)).into_bytes()
    };
    for (head, status) in
        [(head(64, 1000), 200), (head(65, 1000), 431), (head(2, MAX_HEAD), 200), (head(2, MAX_HEAD + 1), 431)]
    {
        let response = send(&mut server.connect(1).await, &head).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {response}");
        assert!(response.contains("content-length: 0"), "{response}");
    }
}

/// Starts a request of which the handler waits for the body.
async fn start_body(server: &TestServer, host: u8) -> TcpStream {
    let mut stream = server.connect(host).await;
    let request = b"POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    // The handler waits for the body after this response.
    assert!(send(&mut stream, request).await.starts_with("HTTP/1.1 100"));
    stream
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn of_too_many_requests_that_wait_for_their_bodies_those_that_wait_for_longest_are_closed() {
    let server = TestServer::start(Limits { bodies: 8, ..SMALL }, "", echo()).await;
    let mut idle = server.connect(1).await;
    expect_ok(&mut idle).await;
    let mut streams = Vec::new();
    for host in 1..=9 {
        streams.push(start_body(&server, host).await);
    }
    for stream in &mut streams[..2] {
        assert!(is_closed(stream).await);
    }
    for stream in &mut streams[2..] {
        assert!(send(stream, b"{}").await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(server.metrics.closed("body_limit").get(), 2);
    // The complete bodies count no longer.
    for host in 1..=8 {
        streams.push(start_body(&server, host).await);
    }
    expect_ok(&mut idle).await;
    assert_eq!(server.metrics.closed("body_limit").get(), 2);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_is_answered_while_others_hold_all_connections_with_unfinished_requests() {
    for unfinished in [&GET[..GET.len() - 2], b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{"]
    {
        let server = TestServer::start(Limits { connections: 6, ..SMALL }, "", echo()).await;
        let mut hostile = Vec::new();
        for host in [1, 1, 2, 2, 3, 3] {
            let mut stream = server.connect(host).await;
            stream.write_all(unfinished).await.unwrap();
            hostile.push(stream);
        }
        expect_ok(&mut server.connect(4).await).await;
        assert_eq!(server.metrics.closed("limit").get(), 1);
    }
}

#[tokio::test]
async fn a_client_that_is_still_sending_gets_the_response_to_its_rejected_request() {
    let router = Router::new().route("/", post(async || StatusCode::UNAUTHORIZED));
    let server = TestServer::start(SMALL, "", router).await;
    let mut client = server.connect(1).await;
    let length = 16 * 1024 * 1024;
    let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    // Everything is sent before the response is read.
    client.write_all(&vec![b' '; length]).await.unwrap();
    let response = response(&mut client).await;
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
}

#[tokio::test]
async fn a_declared_length_above_the_limit_is_rejected_without_continue() {
    let handler = post(async |request| body::read(request, 6).await.map(|_| ()));
    let server = TestServer::start(SMALL, "", Router::new().route("/", handler)).await;
    let mut client = server.connect(1).await;
    let head = b"POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 7\r\n\r\n";
    let response = send(&mut client, head).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}

/// Routes that read nothing of a body, at most six bytes, and everything.
fn readers() -> Router {
    let partly = post(async |request| body::read(request, 6).await.map(|_| ()));
    let all = post(async |request| body::read(request, 10_000).await.map(|_| ()));
    empty().route("/", post(async || StatusCode::UNAUTHORIZED)).route("/partly", partly).route("/all", all)
}

/// Sends a request in segments, and then another one. Returns whether the server kept the connection. Panics if it closed it without
/// notice, or announced this and kept it.
async fn is_kept(router: Router, request: &str, cuts: &[usize]) -> bool {
    let (server, mut client) = connect_in_memory(router);
    let exchange = async {
        let mut start = 0;
        for cut in cuts.iter().copied().chain([request.len()]) {
            client.write_all(&request.as_bytes()[start..cut]).await.unwrap();
            // The server handles what it has received before the virtual time goes on.
            tokio::time::sleep(Duration::from_millis(10)).await;
            start = cut;
        }
        let mut first = response(&mut client).await;
        if first.starts_with("HTTP/1.1 100") {
            first = response(&mut client).await;
        }
        assert!(first.starts_with("HTTP/1.1 "), "{request} {cuts:?}: {first}");
        let is_kept = !first.contains("connection: close");
        let next = send(&mut client, GET).await;
        assert_eq!(next.starts_with("HTTP/1.1 200"), is_kept, "{request} {cuts:?}: {first}{next}");
        is_kept
    };
    server.during(exchange).await
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_or_announced_as_closed_however_a_request_is_cut_into_segments() {
    let (long, chunked) = ("x".repeat(4097), "2\r\n{}\r\n0\r\n\r\n");
    for (target, framing, body, keeps) in [
        ("POST /", "content-length: 2", "{}", true),
        ("POST /", "content-length: 4096", &long[1..], true),
        ("POST /", "content-length: 4097", &long, false),
        ("POST /", "transfer-encoding: chunked", chunked, false),
        ("POST /", "expect: 100-continue\r\ncontent-length: 2", "{}", false),
        ("POST /", "connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2", "{}", true),
        ("GET /", "content-length: 2", "{}", true),
        ("HEAD /", "transfer-encoding: chunked", chunked, false),
        ("PUT /", "content-length: 2", "{}", true),
        ("POST /none", "content-length: 2", "{}", true),
        ("POST /partly", "content-length: 7", "1234567", true),
        ("POST /partly", "transfer-encoding: chunked", "4\r\n1234\r\n3\r\n567\r\n0\r\n\r\n", false),
        ("POST /partly", "transfer-encoding: chunked", "no size\r\n\r\n", false),
        ("POST /all", "content-length: 4097", &long, true),
        ("POST /all", "transfer-encoding: chunked", chunked, true),
        ("POST /all", "expect: 100-continue\r\ncontent-length: 2", "{}", true),
        ("POST /all", "expect: 100-continue\r\ntransfer-encoding: chunked", chunked, true),
    ] {
        let head = format!("{target} HTTP/1.1\r\nhost: test\r\n{framing}\r\n\r\n");
        let (request, end) = (format!("{head}{body}"), head.len() + body.len());
        let bytes: Vec<_> = (1..end.min(head.len() + 8)).collect();
        for cuts in [&[][..], &[10], &[head.len()], &[head.len(), head.len() + 1], &[end - 1], &bytes] {
            assert_eq!(is_kept(readers(), &request, cuts).await, keeps, "{request} {cuts:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_body_that_does_not_arrive_delays_the_response_by_one_second() {
    let (server, mut client) = connect_in_memory(readers());
    let started = tokio::time::Instant::now();
    let exchange = async {
        let head = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{";
        let response = send(&mut client, head).await;
        (response, started.elapsed().as_millis())
    };
    let (response, milliseconds) = server.during(exchange).await;
    assert!(response.starts_with("HTTP/1.1 401") && response.contains("connection: close"), "{response}");
    assert!((1000..1010).contains(&milliseconds), "{milliseconds}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_with_unread_bodies_get_their_responses_in_order() {
    let (server, mut client) = connect_in_memory(readers());
    let exchange = async {
        let request = |path| format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n{{}}");
        let requests = ["/", "/all", "/none", "/"].map(request).concat();
        client.write_all(requests.as_bytes()).await.unwrap();
        for status in ["401", "200", "404", "401"] {
            let response = response(&mut client).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {response}");
            assert!(!response.contains("connection: close"), "{response}");
        }
    };
    server.during(exchange).await;
}

#[tokio::test]
async fn a_client_that_sends_more_after_its_last_request_gets_the_response() {
    let router = readers().route("/limited", get(async || StatusCode::TOO_MANY_REQUESTS));
    let server = TestServer::start(SMALL, "", router).await;
    let more = "GET / HTTP/1.1\r\nhost: test\r\n\r\n".repeat(600_000);
    for (request, status) in [
        ("GET /limited HTTP/1.1\r\nhost: test\r\n\r\n", "429"),
        ("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n", "200"),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("POST /all HTTP/1.1\r\nhost: test\r\ncontent-length: 4097\r\nconnection: close\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nhost: test\r\nno header\r\n\r\n", "400"),
    ] {
        let mut client = server.connect(1).await;
        // Everything is sent before the response is read.
        client.write_all(format!("{request}{more}").as_bytes()).await.unwrap();
        let response = response(&mut client).await;
        // HTTP/1.0 closes without an announcement.
        let is_announced = response.contains("connection: close") || response.starts_with("HTTP/1.0");
        assert!(response.contains(&format!(" {status} ")) && is_announced, "{response}");
        assert_eq!(client.read(&mut [0]).await.expect("the connection is not reset"), 0);
    }
    // The request with the error follows one that gets its response.
    let mut client = server.connect(1).await;
    client
        .write_all(format!("GET / HTTP/1.1\r\nhost: test\r\n\r\nno request\r\n\r\n{more}").as_bytes())
        .await
        .unwrap();
    for status in ["200", "400"] {
        let response = response(&mut client).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
    assert_eq!(client.read(&mut [0]).await.expect("the connection is not reset"), 0);
}

#[tokio::test]
async fn transfer_encoding_overrides_content_length_and_the_connection_is_closed() {
    let server = TestServer::start(SMALL, "", echo()).await;
    let (length, chunked) = ("content-length: 3", "transfer-encoding: chunked");
    for framing in [format!("{length}\r\n{chunked}"), format!("{chunked}\r\n{length}")] {
        let mut client = server.connect(1).await;
        let request = format!(
            "POST / HTTP/1.1\r\nhost: test\r\n{framing}\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("\r\n\r\nhello") && text.contains("connection: close"), "{text}");
    }
}

#[tokio::test]
async fn a_drain_closes_idle_connections() {
    let server = TestServer::start(SMALL, "", empty()).await;
    let mut client = server.connect(1).await;
    expect_ok(&mut client).await;
    server.drain.cancel();
    assert!(is_closed(&mut client).await);
    server.tasks.tracker().close();
    server.tasks.tracker().wait().await;
}

/// Connects in memory. The time of the connection is virtual.
fn connect_in_memory(router: Router) -> (Server, DuplexStream) {
    let connections = Connections::new(SMALL, ConnectionMetrics::default());
    let server = Server::new(connections, TrustedProxies::default(), router, Tasks::default());
    let (client, stream) = tokio::io::duplex(1024);
    let peer: SocketAddr = "192.0.2.1:4000".parse().unwrap();
    server.spawn(stream, peer, server.connections.add(peer.ip(), false).unwrap());
    (server, client)
}

impl Server {
    /// Runs a client while expired connections are closed.
    async fn during<T>(&self, client: impl Future<Output = T>) -> T {
        tokio::select! { value = client => value, never = sweep(&self.connections) => match never {} }
    }
}

fn large() -> Router {
    Router::new().route("/", get(async || vec![b' '; 16 * 1024]))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_receives_the_complete_response() {
    let (server, mut client) = connect_in_memory(large());
    let reading = async {
        client.write_all(GET).await.unwrap();
        let mut received = 0;
        while received < 16 * 1024 {
            tokio::time::sleep(25 * SECOND).await;
            received += client.read(&mut [0; 1024]).await.unwrap();
        }
    };
    server.during(reading).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    let (server, mut client) = connect_in_memory(large());
    let reading = async {
        client.write_all(GET).await.unwrap();
        tokio::time::sleep(35 * SECOND).await;
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received.len()
    };
    assert_eq!(server.during(reading).await, 1024, "the response continued");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_does_not_delay_the_drain_beyond_its_timeout() {
    let (server, mut client) = connect_in_memory(large());
    client.write_all(GET).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let connections = Arc::clone(&server.connections);
    let drain = tokio::time::timeout(40 * SECOND, server.close());
    let drained =
        tokio::select! { drained = drain => drained, never = sweep(&connections) => match never {} };
    assert!(drained.is_ok(), "the drain waits for a client that reads nothing");
}

#[tokio::test(start_paused = true)]
async fn a_response_can_pause_for_longer_than_all_timeouts() {
    let events = || {
        futures::stream::unfold((), async |()| {
            tokio::time::sleep(3600 * SECOND).await;
            Some((Ok::<_, Infallible>("event"), ()))
        })
    };
    let router = Router::new().route("/", get(async move || Body::from_stream(events())));
    let (server, mut client) = connect_in_memory(router);
    let reading = async {
        client.write_all(GET).await.unwrap();
        let mut text = String::new();
        while text.matches("event").count() < 3 {
            text.push(client.read_u8().await.unwrap().into());
        }
    };
    server.during(reading).await;
}

#[tokio::test(start_paused = true)]
async fn silent_connections_and_unfinished_heads_time_out() {
    let get = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    let post = |framing| format!("POST /all HTTP/1.1\r\nhost: test\r\n{framing}");
    let (length, chunked) =
        (post("content-length: 2\r\n\r\n{}"), post("transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"));
    // The start of a request can be in the segment of the previous one.
    for (sent, timeout) in [
        (String::new(), 120),
        (get.to_owned(), 120),
        (format!("{get}{length}"), 120),
        (chunked.clone(), 120),
        ("GET / HTTP/1.1\r\n".to_owned(), 10),
        (format!("{get}G"), 10),
        (format!("{get}{get}GET / HTTP/1.1\r\nhost"), 10),
        (format!("{length}POST"), 10),
        (format!("{chunked}{length}{get}GET /"), 10),
    ] {
        let (server, mut client) = connect_in_memory(readers());
        let start = tokio::time::Instant::now();
        let closed = async {
            client.write_all(sent.as_bytes()).await.unwrap();
            client.read_to_end(&mut Vec::new()).await.unwrap();
            start.elapsed().as_secs()
        };
        let seconds = server.during(closed).await;
        assert!((timeout..timeout + 2).contains(&seconds), "{sent}: {seconds}");
        let metrics = &server.connections.metrics;
        assert_eq!((metrics.open.get(), metrics.closed("timeout").get()), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_serves_requests_after_pauses() {
    let (server, mut client) = connect_in_memory(readers());
    let requests = async {
        for pause in [0, 5, 11, 60, 110, 11] {
            tokio::time::sleep(pause * SECOND).await;
            let response = send(&mut client, GET).await;
            assert!(
                response.starts_with("HTTP/1.1 200") && !response.contains("connection: close"),
                "{response}"
            );
        }
    };
    server.during(requests).await;
    assert_eq!(server.connections.metrics.open.get(), 1);
}

/// The pieces of a body and the pause after each. Returns the response, and the seconds until it arrived.
async fn upload(length: usize, pieces: impl IntoIterator<Item = (usize, Duration)>) -> (String, u64) {
    let receive =
        post(async |request| body::read(request, 10 << 20).await.map(|body| body.len().to_string()));
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    let router = Router::new().route("/", receive);
    let (server, client) =
        connect_in_memory(Edge::new("https://svc.example", "test", &telemetry).wrap(router));
    let (mut reader, mut writer) = tokio::io::split(client);
    let started = tokio::time::Instant::now();
    let sending = async {
        let head =
            format!("POST / HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        for (bytes, pause) in pieces {
            // The server can have closed the connection.
            let _ = writer.write_all(&vec![b' '; bytes]).await;
            tokio::time::sleep(pause).await;
        }
        std::future::pending::<Infallible>().await
    };
    let receiving = async {
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        (text, started.elapsed().as_secs())
    };
    let exchange = async {
        tokio::select! { never = sending => match never {}, answer = receiving => answer }
    };
    server.during(exchange).await
}

#[tokio::test(start_paused = true)]
async fn a_body_of_ten_mebibytes_arrives_over_a_link_of_one_megabit_per_second() {
    let length = 10 << 20;
    let piece = (12_500, SECOND / 10);
    let last = (length % piece.0, SECOND);
    let (response, seconds) =
        upload(length, std::iter::repeat_n(piece, length / piece.0).chain([last])).await;
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("10485760"), "{response}");
    assert_eq!(seconds, 83);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_progress_is_408_and_its_detail_explains_what_to_do() {
    let pause = "it paused or was late for 5 s. Send it without pauses, at least 8 KiB per second, or send a smaller one.";
    let total = "not complete after 90 s. Send a smaller one.";
    let trickle = std::iter::repeat_n((1, SECOND), 1000).collect::<Vec<_>>();
    let stalled = vec![(64 << 10, 3 * SECOND), (39 << 10, 10 * SECOND)];
    let too_long = std::iter::repeat_n((10_000, SECOND / 10), 1000).collect();
    for (length, pieces, at, detail) in [
        (1000, trickle, 5, pause),
        (10, vec![], 5, pause),
        (1 << 20, stalled, 8, pause),
        (10 << 20, too_long, 90, total),
    ] {
        let (response, seconds) = upload(length, pieces).await;
        assert!(response.starts_with("HTTP/1.1 408") && response.contains(detail), "{response}");
        assert!(response.contains("connection: close"), "{response}");
        // The server waits for the rest of the request before it closes the connection.
        assert!((at..=at + 6).contains(&seconds), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_due_ten_seconds_after_the_body() {
    let slow = post(async |request| {
        body::read(request, 1 << 20).await.unwrap();
        std::future::pending::<()>().await;
    });
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    let router = Router::new().route("/", slow);
    let (server, mut client) =
        connect_in_memory(Edge::new("https://svc.example", "test", &telemetry).wrap(router));
    let started = tokio::time::Instant::now();
    let exchange = async {
        let head = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", 30 * 10_000);
        client.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..30 {
            tokio::time::sleep(SECOND).await;
            client.write_all(&[b' '; 10_000]).await.unwrap();
        }
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 503");
        started.elapsed().as_secs()
    };
    assert_eq!(server.during(exchange).await, 40);
}

#[tokio::test]
async fn a_client_that_closes_its_side_after_the_request_gets_its_response() {
    let waiting = post(async |request| {
        let body = body::read(request, 100).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        body
    });
    let server = TestServer::start(SMALL, "", Router::new().route("/", waiting)).await;
    for framing in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        let mut client = server.connect(1).await;
        client.write_all(format!("POST / HTTP/1.1\r\nhost: test\r\n{framing}").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\nhello"), "{text}");
    }
    let mut incomplete = server.connect(1).await;
    incomplete.write_all(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe").await.unwrap();
    incomplete.shutdown().await.unwrap();
    let mut text = String::new();
    incomplete.read_to_string(&mut text).await.unwrap();
    assert!(!text.starts_with("HTTP/1.1 2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_gets_all_responses_and_the_connection_is_closed_at_once() {
    async fn wait<T>(body: T) -> T {
        tokio::time::sleep(SECOND).await;
        body
    }
    let router = empty()
        .route("/slow", get(async || wait("slow").await))
        .route("/large", get(async || wait(vec![b'x'; 20 * 1024]).await))
        .route("/all", post(async |request| wait(body::read(request, 100).await).await));
    let (get, post) =
        (|path| format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"), "POST /all HTTP/1.1\r\nhost: test\r\n");
    // The client reads 1,024 bytes per pause.
    for (request, responses, pause, seconds) in [
        (get("/"), 1, Duration::ZERO, 0),
        (get("/slow"), 1, Duration::ZERO, 1),
        (format!("{}{}", get("/slow"), get("/slow")), 2, Duration::ZERO, 2),
        (get("/large"), 1, Duration::ZERO, 1),
        (get("/large"), 1, SECOND, 21),
        (format!("{post}content-length: 2\r\n\r\n{{}}"), 1, Duration::ZERO, 1),
        (format!("{post}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"), 1, Duration::ZERO, 1),
    ] {
        let (server, mut client) = connect_in_memory(router.clone());
        let started = tokio::time::Instant::now();
        let exchange = async {
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let (mut text, mut part) = (Vec::new(), vec![0; 1024]);
            loop {
                let length = client.read(&mut part).await.unwrap();
                text.extend_from_slice(&part[..length]);
                if length == 0 {
                    return (String::from_utf8(text).unwrap(), started.elapsed().as_secs());
                }
                tokio::time::sleep(pause).await;
            }
        };
        let (text, elapsed) = server.during(exchange).await;
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), responses, "{request}: {text}");
        assert!(
            !request.contains("large") || text.matches('x').count() == 20 * 1024,
            "{request}: {}",
            text.len()
        );
        assert!((seconds..=seconds + 1).contains(&elapsed), "{request}: {elapsed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_before_the_end_of_a_body_gets_an_error_at_once() {
    for (target, body, status) in [
        ("/all", "content-length: 5\r\n\r\nhe", "400"),
        ("/all", "content-length: 5\r\n\r\n", "400"),
        ("/all", "transfer-encoding: chunked\r\n\r\n5\r\nhe", "400"),
        ("/all", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "400"),
        ("/", "content-length: 5\r\n\r\nhe", "401"),
        ("/", "content-length: 4097\r\n\r\nhe", "401"),
        ("/", "transfer-encoding: chunked\r\n\r\n5\r\nhe", "401"),
    ] {
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        let (server, mut client) =
            connect_in_memory(Edge::new("https://svc.example", "test", &telemetry).wrap(readers()));
        let started = tokio::time::Instant::now();
        let exchange = async {
            let request = format!("POST {target} HTTP/1.1\r\nhost: test\r\n{body}");
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).await.unwrap();
            (text, started.elapsed().as_millis())
        };
        let (text, milliseconds) = server.during(exchange).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{target} {body}: {text}");
        assert!(
            text.contains("connection: close") && milliseconds < 10,
            "{target} {body}: {milliseconds} {text}"
        );
    }
}

#[tokio::test]
async fn a_handler_processes_the_error_of_a_body_if_the_client_resets_the_connection() {
    let (sender, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
    let handler = post(async move |request| {
        let received = |_, _| {
            sender.send("received").unwrap();
            Ok(())
        };
        let body = body::read_into(request, 100, received).await;
        sender.send(if body.is_ok() { "complete" } else { "incomplete" }).unwrap();
    });
    let server = TestServer::start(SMALL, "", Router::new().route("/", handler)).await;
    let mut client = server.connect(1).await;
    client.write_all(b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhe").await.unwrap();
    let mut next = async || tokio::time::timeout(10 * SECOND, outcomes.recv()).await.unwrap();
    assert_eq!(next().await, Some("received"));
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(next().await, Some("incomplete"));
}

#[tokio::test(start_paused = true)]
async fn a_response_to_a_client_that_is_gone_ends_after_ten_seconds() {
    let endless = || futures::stream::pending::<Result<Bytes, Infallible>>();
    let router = Router::new().route("/", get(async move || Body::from_stream(endless())));
    let (server, mut client) = connect_in_memory(router);
    let started = tokio::time::Instant::now();
    let exchange = async {
        client.write_all(GET).await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = Vec::new();
        client.read_to_end(&mut text).await.unwrap();
        started.elapsed().as_secs()
    };
    assert!((10..12).contains(&server.during(exchange).await));
}

#[tokio::test]
async fn http_2_without_tls_is_refused() {
    let server = TestServer::start(SMALL, "", empty()).await;
    let mut client = server.connect(1).await;
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut client).await);
    let mut client = server.connect(1).await;
    let upgrade = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
        http2-settings: AAMAAABk\r\n\r\n";
    let response = send(&mut client, upgrade).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test]
async fn a_compression_as_transfer_encoding_is_501() {
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    let router = Edge::new("https://svc.example", "test", &telemetry).wrap(echo());
    let server = TestServer::start(SMALL, "", router).await;
    for (encoding, status) in [
        ("transfer-encoding: gzip, chunked", "501"),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked", "501"),
        ("transfer-encoding: chunked, chunked", "501"),
        ("transfer-encoding: Chunked", "200"),
    ] {
        let mut client = server.connect(1).await;
        let request = format!("POST / HTTP/1.1\r\nhost: test\r\n{encoding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        let response = send(&mut client, request.as_bytes()).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{encoding}: {response}");
    }
}
