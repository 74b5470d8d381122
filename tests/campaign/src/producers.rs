//! Event producers: each sends numbered events until they are acknowledged, as a client with retries does. At the end of a round the
//! stream contains each number once, with the bytes that were sent.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::HeaderValue;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::{self, Message};
use futures::StreamExt as _;
use serde_json::Value;
use testkit::{Client, TestResponse};
use tokio::time::{sleep, timeout};

use crate::findings::Findings;
use crate::http::send;

/// Sizes of the requests of the producers of each tenant.
const SIZES: [usize; 3] = [1, 50, 1000];
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// After this time without faults, all events must be acknowledged. It is less than the duplicate window.
const RECOVERY: Duration = Duration::from_mins(1);

/// A producer and the numbers of its events that were acknowledged in this round.
pub(crate) struct Producer {
    pub(crate) name: String,
    pub(crate) tenant: &'static str,
    size: usize,
    clients: Vec<Client>,
    acknowledged: Range<u64>,
    load: Load,
}

/// Pauses of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The next request follows the response immediately.
    Full,
    /// After a response, the client waits for as long as the request took.
    Half,
}

impl Load {
    /// Waits after a request that took this time.
    pub(crate) async fn pause(self, time: Duration) {
        if self == Self::Half {
            sleep(time).await;
        }
    }
}

impl Producer {
    /// The producers of a tenant with an API key.
    pub(crate) fn of_tenant(tenant: &'static str, key: &str, urls: &[String], load: Load) -> Vec<Self> {
        let clients: Vec<_> = urls.iter().map(|url| Client::new(url).bearer(key)).collect();
        let producer = |size| Self {
            name: format!("{tenant}-{size}"),
            tenant,
            size,
            clients: clients.clone(),
            acknowledged: 0..0,
            load,
        };
        SIZES.into_iter().map(producer).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.acknowledged.end - self.acknowledged.start
    }

    /// Sends events until `stop` is set and each is acknowledged.
    pub(crate) async fn run(mut self, stop: Arc<AtomicBool>, findings: Arc<Findings>) -> Self {
        let mut next = self.acknowledged.end;
        self.acknowledged.start = next;
        let (mut waiting, mut stopped_at, mut last) = (Vec::new(), None, String::new());
        let clients = self.clients.clone();
        let mut clients = clients.iter().cycle();
        let mut client = clients.next();
        while let Some(target) = client {
            if stop.load(Relaxed) {
                if stopped_at.get_or_insert_with(Instant::now).elapsed() > RECOVERY {
                    findings.add(format!(
                        "{}: {} events are still not accepted {RECOVERY:?} after the last fault: {last}",
                        self.name,
                        waiting.len()
                    ));
                    waiting.clear();
                }
            } else {
                let missing = (self.size - waiting.len()) as u64;
                waiting.extend(next..next + missing);
                next += missing;
            }
            if waiting.is_empty() {
                break;
            }
            let before = waiting.len();
            let started = Instant::now();
            let response = findings.definite_events(self.send(target, &waiting).await);
            let time = started.elapsed();
            findings.record_time(&format!("requests with {} events", self.size), time);
            self.load.pause(time).await;
            if let Some(response) = response {
                self.remove_accepted(&response, &mut waiting, &findings);
                last = response.to_string();
            }
            if waiting.len() == before {
                sleep(RETRY_DELAY).await;
                client = clients.next();
            }
        }
        self.acknowledged.end = next;
        self
    }

    async fn send(&self, client: &Client, numbers: &[u64]) -> Option<TestResponse> {
        let events = numbers.iter().map(|number| event(&self.name, *number));
        let (path, body) = match self.size {
            1 => ("/events", events.collect()),
            _ => ("/events/batch", format!("[{}]", events.collect::<Vec<_>>().join(","))),
        };
        let request = client.request(reqwest::Method::POST, path);
        send(request.header("Content-Type", "application/json").body(body)).await
    }

    /// Keeps the numbers that were not accepted.
    fn remove_accepted(&self, response: &TestResponse, waiting: &mut Vec<u64>, findings: &Findings) {
        let body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let results = body["results"].as_array();
        match (response.status, results) {
            (202, _) => waiting.clear(),
            (207 | 503, Some(results)) => {
                let accepted = results.iter().filter(|result| result["status"] == "accepted");
                let accepted: HashSet<u64> =
                    accepted.filter_map(|result| result["event_id"].as_str()?.parse().ok()).collect();
                if results.iter().any(|result| result["status"] != "accepted" && result["retryable"] != true)
                {
                    findings.add(format!("{}: a valid event was rejected: {response}", self.name));
                }
                waiting.retain(|number| !accepted.contains(number));
            }
            (503, None) => {}
            _ => findings.add(format!("{}: a valid request was rejected: {response}", self.name)),
        }
    }
}

impl Findings {
    /// As [`Self::definite`], but a 503 response can contain accepted events.
    fn definite_events(&self, response: Option<TestResponse>) -> Option<TestResponse> {
        match response {
            Some(response) if response.status == 503 => {
                self.definite(None);
                Some(response)
            }
            response => self.definite(response),
        }
    }
}

/// The bytes of an event.
fn event(producer: &str, number: u64) -> String {
    let payload = format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(8);
    format!(r#"{{"source_id":"{producer}","event_id":"{number}","additional":{{"payload":"{payload}"}}}}"#)
}

/// Compares the stream with the acknowledged events of the round, and deletes its messages.
pub(crate) async fn check_stream(
    url: &str,
    producers: &[Producer],
    findings: &Findings,
) -> anyhow::Result<()> {
    let client = bus::connect(&bus::Config::new(url, "campaign")).await?;
    let mut stream = jetstream::new(client).get_stream("UDM").await?;
    let count = stream.info().await?.state.messages;
    let consumer = stream.create_consumer(OrderedConfig::default()).await?;
    let mut messages = consumer.messages().await?;
    let mut stored: HashMap<&str, Vec<u8>> = producers
        .iter()
        .map(|it| (it.name.as_str(), vec![0; usize::try_from(it.count()).unwrap_or(0)]))
        .collect();
    for _ in 0..count {
        let message = timeout(RECOVERY, messages.next()).await.context("the stream does not respond")?;
        let message = message.context("the consumer ended")??;
        let header =
            |name| message.headers.as_ref().and_then(|headers| headers.get(name)).map(HeaderValue::as_str);
        let (source, id) = (header("ce-source").unwrap_or_default(), header("ce-id").unwrap_or_default());
        let known = producers.iter().find(|producer| producer.name == source);
        let (Some(producer), Ok(number)) = (known, id.parse::<u64>()) else {
            findings.add(format!("the stream contains an event that no producer sent: {source} {id}"));
            continue;
        };
        check_message(producer, number, &message, findings);
        let index =
            number.checked_sub(producer.acknowledged.start).and_then(|index| usize::try_from(index).ok());
        match index.and_then(|index| stored.get_mut(source)?.get_mut(index)) {
            Some(times) => *times = times.saturating_add(1),
            None => findings.add(format!("the stream contains an event of another round: {source} {id}")),
        }
    }
    for producer in producers {
        for (number, times) in producer.acknowledged.clone().zip(&stored[producer.name.as_str()]) {
            if *times != 1 {
                findings.add(format!(
                    "{} {number}: acknowledged, and {times} times in the stream",
                    producer.name
                ));
            }
        }
    }
    stream.purge().await?;
    Ok(())
}

fn check_message(producer: &Producer, number: u64, message: &Message, findings: &Findings) {
    let name = &producer.name;
    if *message.payload != *event(name, number).as_bytes() {
        findings.add(format!("{name} {number}: the payload differs from the bytes that were sent"));
    }
    if message.subject.split('.').nth(3) != Some(producer.tenant) {
        findings.add(format!("{name} {number}: wrong tenant in the subject {}", message.subject));
    }
}
