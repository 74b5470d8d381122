//! Event producers that continue during an outage, and the event stream that they write to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_nats::jetstream::{self, stream::Stream};
use serde_json::json;
use testkit::{Client, TestResponse, wait_until, within};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PRODUCERS: usize = 3;
/// The limit for each response, also during an outage.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause of a producer between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Producers that send each event until it is acknowledged.
pub struct Producers {
    counts: Arc<Counts>,
    tasks: JoinSet<Vec<String>>,
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicUsize,
    rejected: AtomicUsize,
    stop: AtomicBool,
}

impl Producers {
    /// Starts the producers. Each event has its own id. A response must be 202, or 503 with `Retry-After`.
    pub fn start(client: &Client) -> Self {
        let counts = Arc::new(Counts::default());
        let tasks =
            (0..PRODUCERS).map(|number| produce(number, client.clone(), Arc::clone(&counts))).collect();
        Self { counts, tasks }
    }

    /// Waits until `more` additional events are acknowledged.
    pub async fn wait_for_acknowledged(&mut self, more: usize) {
        let target = self.counts.acknowledged.load(Relaxed) + more;
        self.wait("events are acknowledged", |counts| counts.acknowledged.load(Relaxed) >= target).await;
    }

    /// Waits until `more` additional requests are rejected.
    pub async fn wait_for_rejected(&mut self, more: usize) {
        let target = self.counts.rejected.load(Relaxed) + more;
        self.wait("events are rejected", |counts| counts.rejected.load(Relaxed) >= target).await;
    }

    async fn wait(&mut self, what: &str, condition: impl Fn(&Counts) -> bool) {
        wait_until(what, async || {
            // A producer exits early only by a panic.
            if let Some(finished) = self.tasks.try_join_next() {
                finished.unwrap();
            }
            condition(&self.counts).then_some(())
        })
        .await;
    }

    /// Stops the producers. Returns the ids of all acknowledged events.
    pub async fn stop(mut self) -> Vec<String> {
        self.counts.stop.store(true, Relaxed);
        let mut ids = Vec::new();
        while let Some(finished) = self.tasks.join_next().await {
            ids.extend(finished.unwrap());
        }
        ids
    }
}

async fn produce(number: usize, client: Client, counts: Arc<Counts>) -> Vec<String> {
    let mut ids = Vec::new();
    while !counts.stop.load(Relaxed) {
        let id = format!("{number}-{}", ids.len());
        let event = json!({ "source_id": "s", "event_id": id });
        let response = within(RESPONSE_TIMEOUT, "an event", client.post("/events", &event)).await;
        if response.status == 202 {
            ids.push(id);
            counts.acknowledged.fetch_add(1, Relaxed);
        } else {
            expect_unavailable(&response);
            counts.rejected.fetch_add(1, Relaxed);
        }
        sleep(PAUSE).await;
    }
    ids
}

/// Expects a problem document with status 503 and `Retry-After`.
#[track_caller]
fn expect_unavailable(response: &TestResponse) {
    assert_eq!(response.status, 503, "{response}");
    let code = response.json()["code"].as_str().unwrap_or_default().to_owned();
    response.expect_problem(503, &code);
    assert!(response.headers.contains_key("retry-after"), "{response}");
}

/// The stream `UDM`.
pub struct EventStream(Stream);

impl EventStream {
    /// Connects as the administrator of the broker.
    pub async fn connect(nats_url: &str) -> Self {
        let client = bus::connect(&bus::Config::new(nats_url, "e2e")).await.unwrap();
        Self(jetstream::new(client).get_stream("UDM").await.unwrap())
    }

    /// The number of messages.
    pub async fn count(&mut self) -> u64 {
        self.0.info().await.unwrap().state.messages
    }

    /// The number of messages by event id.
    pub async fn event_ids(&mut self) -> HashMap<String, usize> {
        let state = self.0.info().await.unwrap().state.clone();
        let mut ids = HashMap::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = self.0.get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("ce-id").unwrap().to_string();
            *ids.entry(id).or_default() += 1;
        }
        ids
    }
}
