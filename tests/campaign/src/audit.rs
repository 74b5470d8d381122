//! Audit events: each change with a response is in the stream once. A change without a response is there at most once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::jetstream;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use testkit::TestResponse;
use tokio::time::{sleep, timeout};

use crate::findings::Findings;

/// After this time without faults, all audit events must be in the stream, if no clock was wrong.
const RECOVERY: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(200);

/// User id and name of the event.
type Key = (String, String);

/// Changes of a user that cause the same audit event.
#[derive(Clone, Copy, Default)]
struct Changes {
    with_response: u64,
    without_response: u64,
}

/// The expected audit events, and those in the stream.
#[derive(Default)]
pub(crate) struct AuditTrail {
    changes: Mutex<HashMap<Key, Changes>>,
    /// How late an event can be: the outbox delivers a message of a process with a clock ahead when its time has come.
    lateness: Mutex<Duration>,
    /// Since when events are missing.
    missing: Mutex<HashMap<Key, Instant>>,
    stored: tokio::sync::Mutex<Stored>,
}

/// The events that were read. Delivery is at least once, so ids that repeat are one event.
#[derive(Default)]
struct Stored {
    last_sequence: u64,
    ids: HashSet<String>,
    events: HashMap<Key, u64>,
}

impl AuditTrail {
    /// Records a change by its response: with the status `success`, it must be in the audit. `None` is no definite response.
    pub(crate) fn expect(&self, user_id: &str, event: &str, response: Option<&TestResponse>, success: u16) {
        let mut changes = self.changes.lock();
        let changes = changes.entry((user_id.to_owned(), event.to_owned())).or_default();
        match response {
            None => changes.without_response += 1,
            Some(response) if response.status == success => changes.with_response += 1,
            Some(_) => {}
        }
    }

    /// Permits events to be this late.
    pub(crate) fn permit_lateness(&self, lateness: Duration) {
        let mut longest = self.lateness.lock();
        *longest = longest.max(lateness);
    }

    /// How late events can be, because a clock was wrong.
    pub(crate) fn lateness(&self) -> Duration {
        *self.lateness.lock()
    }

    /// Waits until the expected events are in the stream, for a minute or, at the end, for as long as they can be late. Compares their
    /// numbers.
    pub(crate) async fn check(&self, url: &str, at_end: bool, findings: &Findings) -> anyhow::Result<()> {
        let lateness = RECOVERY + self.lateness();
        let started_at = Instant::now();
        let deadline = started_at + if at_end { lateness } else { RECOVERY };
        let mut stored = self.stored.lock().await;
        loop {
            stored.read(url).await?;
            let changes = self.changes.lock().clone();
            let count = |key: &Key| stored.events.get(key).copied().unwrap_or_default();
            let is_complete = changes.iter().all(|(key, changes)| count(key) >= changes.with_response);
            if !is_complete && Instant::now() < deadline {
                sleep(POLL).await;
                continue;
            }
            let mut missing = self.missing.lock();
            for (key, Changes { with_response, without_response }) in &changes {
                let (count, (user_id, event)) = (count(key), key);
                if count >= *with_response {
                    missing.remove(key);
                } else if missing.entry(key.clone()).or_insert(started_at).elapsed() < lateness && !at_end {
                    continue;
                }
                if !(*with_response..=with_response + without_response).contains(&count) {
                    findings.add(format!(
                        "{count} audit events {event} of user {user_id} for {with_response} changes with a response and {without_response} without"
                    ));
                }
            }
            return Ok(());
        }
    }
}

impl Stored {
    async fn read(&mut self, url: &str) -> anyhow::Result<()> {
        let client = bus::connect(&bus::Config::new(url, "campaign")).await?;
        let mut stream = jetstream::new(client).get_stream("AUDIT").await?;
        let end = stream.info().await?.state.last_sequence;
        if end == self.last_sequence {
            return Ok(());
        }
        let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: self.last_sequence + 1 };
        let consumer =
            stream.create_consumer(OrderedConfig { deliver_policy, ..OrderedConfig::default() }).await?;
        let mut messages = consumer.messages().await?;
        while self.last_sequence < end {
            let message = timeout(RECOVERY, messages.next()).await.context("the stream does not respond")?;
            let message = message.context("the consumer ended")??;
            self.last_sequence = message.info().map_err(anyhow::Error::from_boxed)?.stream_sequence;
            let event: Value = serde_json::from_slice(&message.payload)?;
            let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            if self.ids.insert(field("id")) {
                *self.events.entry((field("user_id"), field("event"))).or_default() += 1;
            }
        }
        Ok(())
    }
}
