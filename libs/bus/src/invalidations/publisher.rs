//! Publishes invalidations, and a heartbeat each second.

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

/// How often something is said.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Changes that wait to be told. More come together only when the broker takes nothing, and then invalidations are late anyway.
const WAITING: usize = 4096;
/// Changes in one message.
const TOGETHER: usize = 256;
/// How long the client library may take to accept a message, or to write the last ones out.
const HAND_OVER: Duration = Duration::from_secs(1);

/// Tells listeners what changed. Clones share everything.
#[derive(Clone)]
pub struct InvalidationPublisher {
    changes: mpsc::Sender<Change>,
    lost: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
}

struct Change {
    revoked: Invalidation,
    since: DateTime<Utc>,
}

impl InvalidationPublisher {
    /// Starts the task that connects and publishes. The broker need not be there.
    ///
    /// # Errors
    /// A configuration that can never work.
    pub fn start(mut config: Config, clock: Arc<dyn Clock>, tasks: &Tasks) -> Result<Self, ConnectError> {
        config.wait_for_broker = true;
        connect::dial(&config)?;
        let (changes, waiting) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let (stop, lost_here, clock_here) = (tasks.stopping().clone(), Arc::clone(&lost), Arc::clone(&clock));
        tasks.spawn_short(async move {
            match connect::connect(&config).await {
                Ok(client) => {
                    let voice = Voice { client, clock: clock_here, publisher: Uuid::now_v7(), number: 0 };
                    voice.speak(waiting, &lost_here, &stop).await;
                }
                Err(error) => {
                    tracing::error!(error = ?error, "no invalidations of revocations will be published")
                }
            }
        });
        Ok(Self { changes, lost, clock })
    }

    /// Tells of changes that were committed just now. Never waits; what cannot be told is noticed by its absence.
    pub fn publish(&self, revoked: impl IntoIterator<Item = Invalidation>) {
        let since = self.clock.now();
        for revoked in revoked {
            if self.changes.try_send(Change { revoked, since }).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// What the task alone has.
struct Voice {
    client: Client,
    clock: Arc<dyn Clock>,
    publisher: Uuid,
    number: u64,
}

impl Voice {
    async fn speak(
        mut self,
        mut waiting: mpsc::Receiver<Change>,
        lost: &AtomicU64,
        stop: &CancellationToken,
    ) {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = Vec::new();
        while !stop.is_cancelled() {
            tokio::select! {
                _ = waiting.recv_many(&mut changes, TOGETHER) => {}
                _ = heartbeat.tick() => {}
                () = stop.cancelled() => break,
            }
            self.number += lost.swap(0, Ordering::Relaxed);
            self.say(&mut changes, false).await;
        }
        waiting.close();
        while waiting.recv_many(&mut changes, TOGETHER).await > 0 {
            self.say(&mut changes, false).await;
        }
        self.say(&mut changes, true).await;
        // Nobody is left to tell.
        let _ = timeout(HAND_OVER, self.client.flush()).await;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a hint needs no acknowledgement: its number tells when it is missing"
    )]
    async fn say(&mut self, changes: &mut Vec<Change>, last: bool) {
        // The library would keep it for later; by then it would be news of the past.
        let connected = self.client.connection_state() == State::Connected;
        if !connected && changes.is_empty() {
            return;
        }
        self.number += 1;
        let since = changes.iter().map(|change| change.since).min().unwrap_or_else(|| self.clock.now());
        let revoked = changes.drain(..).map(|change| change.revoked).collect();
        let hint =
            InvalidationMessage { publisher: self.publisher, number: self.number, since, revoked, last };
        if !connected {
            return;
        }
        let payload = serde_json::to_vec(&hint).unwrap_or_default(); // a struct of strings always serialises
        let said = timeout(HAND_OVER, self.client.publish(INVALIDATION_SUBJECT, payload.into())).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!("a hint of revocations could not be handed over");
        }
    }
}
