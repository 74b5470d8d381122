//! Reading events over HTTP from real processes: a shutdown of ingest ends the streams at once, and the client continues.

use std::time::Duration;

use contract::paths::Upstream;
use e2e::{ApiUser, Service, Services, api_client};
use reqwest::{Method, Response};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Client, within};

const LIMIT: Duration = Duration::from_mins(1);
/// Less than the time for responses in flight (25 s).
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

async fn send(client: &Client, id: &str) {
    let event = json!({ "source_id": "fw", "event_id": id });
    client.post("/events", &event).await.expect::<Value>(202);
}

/// Opens a stream and waits for its start.
async fn open(client: &Client, after: &str) -> (Response, String) {
    let request = client.request(Method::GET, &format!("/events/stream{after}"));
    let mut response = within(LIMIT, "the response", request.send()).await.unwrap();
    assert_eq!(response.status(), 200);
    let text = read_until(&mut response, "event: position").await;
    (response, text)
}

/// Reads until the text is received. Returns everything that was received.
async fn read_until(response: &mut Response, expected: &str) -> String {
    let mut text = String::new();
    while !text.contains(expected) || !text.ends_with("\n\n") {
        let chunk = within(LIMIT, expected, response.chunk()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

#[tokio::test]
async fn shutdown_of_ingest_ends_streams_at_once_and_the_next_process_continues_them() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let mut identity = services.start(Upstream::Identity);
    let mut session = services.start(Upstream::Session);
    let mut ingest = services.start(Upstream::Ingest);
    for service in [&mut identity, &mut session, &mut ingest] {
        service.wait_until_ready().await;
    }
    let url = |service: &Service| format!("http://{}", service.address);
    let admin = ApiUser::create_acme(&url(&identity), &services.platform_token, "admin@acme.example").await;
    let client = api_client(&url(&ingest)).bearer(&admin.token);

    let (mut stream, _) = open(&client, "").await;
    send(&client, "first").await;
    let text = read_until(&mut stream, r#""event_id":"first""#).await;
    let id =
        text.lines().rfind(|line| line.starts_with("id: ")).unwrap().trim_start_matches("id: ").to_owned();

    ingest.process.signal(Signal::TERM);
    let status = within(SHUTDOWN_LIMIT, "the shutdown", ingest.process.wait()).await;
    assert!(status.success(), "{status}");
    while within(LIMIT, "the end", stream.chunk()).await.unwrap().is_some() {}

    let mut ingest = services.start(Upstream::Ingest);
    ingest.wait_until_ready().await;
    let client = api_client(&url(&ingest)).bearer(&admin.token);
    send(&client, "second").await;
    let (mut stream, start) = open(&client, &format!("?after={id}")).await;
    let text = start + &read_until(&mut stream, r#""event_id":"second""#).await;
    assert!(!text.contains("first") && !text.contains("event: gap"), "{text}");
}
