//! Event producers that continue during an outage, and the event stream that they write to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_nats::jetstream::{self, stream::Stream};
use serde_json::{Value, json};
use testkit::{Client, TestResponse, join_all, wait_until, within};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PRODUCERS: usize = 3;
/// The limit for each response, also during an outage.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause of a producer after a request, per event.
const PAUSE: Duration = Duration::from_millis(10);
/// The start of the event ids of producers.
const PREFIX: &str = "producer-";
/// The number of events in a batch.
const BATCH: u32 = 20;
/// The number of messages that are read at the same time.
const READS: usize = 256;

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
    /// Starts producers of single events. Each event has its own id. A response must be 202, or 503 with `Retry-After`.
    pub fn start(client: &Client) -> Self {
        Self::spawn((0..PRODUCERS).map(|number| Producer::new(number, 1, std::slice::from_ref(client))))
    }

    /// Starts producers of single events and of batches, distributed among the clients. After an error, a producer continues with
    /// the next client.
    pub fn start_with_batches(clients: &[Client]) -> Self {
        let sizes = [1, 1, BATCH, BATCH];
        Self::spawn((0..).zip(sizes).map(|(number, size)| Producer::new(number, size, clients)))
    }

    fn spawn(producers: impl Iterator<Item = Producer>) -> Self {
        let counts = Arc::new(Counts::default());
        let tasks = producers.map(|producer| producer.run(Arc::clone(&counts))).collect();
        Self { counts, tasks }
    }

    /// Waits until `more` additional events are acknowledged.
    pub async fn wait_for_acknowledged(&mut self, more: usize) {
        let target = self.counts.acknowledged.load(Relaxed) + more;
        self.wait("events are acknowledged", |counts| counts.acknowledged.load(Relaxed) >= target).await;
    }

    /// The number of rejected requests.
    pub fn rejected(&self) -> usize {
        self.counts.rejected.load(Relaxed)
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

    /// Stops the producers when each event is acknowledged. Returns the ids of all events.
    pub async fn stop(mut self) -> Vec<String> {
        self.counts.stop.store(true, Relaxed);
        let mut ids = Vec::new();
        while let Some(finished) = self.tasks.join_next().await {
            ids.extend(finished.unwrap());
        }
        ids
    }
}

struct Producer {
    number: usize,
    /// The number of events in a request.
    size: u32,
    clients: Vec<Client>,
}

impl Producer {
    fn new(number: usize, size: u32, clients: &[Client]) -> Self {
        Self { number, size, clients: clients.to_vec() }
    }

    async fn run(self, counts: Arc<Counts>) -> Vec<String> {
        let (mut acknowledged, mut waiting) = (Vec::new(), Vec::new());
        let mut clients = self.clients.iter().cycle().skip(self.number);
        let mut client = clients.next().unwrap();
        loop {
            while waiting.len() < self.size as usize && !counts.stop.load(Relaxed) {
                waiting.push(format!("{PREFIX}{}-{}", self.number, acknowledged.len() + waiting.len()));
            }
            if waiting.is_empty() {
                return acknowledged;
            }
            let rejected = if self.size == 1 {
                send_event(client, &waiting[0]).await
            } else {
                send_batch(client, &waiting).await
            };
            let accepted: Vec<_> = waiting.extract_if(.., |id| !rejected.contains(id)).collect();
            counts.acknowledged.fetch_add(accepted.len(), Relaxed);
            acknowledged.extend(accepted);
            if !rejected.is_empty() {
                counts.rejected.fetch_add(1, Relaxed);
                client = clients.next().unwrap();
            }
            sleep(PAUSE * self.size).await;
        }
    }
}

/// Sends an event. Returns the rejected ids.
async fn send_event(client: &Client, id: &str) -> Vec<String> {
    let event = json!({ "source_id": "s", "event_id": id });
    let response = within(RESPONSE_TIMEOUT, "an event", client.post("/events", &event)).await;
    if response.status == 202 {
        return Vec::new();
    }
    expect_unavailable(&response);
    vec![id.to_owned()]
}

/// Sends a batch. Returns the rejected ids.
async fn send_batch(client: &Client, ids: &[String]) -> Vec<String> {
    let events: Vec<_> = ids.iter().map(|id| json!({ "source_id": "s", "event_id": id })).collect();
    let response = within(RESPONSE_TIMEOUT, "a batch", client.post("/events/batch", &events)).await;
    let body = response.json();
    let Some(results) = body["results"].as_array() else {
        expect_unavailable(&response);
        return ids.to_vec();
    };
    let rejected = results.iter().filter(|result| result["status"] != "accepted");
    let rejected: Vec<_> =
        rejected.inspect(|result| assert_eq!(result["retryable"], true, "{response}")).collect();
    let status = match rejected.len() {
        0 => 202,
        all if all == ids.len() => 503,
        _ => 207,
    };
    assert_eq!(response.status, status, "{response}");
    assert_eq!(response.headers.contains_key("retry-after"), status != 202, "{response}");
    let id = |result: &Value| result["event_id"].as_str().unwrap().to_owned();
    rejected.into_iter().map(id).collect()
}

/// Sends new events and batches at the same time. Each response must be 503 with `Retry-After`.
pub async fn expect_rejected_events(client: &Client, name: &str) {
    let requests = (0..4).map(async |number| {
        let ids: Vec<_> = (0..BATCH).map(|index| format!("{name}-{number}-{index}")).collect();
        if number % 2 == 0 {
            assert_eq!(send_event(client, &ids[0]).await, ids[..1]);
        } else {
            assert_eq!(send_batch(client, &ids).await, ids);
        }
    });
    join_all(requests).await;
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
        let sequences: Vec<_> = (state.first_sequence..=state.last_sequence).collect();
        let mut ids = HashMap::new();
        for chunk in sequences.chunks(READS) {
            for message in join_all(chunk.iter().map(|sequence| self.0.get_raw_message(*sequence))).await {
                let id = message.unwrap().headers.get("ce-id").unwrap().to_string();
                *ids.entry(id).or_default() += 1;
            }
        }
        ids
    }

    /// Expects that the events of producers in the stream are exactly the acknowledged ones, and that the stream contains no event twice.
    pub async fn expect_each_once(&mut self, acknowledged: &[String]) {
        let ids = self.event_ids().await;
        let duplicates: Vec<_> = ids.iter().filter(|(_, count)| **count > 1).collect();
        assert!(duplicates.is_empty(), "{duplicates:?}");
        let stored: HashSet<_> = ids.into_keys().filter(|id| id.starts_with(PREFIX)).collect();
        let acknowledged: HashSet<_> = acknowledged.iter().cloned().collect();
        let lost: Vec<_> = acknowledged.difference(&stored).collect();
        let total = acknowledged.len();
        assert!(lost.is_empty(), "{} of {total} acknowledged events are lost: {lost:?}", lost.len());
        let others: Vec<_> = stored.difference(&acknowledged).collect();
        assert!(others.is_empty(), "{} events are not acknowledged: {others:?}", others.len());
    }
}
