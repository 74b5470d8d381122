//! The examples and the recipe of docs/producers.md, run with the real programs against the real system. A program that is not
//! installed is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use contract::Page;
use contract::consumers::DeadLetter;
use data_encoding::BASE64;
use e2e::{
    ApiUser, EventStream, Installation, Process, Run, descendants, installed, is_alive, kill, output_of,
    variable,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::wait_until;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

const BUILD_DEADLINE: Duration = Duration::from_mins(5);

/// Creates an API key.
async fn api_key(run: &Run<'_>) -> String {
    let user = ApiUser::first_admin(&run.run_file).await;
    let key: Value = user.client.post("/api-keys", &json!({ "name": "producer" })).await.expect(201);
    key["key"].as_str().unwrap().to_owned()
}

/// Path of a file in docs/producers.
fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/producers").join(name)
}

/// Temporary for a log shipper: an expired key is replaced, and an ingress is repaired.
const REJECTIONS: [StatusCode; 5] = [
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::TOO_MANY_REQUESTS,
];

/// A proxy that rejects the first requests, and loses the response to the next one.
struct UnreliableProxy {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

#[derive(Clone)]
struct Upstream {
    base_url: String,
    rejected: usize,
    requests: Arc<AtomicUsize>,
}

impl UnreliableProxy {
    async fn start(base_url: &str, rejected: usize) -> Self {
        let requests: Arc<AtomicUsize> = Arc::default();
        let upstream = Upstream { base_url: base_url.to_owned(), rejected, requests: Arc::clone(&requests) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(forward).layer(DefaultBodyLimit::disable()).with_state(upstream);
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, requests, _task: task }
    }
}

async fn forward(
    State(upstream): State<Upstream>,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let number = upstream.requests.fetch_add(1, Ordering::Relaxed);
    if number < upstream.rejected {
        return (REJECTIONS[number % REJECTIONS.len()], [("retry-after", "1")]).into_response();
    }
    headers.remove("host");
    let request = testkit::client::plain_http().post(format!("{}{uri}", upstream.base_url));
    let response = request.headers(headers).body(body).send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.bytes().await.unwrap();
    if number == upstream.rejected {
        StatusCode::BAD_GATEWAY.into_response()
    } else {
        (status, headers, body).into_response()
    }
}

/// An event in one of the two spellings, without an id, with `null` or with an id.
fn event(n: usize) -> Value {
    match n % 5 {
        0 => json!({ "source_id": "fw", "n": n }),
        1 => json!({ "sourceId": "fw", "n": n }),
        2 => json!({ "sourceId": "fw", "eventId": null, "n": n }),
        3 => json!({ "sourceId": "fw", "eventId": format!("e-{n}") }),
        _ => json!({ "source_id": "fw", "event_id": format!("e-{n}") }),
    }
}

/// Events that exceed 10 MiB if a program escapes their letters, with an id, and one with the id of Google SecOps.
fn large_and_exported() -> Vec<String> {
    let text = "ж".repeat(34_000);
    let large = |n: usize| json!({ "source_id": "fw", "event_id": format!("large-{n}"), "text": text });
    let exported =
        json!({ "source_id": "fw", "eventId": null, "metadata": { "id": "AAAAAC4+egHJ1IF+/w==" } });
    (0..60).map(large).chain([exported]).map(|event| event.to_string()).collect()
}

/// Runs an example with valid events, invalid ones and other lines, and checks that the stream contains each valid event once.
async fn check_example(mut command: Command) {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let proxy = UnreliableProxy::start(&run.run_file.base_url, 1).await;
    let mut lines: Vec<_> = (0..1200).map(|n| event(n).to_string()).collect();
    lines.insert(700, json!({ "eventId": "invalid", "source_id": "" }).to_string());
    // The numbers of these lines.
    let no_events = [
        (101, "no json"),
        (102, "{\"source_id\":\"fw\"} {}"),
        (103, "[1]"),
        (105, "null"),
        (900, "{\"n\": NaN}"),
    ];
    for (number, line) in no_events {
        lines.insert(number - 1, line.to_owned());
    }
    lines.insert(103, String::new());
    lines.extend(large_and_exported());
    // Not all parsers read the same value, so an example that writes the event again would hide the error.
    lines.push(r#"{"source_id":"fw","event_id":"twice","n":1,"n":2}"#.to_owned());
    lines.push(format!(r#"{{"source_id":"fw","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000)));
    let deep = format!("line {}:", lines.len());
    let input = installation.path("events.ndjson");
    std::fs::write(&input, lines.join("\n")).unwrap();

    command.env("SVC_BASE_URL", &proxy.endpoint).env("SVC_API_KEY", api_key(&run).await);
    command.stdin(std::fs::File::open(input).unwrap());
    let output = output_of(command).await;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let first_words = errors.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
    let expected = [
        "line 101:",
        "line 102:",
        "line 103:",
        "line 106:",
        "line 901:",
        &deep,
        "invalid validation_failed",
        "twice validation_failed",
    ];
    assert_eq!(first_words.collect::<Vec<_>>(), expected, "{errors}");
    let ids = EventStream::connect(&run.run_file.nats_url).await.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (1261, Some(&1)));
    assert!(ids.contains_key("AAAAAC4+egHJ1IF+/w=="), "the id of an export is kept");
    assert!((3..1200).step_by(5).all(|n| ids.contains_key(&format!("e-{n}"))), "ids of senders are kept");
}

#[tokio::test]
async fn the_python_example_sends_each_event_once_over_an_unreliable_connection() {
    let mut command = Command::new(variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into()));
    command.arg(documented("send_events.py"));
    check_example(command).await;
}

#[tokio::test]
async fn the_go_example_sends_each_event_once_over_an_unreliable_connection() {
    let Some(go) = installed("go") else { return };
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("send_events");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(documented("send_events.go"));
    // The example has no module and no dependency. The first build compiles the standard library, which takes a minute.
    build.envs([("GO111MODULE", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    let build = tokio::process::Command::from(build).kill_on_drop(true).output();
    let output = testkit::within(BUILD_DEADLINE, "go build", build).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_example(Command::new(program)).await;
}

#[tokio::test]
async fn vector_sends_all_lines_of_a_file() {
    let Some(vector) = installed("vector") else { return };
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let lines: Vec<_> = (0..4997).map(|n| format!("line {n}")).collect();
    std::fs::write(installation.path("input.log"), lines.join("\n") + "\n").unwrap();
    // Another file with the same first line, and a line above the default maximum of Vector.
    let long = "x".repeat(200_000);
    std::fs::write(installation.path("other.log"), format!("line 0\n{long}\nlast\n")).unwrap();
    std::fs::create_dir(installation.path("storage")).unwrap();
    let mut command = Command::new(vector);
    command.arg("--config").arg(documented("vector.yaml"));
    command.env("SVC_BASE_URL", &run.run_file.base_url).env("SVC_API_KEY", api_key(&run).await);
    command.env("SOURCE_ID", "fw-1").env("LOG_FILES", installation.path("*.log"));
    command.env("STORAGE", installation.path("storage"));
    command.env("VECTOR_DANGEROUSLY_ALLOW_ENV_VAR_INTERPOLATION", "true");
    let mut process = Process::start(&mut command, &installation.path("output"));
    let mut stream = EventStream::connect(&run.run_file.nats_url).await;
    wait_until("all lines are stored", async || {
        process.expect_running();
        (stream.count().await >= 5000).then_some(())
    })
    .await;
    let ids = stream.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (5000, Some(&1)));
}

/// A line that is not a valid event.
fn invalid_line(n: usize) -> Vec<u8> {
    match n % 4 {
        0 => format!("{n} no json").into_bytes(),
        1 => [b"{\"source_id\":\"fw\",\"n\":\"\xff", n.to_string().as_bytes(), b"\"}"].concat(),
        2 => json!({ "n": n }).to_string().into_bytes(),
        _ => json!({ "source_id": "fw", "n": n, "padding": "x".repeat(300_000) }).to_string().into_bytes(),
    }
}

/// Runs a shipper with a file of which one percent is invalid, over a proxy that rejects requests for some seconds, and then loses a
/// response. Then the file gets lines that together exceed a request, and an event.
async fn check_shipper(large: usize, program: impl FnOnce(&Installation) -> Command) {
    const LINES: usize = 5000;
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let proxy = UnreliableProxy::start(&run.run_file.base_url, 5).await;
    let is_invalid = |n: usize| n % 100 == 50;
    let line = |n| {
        if is_invalid(n) {
            invalid_line(n / 100)
        } else {
            json!({ "source_id": "fw", "n": n }).to_string().into_bytes()
        }
    };
    let lines: Vec<_> = (0..LINES).map(line).collect();
    let input = installation.path("events.ndjson");
    std::fs::write(&input, [lines.join(&b'\n'), b"\n".to_vec()].concat()).unwrap();
    std::fs::create_dir(installation.path("storage")).unwrap();
    let admin = ApiUser::first_admin(&run.run_file).await;
    let key: Value = admin.client.post("/api-keys", &json!({ "name": "producer" })).await.expect(201);
    let mut command = program(&installation);
    command.env("SVC_BASE_URL", &proxy.endpoint).env("SVC_API_KEY", key["key"].as_str().unwrap());
    command.env("LOG_FILE", &input).env("STORAGE", installation.path("storage"));
    let mut process = Process::start(&mut command, &installation.path("output"));
    let mut stream = EventStream::connect(&run.run_file.nats_url).await;
    let mut stored = async |count: usize| {
        wait_until("all valid lines are stored", async || {
            process.expect_running();
            (stream.count().await >= count as u64).then_some(())
        })
        .await;
        stream.event_ids().await
    };
    let ids = stored(LINES / 100 * 99).await;
    assert_eq!((ids.len(), ids.values().max()), (LINES / 100 * 99, Some(&1)));
    let sent = lines.iter().enumerate().filter(|(n, _)| is_invalid(*n));
    let expected: Vec<_> = sent.flat_map(|(_, line)| parts(line)).collect();
    expect_quarantined(&admin, expected.clone()).await;

    let large: Vec<_> = (0..large).map(|n| invalid_line(4 * (LINES + n) + 3)).collect();
    let mut file = std::fs::OpenOptions::new().append(true).open(&input).unwrap();
    let last = b"{\"source_id\":\"fw\",\"event_id\":\"last\"}".to_vec();
    let added = [&large[..], &[last, Vec::new()]].concat();
    std::io::Write::write_all(&mut file, &added.join(&b'\n')).unwrap();
    assert!(stored(LINES / 100 * 99 + 1).await.contains_key("last"));
    let large = large.iter().flat_map(|line| parts(line));
    expect_quarantined(&admin, expected.into_iter().chain(large).collect()).await;
}

/// Returns the parts in which an item is quarantined.
fn parts(item: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    item.chunks(256 * 1024).map(<[u8]>::to_vec)
}

/// Expects that the quarantine contains exactly these items and parts of items, in any order.
async fn expect_quarantined(admin: &ApiUser, mut expected: Vec<Vec<u8>>) {
    let mut quarantined = Vec::new();
    let mut query = "?limit=200".to_owned();
    loop {
        let page: Page<DeadLetter> =
            admin.client.get(&format!("/events/quarantine{query}")).await.expect(200);
        quarantined.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        query = format!("?limit=200&cursor={cursor}");
    }
    let mut bytes = Vec::new();
    for letter in &quarantined {
        let path = format!("/events/quarantine/{}", letter.sequence);
        let details = admin.client.get(&path).await.expect::<DeadLetter>(200).quarantine.unwrap();
        bytes.push(BASE64.decode(details.payload.unwrap().as_bytes()).unwrap());
    }
    bytes.sort_unstable();
    expected.sort_unstable();
    assert!(bytes == expected, "{} of {} invalid lines are quarantined", bytes.len(), expected.len());
}

#[tokio::test]
async fn syslog_ng_loses_no_line_and_does_not_stop_if_one_percent_of_the_lines_are_invalid() {
    let Some(syslog_ng) = installed("syslog_ng") else { return };
    check_shipper(40, |installation| {
        let mut command = Command::new(syslog_ng);
        command
            .args(["--foreground", "--no-caps", "--stderr", "--cfgfile"])
            .arg(documented("syslog-ng.conf"));
        for (option, file) in [("--persist-file", "persist"), ("--control", "control"), ("--pidfile", "pid")]
        {
            command.arg(option).arg(installation.path(file));
        }
        command
    })
    .await;
}

#[tokio::test]
async fn rsyslog_loses_no_line_and_does_not_stop_if_one_percent_of_the_lines_are_invalid() {
    let Some(rsyslog) = installed("rsyslog") else { return };
    // Few large lines, because the shell reads each byte by itself.
    check_shipper(15, |installation| rsyslog_command(&rsyslog, installation)).await;
}

/// rsyslog with the recipe. The directories of its senders are removed with the installation.
fn rsyslog_command(rsyslog: &Path, installation: &Installation) -> Command {
    let mut command = Command::new(rsyslog);
    command.arg("-n").arg("-i").arg(installation.path("pid")).arg("-f").arg(documented("rsyslog.conf"));
    command.env("SENDER", documented("rsyslog.sh")).env("TMPDIR", installation.path(""));
    command
}

#[tokio::test]
async fn rsyslog_stops_and_loses_no_line_when_it_is_stopped_and_killed_during_an_outage() {
    // More than the queue holds.
    const LINES: usize = 12_000;
    let Some(rsyslog) = installed("rsyslog") else { return };
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let outage = UnreliableProxy::start(&run.run_file.base_url, usize::MAX).await;
    let key = api_key(&run).await;
    let input = installation.path("events.ndjson");
    let line = |n: usize| json!({ "source_id": "fw", "event_id": format!("e-{n}") }).to_string() + "\n";
    std::fs::write(&input, (0..LINES).map(line).collect::<Vec<_>>().concat()).unwrap();
    std::fs::create_dir(installation.path("storage")).unwrap();
    let start = |endpoint: &str| {
        let mut command = rsyslog_command(&rsyslog, &installation);
        command.env("SVC_BASE_URL", endpoint).env("SVC_API_KEY", &key);
        command.env("LOG_FILE", &input).env("STORAGE", installation.path("storage"));
        Process::start(&mut command, &installation.path("rsyslog"))
    };
    for signal in [Signal::TERM, Signal::KILL] {
        let before = outage.requests.load(Ordering::Relaxed);
        let mut process = start(&outage.endpoint);
        wait_until("rsyslog sends its lines again", async || {
            process.expect_running();
            (outage.requests.load(Ordering::Relaxed) > before + 1).then_some(())
        })
        .await;
        let tree = descendants(process.pid());
        assert!(tree.len() > 1, "rsyslog has no sender");
        if signal == Signal::KILL {
            for pid in &tree {
                kill(*pid, signal);
            }
        } else {
            process.signal(signal);
        }
        // With SIGTERM, rsyslog 8.2302 can end with a segmentation fault. Its queue is complete.
        process.wait().await;
        wait_until("the senders exit", async || tree.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
    }
    let mut file = std::fs::OpenOptions::new().append(true).open(&input).unwrap();
    std::io::Write::write_all(&mut file, line(LINES).as_bytes()).unwrap();
    let mut process = start(&run.run_file.base_url);
    let mut stream = EventStream::connect(&run.run_file.nats_url).await;
    wait_until("all lines are stored", async || {
        process.expect_running();
        (stream.count().await > LINES as u64).then_some(())
    })
    .await;
    let ids = stream.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (LINES + 1, Some(&1)));
}

#[tokio::test]
async fn dropping_a_batch_of_the_transport_stops_its_requests() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new(api_key(&run).await)),
        ..HttpTransportConfig::new(&run.run_file.base_url)
    });
    let events: Vec<_> = (0..20_000).map(|_| UdmEvent::new("fw")).collect();
    let first_response = tokio::sync::Notify::new();
    let send = transport.send_batch_with_progress(&events, |_| first_response.notify_one());
    tokio::select! {
        biased;
        () = first_response.notified() => {}
        result = send => panic!("the batch was not dropped: {} accepted", result.successful_events),
    }
    // The system has handled everything that was sent before this event, except for a request in flight.
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    let stored = EventStream::connect(&run.run_file.nats_url).await.count().await;
    assert!((1001..=2001).contains(&stored), "{stored}");
}

#[tokio::test]
async fn a_thousand_concurrent_sends_stay_below_the_connections_of_an_address() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let without_response = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&without_response);
    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new(api_key(&run).await)),
        ..HttpTransportConfig::new(&run.run_file.base_url)
    })
    .on_request(move |request| {
        counted.fetch_add(usize::from(request.status.is_none()), Ordering::Relaxed);
    });
    let transport = Arc::new(transport);
    let mut sends = JoinSet::new();
    for _ in 0..1000 {
        let transport = Arc::clone(&transport);
        sends.spawn(async move { transport.send(&UdmEvent::new("fw")).await });
    }
    let results = sends.join_all().await;
    let failed: Vec<_> = results.iter().filter(|result| !result.success).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
    assert_eq!(without_response.load(Ordering::Relaxed), 0);
}
