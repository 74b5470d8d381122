//! Faults of the stream, of processes and of clients, with events under load: the stream contains each acknowledged event once.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use async_nats::jetstream;
use bus::EventSubject;
use contract::paths::Upstream;
use e2e::{ApiUser, EventStream, Process, Producers, Service, Services, api_client, expect_rejected_events};
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Client, join_all, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

const BATCH: usize = 200;
/// The memory limit of a pod of ingest (`ingest.resources` in helm/svc/values.yaml).
const MEMORY_LIMIT_KIB: u64 = 512 * 1024;
const MIB: usize = 1024 * 1024;

/// All services, and a user.
struct System {
    services: Services,
    session: Service,
    ingest: Service,
    user: ApiUser,
    identity: Service,
}

impl System {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The variables are for identity and ingest.
    async fn start_with(variables: &[(&str, &str)]) -> Self {
        let services = Services::prepare().await;
        services.migrate_all().await;
        let [identity, session, ingest] = services.start_all(variables).await;
        let base_url = format!("http://{}", identity.address);
        let user = ApiUser::create_acme(&base_url, &services.platform_token, "ada@acme.example").await;
        Self { services, session, ingest, user, identity }
    }

    fn client(&self) -> Client {
        self.client_of(&self.user)
    }

    fn client_of(&self, user: &ApiUser) -> Client {
        api_client(&format!("http://{}", self.ingest.address)).bearer(&user.token)
    }

    async fn create_tenant(&self, tenant: &str) -> ApiUser {
        let base_url = format!("http://{}", self.identity.address);
        ApiUser::create_tenant(&base_url, &self.services.platform_token, tenant, "a@b.example").await
    }

    async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(bus::connect(&bus::Config::new(&self.services.nats.url, "e2e")).await.unwrap())
    }

    async fn stop_and_check(&self, producers: Producers) {
        let acknowledged = producers.stop().await;
        self.stream().await.expect_each_once(&acknowledged).await;
    }

    async fn stream(&self) -> EventStream {
        EventStream::connect(&self.services.nats.url).await
    }

    /// Sends a request without waiting for a response. Only the first `length` bytes of the body are sent. The request ends when
    /// the connection is dropped.
    async fn send_without_response(&self, user: &ApiUser, body: &str, length: usize) -> TcpStream {
        let mut connection = TcpStream::connect(self.ingest.address).await.unwrap();
        let head = format!(
            "POST /api/v1/events/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            user.token,
            body.len()
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        // A request that is rejected early can be closed before it is complete.
        let _ = connection.write_all(&body.as_bytes()[..length]).await;
        connection
    }
}

fn batch(name: &str) -> Vec<Value> {
    (0..BATCH).map(|number| json!({ "source_id": "s", "event_id": format!("{name}-{number}") })).collect()
}

#[tokio::test]
async fn a_full_stream_rejects_events_until_it_has_space() {
    let variables = [("SVC_STREAM_MAX_BYTES", "8MiB"), ("SVC_TENANT_STREAM_SHARE", "100")];
    let system = System::start_with(&variables).await;
    let client = system.client();
    let mut producers = Producers::start_with_batches(&[system.client()]);
    producers.wait_for_acknowledged(50).await;
    for size in [200_000, 20_000, 2_000] {
        let event = json!({ "source_id": "s", "padding": "x".repeat(size) });
        let rejected = wait_until("the stream is full", async || {
            Some(client.post("/events", &event).await).filter(|response| response.status != 202)
        });
        rejected.await.expect_problem(503, "stream_full");
    }
    producers.wait_for_rejected(10).await;

    let context = system.jetstream().await;
    let mut config = context.get_stream("UDM").await.unwrap().cached_info().config.clone();
    config.max_bytes *= 2;
    context.update_stream(config).await.unwrap();
    producers.wait_for_acknowledged(100).await;
    system.stop_and_check(producers).await;
}

#[tokio::test]
async fn without_session_events_get_503_until_it_is_restarted() {
    let mut system = System::start().await;
    let client = system.client();
    let mut producers = Producers::start_with_batches(&[system.client()]);
    producers.wait_for_acknowledged(50).await;
    system.session.process.signal(Signal::KILL);
    system.session.process.wait().await;
    producers.wait_for_rejected(10).await;
    expect_rejected_events(&client, "meanwhile").await;
    system.session = system.services.start(Upstream::Session);
    producers.wait_for_acknowledged(50).await;
    system.stop_and_check(producers).await;
}

/// Sends batches one after the other until the connection breaks. Returns the acknowledged ones and the last one.
async fn send_until_broken(client: Client, name: String) -> (Vec<Vec<Value>>, Vec<Value>) {
    let mut acknowledged = Vec::new();
    loop {
        let next = batch(&format!("{name}-{}", acknowledged.len()));
        match client.request(Method::POST, "/events/batch").json(&next).send().await {
            Ok(response) => assert_eq!(response.status(), 202),
            Err(_) => return (acknowledged, next),
        }
        acknowledged.push(next);
    }
}

#[tokio::test]
async fn after_a_kill_of_ingest_acknowledged_batches_are_stored_and_repeated_ones_are_stored_once() {
    let mut system = System::start().await;
    let mut all = HashSet::new();
    for round in 0..2 {
        let mut senders: JoinSet<_> =
            (0..4).map(|sender| send_until_broken(system.client(), format!("{round}-{sender}"))).collect();
        let mut stream = system.stream().await;
        let before = stream.count().await;
        wait_until("batches are stored", async || (stream.count().await > before + 1000).then_some(())).await;
        system.ingest.process.signal(Signal::KILL);
        system.ingest.process.wait().await;
        system.ingest = system.services.start(Upstream::Ingest);
        system.ingest.wait_until_ready().await;
        let client = system.client();
        while let Some(sent) = senders.join_next().await {
            let (acknowledged, last) = sent.unwrap();
            for batch in &acknowledged {
                let response: Value = client.post("/events/batch", batch).await.expect(202);
                let results = response["results"].as_array().unwrap();
                assert!(results.iter().all(|result| result["duplicate"] == true), "{response}");
            }
            client.post("/events/batch", &last).await.expect::<Value>(202);
            let events = acknowledged.iter().flatten().chain(&last);
            all.extend(events.map(|event| event["event_id"].as_str().unwrap().to_owned()));
        }
    }
    let stored = system.stream().await.event_ids().await;
    assert_eq!((stored.len(), stored.values().max()), (all.len(), Some(&1)));
    assert!(all.iter().all(|id| stored.contains_key(id)));
}

/// A proxy that closes the connection instead of every second response. Returns its address.
async fn start_lossy_proxy(target: SocketAddr, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tasks.spawn(async move {
        let mut responses = 0;
        // The client sends one request after the other.
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(target).await.unwrap();
            let _ = forward(client, server, &mut responses).await;
        }
    });
    endpoint
}

async fn forward(mut client: TcpStream, mut server: TcpStream, responses: &mut usize) -> std::io::Result<()> {
    let (mut request, mut response) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut waiting = false;
    loop {
        tokio::select! {
            count = client.read(&mut request) => {
                let count = count?;
                server.write_all(&request[..count]).await?;
                waiting = true;
                if count == 0 {
                    return Ok(());
                }
            }
            count = server.read(&mut response) => {
                let count = count?;
                *responses += usize::from(waiting);
                if count == 0 || (waiting && *responses % 2 == 1) {
                    return Ok(());
                }
                waiting = false;
                client.write_all(&response[..count]).await?;
            }
        }
    }
}

#[tokio::test]
async fn events_are_stored_once_if_the_response_to_each_first_attempt_is_lost() {
    let system = System::start().await;
    let mut tasks = JoinSet::new();
    let endpoint = start_lossy_proxy(system.ingest.address, &mut tasks).await;
    let api_key = Some(Secret::new(&system.user.token));
    let transport = HttpTransport::new(HttpTransportConfig { api_key, ..HttpTransportConfig::new(endpoint) });
    for number in 0..10 {
        let sent = transport.send(&UdmEvent::new("s").with_event_id(format!("single-{number}"))).await;
        assert!(sent.success, "{sent:?}");
    }
    let batch: Vec<_> = (0..2500).map(|id| UdmEvent::new("s").with_event_id(format!("b-{id}"))).collect();
    let sent = transport.send_batch(&batch).await;
    assert!(sent.success && sent.successful_events == 2500, "{:?}", sent.results.first());
    // Each attempt takes its messages a second time: the first one is stored, the second one is a duplicate.
    let duplicates = system.ingest.metric(r#"svc_publish_messages_total{stream="UDM",outcome="duplicate"}"#);
    assert!((duplicates.await - 2510.0).abs() < 0.5);
    let stored = system.stream().await.event_ids().await;
    assert_eq!((stored.len(), stored.values().max()), (2510, Some(&1)));
}

#[tokio::test]
async fn slow_clients_and_clients_that_disconnect_do_not_affect_others() {
    let system = System::start().await;
    let mut producers = Producers::start_with_batches(&[system.client()]);
    let text = |name: String| serde_json::to_string(&batch(&name)).unwrap();
    let (complete, incomplete): (Vec<_>, Vec<_>) =
        (0..20).map(|n| (text(format!("complete-{n}")), text(format!("incomplete-{n}")))).unzip();
    for (complete, incomplete) in complete.iter().zip(&incomplete) {
        drop(system.send_without_response(&system.user, complete, complete.len()).await);
        drop(system.send_without_response(&system.user, incomplete, incomplete.len() - 1).await);
    }
    let slow = (0..20).map(async |number| {
        let body = text(format!("slow-{number}"));
        // Under load, a complete request can get 503: the client repeats it.
        wait_until("a slow request is accepted", async || {
            let mut connection = system.send_without_response(&system.user, &body, 0).await;
            for part in body.as_bytes().chunks(body.len() / 10) {
                tokio::time::sleep(Duration::from_millis(50)).await;
                connection.write_all(part).await.unwrap();
            }
            let mut response = String::new();
            connection.read_to_string(&mut response).await.unwrap();
            let status = response.split(' ').nth(1).unwrap_or_default().to_owned();
            assert!(["202", "503"].contains(&&*status), "{response}");
            (status == "202").then_some(())
        })
        .await;
    });
    join_all(slow).await;
    producers.wait_for_acknowledged(100).await;
    for body in complete {
        system.client().post_bytes("/events/batch", "application/json", body).await.expect::<Value>(202);
    }
    system.stop_and_check(producers).await;
    for gauge in ["svc_publish_in_flight_messages", "svc_publish_in_flight_bytes"] {
        let in_flight = system.ingest.metric(&format!(r#"{gauge}{{stream="UDM"}}"#)).await;
        assert!(in_flight.abs() < 0.5, "{gauge}: {in_flight}");
    }
    let stored = system.stream().await.event_ids().await;
    let of = |name: &str| stored.keys().filter(|id| id.starts_with(name)).count();
    assert_eq!((of("complete-"), of("slow-"), of("incomplete-")), (20 * BATCH, 20 * BATCH, 0));
}

#[tokio::test]
async fn any_source_id_is_stored_unchanged_or_rejected() {
    let system = System::start().await;
    let client = system.client();
    let long = ["x".repeat(256), "😀".repeat(64), "\\".repeat(256), "%".repeat(256)];
    let valid = [
        "*",
        ">",
        "a.>",
        "udm.v1.>",
        "$JS.API.STREAM.DELETE.UDM",
        "_INBOX.x",
        "a b",
        " a",
        "..",
        "../../etc/passwd",
        "%0d%0aNats-Rollup: all",
        "Nats-Msg-Id: x",
        "'; drop table events; --",
        "\"\\\"",
        "{{1}}",
        "<b>",
        "ä\u{202e}😀",
    ];
    let valid: Vec<_> = valid.into_iter().chain(long.iter().map(String::as_str)).collect();
    let events: Vec<_> = valid.iter().map(|source| json!({ "source_id": source, "event_id": "1" })).collect();
    let (single, rest) = events.split_at(events.len() / 2);
    for event in single {
        client.post("/events", event).await.expect::<Value>(202);
    }
    client.post("/events/batch", &rest).await.expect::<Value>(202);
    let too_long = "x".repeat(257);
    for source in ["", " ", "a\nb", "a\r\nNats-Rollup: all", "a\0", "\u{7f}", &too_long] {
        let event = json!({ "source_id": source });
        client.post("/events", &event).await.expect_problem(422, "validation_failed");
        let result: Value = client.post("/events/batch", &[event]).await.expect(422);
        assert_eq!(result["results"][0]["code"], "validation_failed", "{result}");
    }

    let stream = system.jetstream().await.get_stream("UDM").await.unwrap();
    let mut headers = HashSet::new();
    for (sequence, event) in (1..).zip(&events) {
        let message = stream.get_raw_message(sequence).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&message.payload).unwrap(), *event);
        message.subject.parse::<EventSubject>().unwrap();
        let source = message.headers.get("ce-source").unwrap().to_string();
        assert!(source.chars().all(|char| char.is_ascii_graphic()), "{source}");
        headers.insert(source);
        assert_eq!(message.headers.len(), 10, "{:?}", message.headers);
    }
    assert_eq!((headers.len(), system.stream().await.count().await), (events.len(), events.len() as u64));
}

/// The highest memory use of a process so far in KiB.
fn peak_memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn large_bodies_of_several_tenants_take_less_memory_than_the_limit_of_a_pod() {
    let mut system = System::start().await;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; 100 * MIB]).unwrap();
    let bomb = encoder.finish().unwrap();
    let large = " ".repeat(10 * MIB);
    let users = join_all(["a-1", "a-2", "a-3", "a-4", "a-5"].map(|name| system.create_tenant(name))).await;
    let attacks = users.iter().flat_map(|user| (0..8).map(move |_| user)).map(async |user| {
        let unfinished = system.send_without_response(user, &large, large.len() - 1).await;
        let client = system.client_of(user).header("Content-Encoding", "gzip");
        let response = client.post_bytes("/events/batch", "application/json", bomb.clone()).await;
        // 408 if the process is so busy that the body takes too long, 503 while the budget of the tenant is used.
        assert!([408, 413, 503].contains(&response.status), "{response}");
        unfinished
    });
    drop(join_all(attacks).await);
    for user in &users {
        let client = system.client_of(user);
        let batch = batch(&user.user_id);
        wait_until("a batch is accepted", async || {
            (client.post("/events/batch", &batch).await.status == 202).then_some(())
        })
        .await;
    }
    system.ingest.process.expect_running();
    let peak = peak_memory(&system.ingest.process);
    assert!(peak < MEMORY_LIMIT_KIB, "{peak} KiB");
    let stored = system.stream().await.event_ids().await;
    assert_eq!((stored.len(), stored.values().max()), (users.len() * BATCH, Some(&1)));
}
