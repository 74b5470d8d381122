//! Listens to the invalidation feed and applies it to the cache: a change concerns some entries, a gap all of them.

use std::collections::HashMap;
use std::time::Duration;

use bus::{Connection, FeedEvent, InvalidationListener, InvalidationMessage};
use service::Clock;
use tokio::time::{Instant, interval};
use uuid::Uuid;

use super::CacheState;

/// A publisher sends a message per second. After this time without one it is silent.
const MAX_SILENCE: Duration = Duration::from_secs(3);
/// Interval of checks for silent publishers.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A subscription without a message is replaced after this time: the server can have denied it, and does not repeat the denial.
const MAX_QUIET_SUBSCRIPTION: Duration = Duration::from_secs(5);

/// Applies the events of the feed to the cache. Ends only if the client has stopped.
pub(super) async fn listen(cache: &CacheState, connection: &Connection, clock: &dyn Clock) {
    let mut publishers = Publishers::default();
    let mut check = interval(CHECK_INTERVAL);
    while let Ok(mut listener) = InvalidationListener::start(connection).await {
        let mut quiet_until = Instant::now() + MAX_QUIET_SUBSCRIPTION;
        while Instant::now() < quiet_until {
            tokio::select! {
                Some(event) = listener.next() => cache.apply(event, &mut publishers, clock),
                now = check.tick() => {
                    cache.check_feed(&mut publishers);
                    if publishers.0.is_empty() {
                        cache.metrics.feed_down.inc_by(CHECK_INTERVAL.as_secs_f64());
                    } else {
                        quiet_until = now + MAX_QUIET_SUBSCRIPTION;
                    }
                }
            }
        }
        tracing::warn!("no invalidations received; subscribing again");
    }
}

impl CacheState {
    pub(super) fn apply(&self, event: FeedEvent, publishers: &mut Publishers, clock: &dyn Clock) {
        match event {
            FeedEvent::Lost => {
                publishers.0.clear();
                self.gap("connection lost, or malformed message");
            }
            FeedEvent::Message(message) => {
                if !publishers.record(&message) {
                    self.gap("missing sequence number");
                }
                if !message.invalidations.is_empty() {
                    self.epochs.change(&message.invalidations);
                    let lag = clock.now() - message.committed_at;
                    self.metrics.lag.observe(lag.as_seconds_f64().max(0.0));
                }
            }
        }
    }

    pub(super) fn check_feed(&self, publishers: &mut Publishers) {
        if publishers.remove_silent() {
            self.gap("a publisher is silent");
        }
        // Removes expired entries; without this, they stay until the next access.
        self.active.run_pending_tasks();
        self.negative.run_pending_tasks();
    }

    fn gap(&self, reason: &'static str) {
        self.epochs.change_all();
        tracing::info!(reason, "credential cache cleared: gap in the invalidation feed");
    }
}

/// The publishers that sent a message on this connection and are not silent. The feed is up while there is one.
#[derive(Default)]
pub(super) struct Publishers(HashMap<Uuid, LastMessage>);

struct LastMessage {
    sequence: u64,
    received_at: Instant,
}

impl Publishers {
    /// Records a message. Returns whether no message before it is missing: it is the next one of its publisher, and the feed was up.
    fn record(&mut self, message: &InvalidationMessage) -> bool {
        let was_up = !self.0.is_empty();
        let last = LastMessage { sequence: message.sequence, received_at: Instant::now() };
        let previous = self.0.insert(message.publisher, last).map_or(0, |previous| previous.sequence);
        was_up && previous.checked_add(1) == Some(message.sequence)
    }

    /// Removes publishers without a message for [`MAX_SILENCE`]: later messages of them can be lost. Returns whether there was one.
    fn remove_silent(&mut self) -> bool {
        let (now, before) = (Instant::now(), self.0.len());
        self.0.retain(|_, last| now < last.received_at + MAX_SILENCE);
        self.0.len() < before
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
        }
    }

    #[test]
    fn only_the_next_number_of_a_publisher_is_in_order_while_the_feed_is_up() {
        let mut publishers = Publishers::default();
        for (publisher, sequence, in_order) in [
            (1, 1, false), // the feed comes up
            (2, 1, true),
            (1, 2, true),
            (1, 4, false),
            (1, 5, true),
            (1, 5, false),
            (2, 2, true),
            (3, 9, false), // earlier messages of a new publisher are missing
            (4, u64::MAX, false),
            (4, u64::MAX, false),
            (4, 1, false),
        ] {
            assert_eq!(publishers.record(&message(publisher, sequence)), in_order, "{publisher}: {sequence}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_a_publisher_is_reported_once() {
        let mut publishers = Publishers::default();
        publishers.record(&message(1, 1));
        publishers.record(&message(2, 1));
        tokio::time::advance(MAX_SILENCE / 2).await;
        assert!(!publishers.remove_silent());
        publishers.record(&message(1, 2));
        tokio::time::advance(MAX_SILENCE / 2).await;
        assert!(publishers.remove_silent());
        assert_eq!(publishers.0.len(), 1);
        assert!(!publishers.remove_silent());
    }
}
