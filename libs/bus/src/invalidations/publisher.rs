//! Publishes invalidations and a heartbeat per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use chrono::{DateTime, Utc};
use service::{Clock, Tasks};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{INVALIDATION_SUBJECT, Invalidation, InvalidationMessage};
use crate::connect::{self, Config, ConnectError};

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Capacity of the queue. It fills only while the broker accepts no messages. Changes are then dropped, and listeners
/// detect the gap.
const QUEUE_CAPACITY: usize = 4096;
/// Maximum number of changes in one message.
const MAX_CHANGES: usize = 256;
/// Timeout for passing one message to the client library, and for flushing the last ones.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Publishes invalidations. Clones share the queue.
#[derive(Clone)]
pub struct InvalidationPublisher {
    queue: mpsc::Sender<Change>,
    /// Changes that were dropped because the queue was full. Each leaves a gap in the sequence.
    dropped: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

struct Change {
    invalidation: Invalidation,
    committed_at: DateTime<Utc>,
}

impl InvalidationPublisher {
    /// Starts the task that connects and publishes. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(mut config: Config, clock: Arc<dyn Clock>, tasks: &Tasks) -> Result<Self, ConnectError> {
        config.wait_for_broker = true;
        connect::connect_options(&config)?;
        let (queue, changes) = mpsc::channel(QUEUE_CAPACITY);
        let publisher = Self { queue, dropped: Arc::default(), clock: Arc::clone(&clock) };
        let (stop, dropped) = (tasks.stopping().clone(), Arc::clone(&publisher.dropped));
        tasks.spawn_short(async move {
            match connect::connect(&config).await {
                Ok(client) => {
                    let sender = Sender { client, clock, publisher: Uuid::now_v7(), sequence: 0 };
                    sender.run(changes, &dropped, &stop).await;
                }
                Err(error) => {
                    tracing::error!(
                        error = service::chain(&error),
                        "failed to connect to NATS; no invalidations are published"
                    );
                }
            }
        });
        Ok(publisher)
    }

    /// Publishes changes that were committed just now. Never blocks. If a change cannot be published, listeners detect the
    /// gap.
    pub fn publish(&self, invalidations: impl IntoIterator<Item = Invalidation>) {
        let committed_at = self.clock.now();
        for invalidation in invalidations {
            if self.queue.try_send(Change { invalidation, committed_at }).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// State of the publishing task.
struct Sender {
    client: Client,
    clock: Arc<dyn Clock>,
    publisher: Uuid,
    sequence: u64,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<Change>, dropped: &AtomicU64, stop: &CancellationToken) {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = Vec::new();
        while !stop.is_cancelled() {
            tokio::select! {
                _ = queue.recv_many(&mut changes, MAX_CHANGES) => {}
                _ = heartbeat.tick() => {}
                () = stop.cancelled() => break,
            }
            self.sequence += dropped.swap(0, Ordering::Relaxed);
            self.send(&mut changes, false).await;
        }
        queue.close();
        while queue.recv_many(&mut changes, MAX_CHANGES).await > 0 {
            self.send(&mut changes, false).await;
        }
        self.send(&mut changes, true).await;
        // Without a connection the last messages are lost, and listeners detect the silence.
        let _ = timeout(SEND_TIMEOUT, self.client.flush()).await;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "an invalidation needs no acknowledgement: listeners detect a missing sequence number"
    )]
    async fn send(&mut self, changes: &mut Vec<Change>, last: bool) {
        let connected = self.client.connection_state() == State::Connected;
        if !connected && changes.is_empty() {
            return;
        }
        self.sequence += 1;
        let committed_at =
            changes.iter().map(|change| change.committed_at).min().unwrap_or_else(|| self.clock.now());
        let invalidations = changes.drain(..).map(|change| change.invalidation).collect();
        if !connected {
            // The client library would queue the message and send it late. Listeners detect the skipped sequence number instead.
            return;
        }
        let Self { publisher, sequence, .. } = *self;
        let message = InvalidationMessage { publisher, sequence, committed_at, invalidations, last };
        let payload = serde_json::to_vec(&message).unwrap_or_default(); // a struct of strings always serialises
        let sent = timeout(SEND_TIMEOUT, self.client.publish(INVALIDATION_SUBJECT, payload.into())).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!("failed to send invalidations");
        }
    }
}
