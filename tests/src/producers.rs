//! Producers that go on through a fault, as patient ones do: each sends an event again until it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::{Client, TestResponse, wait_until, within};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

const COUNT: usize = 3;
/// No answer may take longer, whatever is broken.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Between two requests of one producer.
const PACE: Duration = Duration::from_millis(10);

/// Producers at work.
pub struct Producers {
    tally: Arc<Tally>,
    tasks: JoinSet<Vec<String>>,
}

#[derive(Default)]
struct Tally {
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
    enough: AtomicBool,
}

impl Producers {
    /// Each event has an id of its own. It is acknowledged with 202, or refused with a 503 that says when to come back; any
    /// other answer, and a late one, is a failure.
    pub fn start(client: &Client) -> Self {
        let tally = Arc::new(Tally::default());
        let tasks = (0..COUNT).map(|number| produce(number, client.clone(), Arc::clone(&tally))).collect();
        Self { tally, tasks }
    }

    /// Waits until so many more events were acknowledged.
    pub async fn until_acknowledged(&mut self, more: usize) {
        let aim = self.tally.acknowledged.load(Ordering::Relaxed) + more;
        self.wait_until("events are acknowledged", |tally| tally.acknowledged.load(Ordering::Relaxed) >= aim)
            .await;
    }

    /// Waits until so many more requests were refused.
    pub async fn until_refused(&mut self, more: usize) {
        let aim = self.tally.refused.load(Ordering::Relaxed) + more;
        self.wait_until("events are refused", |tally| tally.refused.load(Ordering::Relaxed) >= aim).await;
    }

    async fn wait_until(&mut self, what: &str, holds: impl Fn(&Tally) -> bool) {
        wait_until(what, async || {
            // A producer that ends has met what may not be.
            if let Some(ended) = self.tasks.try_join_next() {
                ended.unwrap();
            }
            holds(&self.tally).then_some(())
        })
        .await;
    }

    /// Ends it; the ids of all events that were acknowledged.
    pub async fn stop(mut self) -> Vec<String> {
        self.tally.enough.store(true, Ordering::Relaxed);
        let mut ids = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            ids.extend(ended.unwrap());
        }
        ids
    }
}

async fn produce(number: usize, client: Client, tally: Arc<Tally>) -> Vec<String> {
    let mut ids = Vec::new();
    while !tally.enough.load(Ordering::Relaxed) {
        let id = format!("{number}-{}", ids.len());
        let event = json!({ "source_id": "s", "event_id": id });
        let answer = within(ANSWER_LIMIT, "an answer", client.post("/events", &event)).await;
        if answer.status == 202 {
            ids.push(id);
            tally.acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            expect_unavailable(&answer);
            tally.refused.fetch_add(1, Ordering::Relaxed);
        }
        sleep(PACE).await;
    }
    ids
}

/// A 503 in the form that all problems have, with the time to come back.
#[track_caller]
fn expect_unavailable(answer: &TestResponse) {
    assert_eq!(answer.status, 503, "{answer}");
    let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
    answer.expect_problem(503, &code);
    assert!(answer.headers.contains_key("retry-after"), "{answer}");
}
