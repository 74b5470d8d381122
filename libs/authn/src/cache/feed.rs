//! Listens to the invalidation feed, applies invalidations to the cache, and detects gaps and a feed that is down.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::{FeedEvent, InvalidationListener, InvalidationMessage};
use service::Clock;
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

use super::Shared;

/// A publisher sends a message per second. After this time without one it counts as silent.
const MAX_SILENCE: Duration = Duration::from_secs(3);
/// Interval of checks for silent publishers.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Applies the events of the feed to the cache until the future is dropped.
pub(super) async fn listen(cache: &Shared, nats: bus::Config, clock: &dyn Clock) {
    let mut health = FeedHealth::new(Instant::now());
    let mut listener = match InvalidationListener::start(&nats).await {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(
                error = service::chain(&error),
                "failed to subscribe to invalidations; credential cache bypassed"
            );
        }
    };
    let mut check = interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = listener.next() => cache.apply(event, &mut health, clock),
            _ = check.tick() => {
                cache.check_feed(&mut health);
                cache.free_memory();
            }
        }
    }
}

impl Shared {
    pub(super) fn apply(&self, event: FeedEvent, health: &mut FeedHealth, clock: &dyn Clock) {
        let now = Instant::now();
        match event {
            // The first message proves that the subscription works.
            FeedEvent::Connected => {}
            FeedEvent::Disconnected => {
                health.disconnected();
                self.update_feed_state(health, now);
            }
            FeedEvent::Gap => self.gap("invalidation lost or malformed"),
            FeedEvent::Message(message) => {
                if !message.invalidations.is_empty() {
                    self.epochs.change(&message.invalidations);
                    self.metrics
                        .observe_lag((clock.now() - message.committed_at).to_std().unwrap_or_default());
                }
                if !health.record(&message, now) {
                    self.gap("missing sequence number");
                }
                // Last, so that the cache is not read before the gap is applied.
                self.update_feed_state(health, now);
            }
        }
    }

    pub(super) fn check_feed(&self, health: &mut FeedHealth) {
        let now = Instant::now();
        if health.remove_silent(now) {
            self.gap("a publisher is silent");
        }
        self.update_feed_state(health, now);
    }

    fn gap(&self, reason: &'static str) {
        self.drop_all();
        tracing::info!(reason, "credential cache cleared: gap in the invalidation feed");
    }

    fn update_feed_state(&self, health: &mut FeedHealth, now: Instant) {
        let live = health.is_live(now);
        self.metrics.add_bypassed(health.take_downtime(now, live));
        let was_live = self.feed_is_live.swap(live, Ordering::AcqRel);
        if live && !was_live {
            tracing::info!("credential cache in use: invalidation feed is up");
        } else if was_live && !live {
            self.drop_all();
            tracing::warn!("credential cache bypassed: invalidation feed is down");
        }
    }

    /// Removes expired entries; without this, they stay until the next access.
    fn free_memory(&self) {
        self.active.run_pending_tasks();
        self.negative.run_pending_tasks();
    }
}

/// The publishers of the feed and their last messages.
pub(super) struct FeedHealth {
    publishers: HashMap<Uuid, LastMessage>,
    /// Time of the last message on the current connection.
    last_message_at: Option<Instant>,
    /// Start of the downtime that is not counted yet; `None` while the feed is live.
    down_since: Option<Instant>,
}

struct LastMessage {
    sequence: u64,
    received_at: Instant,
}

impl FeedHealth {
    pub(super) fn new(now: Instant) -> Self {
        Self { publishers: HashMap::new(), last_message_at: None, down_since: Some(now) }
    }

    /// Records a message. Returns whether no message before it is missing.
    fn record(&mut self, message: &InvalidationMessage, now: Instant) -> bool {
        self.last_message_at = Some(now);
        let expected = self.publishers.get(&message.publisher).map_or(1, |last| last.sequence + 1);
        if message.last {
            self.publishers.remove(&message.publisher);
        } else {
            let last = LastMessage { sequence: message.sequence, received_at: now };
            self.publishers.insert(message.publisher, last);
        }
        message.sequence == expected
    }

    fn disconnected(&mut self) {
        self.publishers.clear();
        self.last_message_at = None;
    }

    /// Removes silent publishers. Returns whether there were any.
    fn remove_silent(&mut self, now: Instant) -> bool {
        let before = self.publishers.len();
        self.publishers.retain(|_, last| now < last.received_at + MAX_SILENCE);
        self.publishers.len() < before
    }

    /// Returns whether a message arrived recently on the current connection.
    fn is_live(&self, now: Instant) -> bool {
        self.last_message_at.is_some_and(|at| now < at + MAX_SILENCE)
    }

    /// Returns the downtime of the feed since the last call.
    fn take_downtime(&mut self, now: Instant, live: bool) -> Duration {
        let downtime = self.down_since.map(|since| now.saturating_duration_since(since));
        self.down_since = (!live).then_some(now);
        downtime.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn message(publisher: u128, sequence: u64) -> InvalidationMessage {
        InvalidationMessage {
            publisher: Uuid::from_u128(publisher),
            sequence,
            committed_at: DateTime::UNIX_EPOCH,
            invalidations: Vec::new(),
            last: false,
        }
    }

    #[test]
    fn missing_sequence_number_is_a_gap_and_publishers_count_separately() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        assert!(health.record(&message(1, 1), now) && health.record(&message(2, 1), now));
        assert!(health.record(&message(1, 2), now) && health.record(&message(1, 3), now));
        assert!(!health.record(&message(1, 5), now) && health.record(&message(1, 6), now));
        assert!(health.record(&message(2, 2), now));
        assert!(!health.record(&message(3, 9), now), "earlier messages of a new publisher are missing");
    }

    #[test]
    fn silence_is_reported_once_and_a_shutdown_is_not_silence() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        health.record(&message(1, 1), now);
        health.record(&message(2, 1), now);
        assert!(health.record(&InvalidationMessage { last: true, ..message(2, 2) }, now));
        assert!(!health.remove_silent(now + MAX_SILENCE / 2));
        assert!(health.remove_silent(now + MAX_SILENCE));
        assert!(!health.remove_silent(now + 2 * MAX_SILENCE));
    }

    #[test]
    fn feed_is_live_from_the_first_message_until_silence_or_disconnection() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        assert!(!health.is_live(now));
        health.record(&message(1, 1), now);
        assert!(health.is_live(now) && !health.is_live(now + MAX_SILENCE));
        health.record(&message(1, 2), now + MAX_SILENCE);
        assert!(health.is_live(now + MAX_SILENCE));
        health.disconnected();
        assert!(!health.is_live(now + MAX_SILENCE));
    }

    #[test]
    fn downtime_is_counted_once() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut health = FeedHealth::new(now);
        assert_eq!(health.take_downtime(now + second, false), second);
        assert_eq!(health.take_downtime(now + 3 * second, true), 2 * second);
        assert_eq!(health.take_downtime(now + 9 * second, true), Duration::ZERO);
        assert_eq!(health.take_downtime(now + 9 * second, false), Duration::ZERO);
        assert_eq!(health.take_downtime(now + 10 * second, false), second);
    }
}
