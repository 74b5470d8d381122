//! The number of active ingest replicas: each replica announces itself every second on a NATS subject.
//!
//! A replica counts another one until it has received five own announcements without one of the other. It receives none
//! while NATS is down, so it keeps the last number. A replica that stops announces that too. Announcements are signed like
//! invalidations.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Message};
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use service::{Clock, Tasks, chain};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::connect::{self, Config, ConnectError};
use crate::invalidations::InvalidationKeys;

/// Subject of the announcements.
pub const REPLICA_SUBJECT: &str = "svc.ingest.replicas.v1";

/// Interval of announcements.
const INTERVAL: Duration = Duration::from_secs(1);
/// A replica that was silent during this number of own announcements is not active.
const MAX_MISSED: u32 = 5;
/// An older announcement is ignored, because it can be a repeated one.
const MAX_AGE: TimeDelta = TimeDelta::minutes(1);
/// A replica is remembered for this number of own announcements, so that its messages cannot be repeated within [`MAX_AGE`].
const REMEMBERED: u32 = 120;
/// Timeout for passing a message to the client library, and for flushing the last one.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of active replicas, including this one. Clones share it.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<AtomicU32>);

/// A message on [`REPLICA_SUBJECT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    replica: Uuid,
    /// Increases with each announcement of a replica.
    sent_at: DateTime<Utc>,
    /// Whether the replica stops.
    leaves: bool,
}

impl Replicas {
    /// Starts the task that announces this replica and counts the others. The server need not be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(
        mut config: Config,
        keys: InvalidationKeys,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
    ) -> Result<Self, ConnectError> {
        config.wait_for_broker = true;
        connect::connect_options(&config)?;
        let replicas = Self::fixed(1);
        let (counted, stop) = (replicas.clone(), tasks.stopping().clone());
        tasks.spawn("replica announcements", async move {
            match connect::connect(&config).await {
                Ok(client) => {
                    let announcer = Announcer { client, keys, clock, members: Members::new() };
                    announcer.run(&counted, &stop).await;
                }
                // An error of the configuration. The client library retries all others.
                Err(error) => tracing::error!(error = chain(&error), "failed to connect to NATS"),
            }
            stop.cancelled().await;
        });
        Ok(replicas)
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

struct Announcer {
    client: Client,
    keys: InvalidationKeys,
    clock: Arc<dyn Clock>,
    members: Members,
}

impl Announcer {
    async fn run(mut self, counted: &Replicas, stop: &CancellationToken) {
        let Ok(mut messages) = self.client.subscribe(REPLICA_SUBJECT).await else {
            tracing::error!("failed to subscribe to replica announcements");
            return;
        };
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.announce(false).await,
                Some(message) = messages.next() => {
                    let is_new = self.receive(&message);
                    let count = self.members.active();
                    if counted.0.swap(count, Ordering::Relaxed) != count {
                        tracing::info!(count, "number of active ingest replicas changed");
                    }
                    // The new replica learns the number at once.
                    if is_new {
                        self.announce(false).await;
                    }
                }
                () = stop.cancelled() => break,
            }
        }
        self.announce(true).await;
        let _ = timeout(SEND_TIMEOUT, self.client.flush()).await;
    }

    /// Returns whether the message is the first one of another replica.
    fn receive(&mut self, message: &Message) -> bool {
        if !self.keys.verify(message) {
            return false;
        }
        let announcement = serde_json::from_slice(&message.payload);
        announcement.is_ok_and(|announcement| self.members.receive(announcement, self.clock.now()))
    }

    #[expect(clippy::disallowed_methods, reason = "a lost announcement is replaced by the next one")]
    async fn announce(&self, leaves: bool) {
        // The client library would queue the message and send it late.
        if self.client.connection_state() != State::Connected {
            return;
        }
        let announcement = Announcement { replica: self.members.own, sent_at: self.clock.now(), leaves };
        let payload = serde_json::to_vec(&announcement).unwrap_or_default(); // a plain struct always serialises
        let headers = self.keys.sign_for(REPLICA_SUBJECT, &payload);
        let publish = self.client.publish_with_headers(REPLICA_SUBJECT, headers, payload.into());
        let _ = timeout(SEND_TIMEOUT, publish).await;
    }
}

/// The replicas that were received, including this one.
struct Members {
    own: Uuid,
    known: HashMap<Uuid, Member>,
}

struct Member {
    sent_at: DateTime<Utc>,
    leaves: bool,
    /// Own announcements that arrived since the last one of this replica.
    missed: u32,
}

impl Members {
    fn new() -> Self {
        Self { own: Uuid::now_v7(), known: HashMap::new() }
    }

    /// Records an announcement. Returns whether it is the first one of another replica.
    fn receive(&mut self, announcement: Announcement, now: DateTime<Utc>) -> bool {
        let Announcement { replica, sent_at, leaves } = announcement;
        let is_outdated = (now - sent_at).abs() > MAX_AGE;
        let is_repeated = self.known.get(&replica).is_some_and(|member| sent_at <= member.sent_at);
        if is_outdated || is_repeated {
            return false;
        }
        let is_own = replica == self.own;
        if is_own {
            self.known.values_mut().for_each(|member| member.missed += 1);
            self.known.retain(|_, member| member.missed < REMEMBERED);
        }
        self.known.insert(replica, Member { sent_at, leaves, missed: 0 }).is_none() && !is_own
    }

    /// The number of active replicas. This one counts even if its own announcements do not arrive.
    fn active(&self) -> u32 {
        let others = self.known.iter().filter(|(replica, member)| {
            **replica != self.own && !member.leaves && member.missed < MAX_MISSED
        });
        u32::try_from(others.count()).unwrap_or(u32::MAX - 1) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Group {
        members: Members,
        second: u32,
    }

    impl Group {
        fn new() -> Self {
            Self { members: Members::new(), second: 0 }
        }

        fn now(&self) -> DateTime<Utc> {
            DateTime::UNIX_EPOCH + TimeDelta::seconds(self.second.into())
        }

        /// A second passes, and these replicas announce themselves.
        fn after_second(&mut self, replicas: &[Uuid]) -> u32 {
            self.second += 1;
            for replica in replicas {
                self.members.receive(self.announcement(*replica, false), self.now());
            }
            self.members.active()
        }

        fn announcement(&self, replica: Uuid, leaves: bool) -> Announcement {
            Announcement { replica, sent_at: self.now(), leaves }
        }
    }

    #[test]
    fn a_replica_is_active_until_it_is_silent_for_five_own_announcements() {
        let (mut group, other) = (Group::new(), Uuid::now_v7());
        let own = group.members.own;
        assert_eq!(group.members.active(), 1);
        assert_eq!(group.after_second(&[own, other]), 2);
        assert_eq!([(); 5].map(|()| group.after_second(&[own])), [2, 2, 2, 2, 1]);
        assert_eq!(group.after_second(&[own, other]), 2);
    }

    #[test]
    fn the_number_is_kept_while_no_own_announcement_arrives() {
        let (mut group, other) = (Group::new(), Uuid::now_v7());
        let own = group.members.own;
        group.after_second(&[own, other]);
        assert_eq!([(); 100].map(|()| group.after_second(&[])), [2; 100]);
        // After the outage the own announcement can arrive first.
        assert_eq!(group.after_second(&[own]), 2);
    }

    #[test]
    fn a_replica_that_leaves_is_not_active_and_its_repeated_messages_are_ignored() {
        let (mut group, other) = (Group::new(), Uuid::now_v7());
        let own = group.members.own;
        group.after_second(&[own, other]);
        let before = group.announcement(other, false);
        group.second += 1;
        let leaves = group.announcement(other, true);
        group.members.receive(leaves, group.now());
        assert_eq!(group.members.active(), 1);
        for _ in 0..2 * REMEMBERED {
            assert_eq!(group.after_second(&[own]), 1);
            assert!(!group.members.receive(before, group.now()));
            assert_eq!(group.members.active(), 1);
        }
        assert_eq!(group.members.known.len(), 1, "the replica is forgotten");
    }

    #[test]
    fn only_the_first_announcement_of_another_replica_is_new() {
        let (mut group, other) = (Group::new(), Uuid::now_v7());
        group.second = 1;
        for (replica, is_new) in [(group.members.own, false), (other, true), (other, false)] {
            let announcement = group.announcement(replica, false);
            assert_eq!(group.members.receive(announcement, group.now()), is_new);
            group.second += 1;
        }
    }
}
