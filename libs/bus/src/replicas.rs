//! The number of active ingest replicas: each replica announces itself every second on a NATS subject.
//!
//! A replica counts another one until it has received five own announcements without one of the other. It receives none
//! while NATS is down, so it keeps the last number. A replica that stops announces that too. The accounts of NATS permit only
//! ingest to publish announcements (`deploy/nats/accounts.conf`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use service::Tasks;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::connect::Connection;

/// Subject of the announcements.
pub const REPLICA_SUBJECT: &str = "svc.ingest.replicas.v1";

/// Interval of announcements.
const INTERVAL: Duration = Duration::from_secs(1);
/// A replica that was silent during this number of own announcements is not active.
const MAX_MISSED: u32 = 5;
/// Timeout for passing a message to the client library, and for flushing the last one.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of active replicas, including this one. Clones share it.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<AtomicU32>);

/// A message on [`REPLICA_SUBJECT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    replica: Uuid,
    /// Whether the replica stops.
    leaves: bool,
}

impl Replicas {
    /// Starts the task that announces this replica and counts the others. The server need not be reachable yet.
    pub fn start(connection: Connection, tasks: &Tasks) -> Self {
        let replicas = Self::fixed(1);
        let (counted, stop) = (replicas.clone(), tasks.stopping().clone());
        tasks.spawn("replica announcements", async move {
            Members::new().announce_and_count(&connection, &counted, &stop).await;
            stop.cancelled().await;
        });
        replicas
    }

    /// Returns a number that does not change.
    pub fn fixed(count: u32) -> Self {
        Self(Arc::new(AtomicU32::new(count)))
    }

    /// Returns the number of active replicas: at least 1.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

/// The active replicas that were received, including this one.
struct Members {
    own: Uuid,
    /// The own announcements that arrived since the last one of each replica.
    missed: HashMap<Uuid, u32>,
}

impl Members {
    fn new() -> Self {
        Self { own: Uuid::now_v7(), missed: HashMap::new() }
    }

    async fn announce_and_count(
        mut self,
        connection: &Connection,
        counted: &Replicas,
        stop: &CancellationToken,
    ) {
        let Ok(mut messages) = connection.client.subscribe(REPLICA_SUBJECT).await else {
            tracing::error!("failed to subscribe to replica announcements");
            return;
        };
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.announce(connection, false).await,
                Some(message) = messages.next() => {
                    let announcement = serde_json::from_slice(&message.payload);
                    let is_new = announcement.is_ok_and(|announcement| self.receive(announcement));
                    let count = self.active();
                    if counted.0.swap(count, Ordering::Relaxed) != count {
                        tracing::info!(count, "number of active ingest replicas changed");
                    }
                    // The new replica learns the number at once.
                    if is_new {
                        self.announce(connection, false).await;
                    }
                }
                () = stop.cancelled() => break,
            }
        }
        self.announce(connection, true).await;
        let _ = timeout(SEND_TIMEOUT, connection.client.flush()).await;
    }

    #[expect(clippy::disallowed_methods, reason = "a lost announcement is replaced by the next one")]
    async fn announce(&self, connection: &Connection, leaves: bool) {
        let Ok(client) = connection.connected() else { return };
        let announcement = Announcement { replica: self.own, leaves };
        let payload = serde_json::to_vec(&announcement).unwrap_or_default(); // a plain struct always serialises
        let _ = timeout(SEND_TIMEOUT, client.publish(REPLICA_SUBJECT, payload.into())).await;
    }

    /// Records an announcement. Returns whether it is the first one of another replica.
    fn receive(&mut self, Announcement { replica, leaves }: Announcement) -> bool {
        if leaves {
            self.missed.remove(&replica);
            return false;
        }
        let is_own = replica == self.own;
        if is_own {
            self.missed.values_mut().for_each(|missed| *missed += 1);
            self.missed.retain(|_, missed| *missed < MAX_MISSED);
        }
        self.missed.insert(replica, 0).is_none() && !is_own
    }

    /// The number of active replicas. This one counts even if its own announcements do not arrive.
    fn active(&self) -> u32 {
        let others = self.missed.keys().filter(|replica| **replica != self.own);
        u32::try_from(others.count()).unwrap_or(u32::MAX - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(replica: Uuid) -> Announcement {
        Announcement { replica, leaves: false }
    }

    /// A second passes, and these replicas announce themselves.
    fn after_second(members: &mut Members, replicas: &[Uuid]) -> u32 {
        for replica in replicas {
            members.receive(announcement(*replica));
        }
        members.active()
    }

    #[test]
    fn a_replica_is_active_until_it_is_silent_for_five_own_announcements() {
        let (mut members, other) = (Members::new(), Uuid::now_v7());
        let own = members.own;
        assert_eq!(members.active(), 1);
        assert_eq!(after_second(&mut members, &[own, other]), 2);
        assert_eq!([(); 5].map(|()| after_second(&mut members, &[own])), [2, 2, 2, 2, 1]);
        assert_eq!(after_second(&mut members, &[own, other]), 2);
    }

    #[test]
    fn the_number_is_kept_while_no_own_announcement_arrives() {
        let (mut members, other) = (Members::new(), Uuid::now_v7());
        let own = members.own;
        after_second(&mut members, &[own, other]);
        assert_eq!([(); 100].map(|()| after_second(&mut members, &[])), [2; 100]);
        // After the outage the own announcement can arrive first.
        assert_eq!(after_second(&mut members, &[own]), 2);
    }

    #[test]
    fn a_replica_that_leaves_is_not_active_and_is_forgotten() {
        let (mut members, other) = (Members::new(), Uuid::now_v7());
        let own = members.own;
        after_second(&mut members, &[own, other]);
        members.receive(Announcement { replica: other, leaves: true });
        assert_eq!(members.active(), 1);
        assert_eq!(members.missed.len(), 1);
    }

    #[test]
    fn only_the_first_announcement_of_another_replica_is_new() {
        let (mut members, other) = (Members::new(), Uuid::now_v7());
        for (replica, is_new) in [(members.own, false), (other, true), (other, false)] {
            assert_eq!(members.receive(announcement(replica)), is_new);
        }
    }
}
