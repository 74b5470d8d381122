//! Listens to the invalidation feed, applies invalidations to the cache, and detects gaps and a feed that is down.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::{FeedEvent, InvalidationKeys, InvalidationListener, InvalidationMessage};
use chrono::{DateTime, TimeDelta, Utc};
use service::Clock;
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

use super::Shared;
use super::metrics::Rejection;

/// A publisher sends a message per second. After this time without one it counts as silent.
const MAX_SILENCE: Duration = Duration::from_secs(3);
/// Interval of checks for silent publishers.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A subscription without a message is replaced after this time: the server can have denied it, and does not repeat the denial.
const MAX_QUIET_SUBSCRIPTION: Duration = Duration::from_secs(5);
/// The largest accepted difference between the clocks of a publisher and of this process, including the way of the message.
const MAX_CLOCK_DIFFERENCE: TimeDelta = TimeDelta::minutes(1);
/// A message is accepted until its time is past by [`MAX_CLOCK_DIFFERENCE`], and it can arrive that much before its time.
const REMEMBERED_PUBLISHERS: Duration = Duration::from_mins(2);

/// Applies the events of the feed to the cache until the future is dropped.
pub(super) async fn listen(
    cache: &Shared,
    nats: bus::Config,
    keys: InvalidationKeys,
    clock: &dyn Clock,
) -> Infallible {
    let mut health = FeedHealth::new(Instant::now());
    loop {
        match InvalidationListener::start(&nats, keys.clone()).await {
            Ok(listener) => cache.receive(listener, &mut health, clock).await,
            Err(error) => {
                let error = service::chain(&error);
                tracing::warn!(error, "failed to subscribe to invalidations; retrying");
                tokio::time::sleep(MAX_QUIET_SUBSCRIPTION).await;
            }
        }
        cache.apply(FeedEvent::Disconnected, &mut health, clock);
    }
}

impl Shared {
    /// Applies the events of a subscription until it ends, or no message arrives.
    async fn receive(&self, mut listener: InvalidationListener, health: &mut FeedHealth, clock: &dyn Clock) {
        let started_at = Instant::now();
        let mut check = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = listener.next() => match event {
                    Some(event) => self.apply(event, health, clock),
                    None => return,
                },
                now = check.tick() => {
                    self.check_feed(health);
                    self.free_memory();
                    if health.last_message_at.unwrap_or(started_at) + MAX_QUIET_SUBSCRIPTION <= now {
                        return tracing::debug!("no invalidations received; subscribing again");
                    }
                }
            }
        }
    }

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
            FeedEvent::Unauthenticated => self.metrics.reject(Rejection::Unauthenticated),
            FeedEvent::Message(message) => {
                match health.record(&message, now, clock.now()) {
                    Err(rejection) => return self.metrics.reject(rejection),
                    Ok(Order::Next) => {}
                    Ok(Order::AfterGap) => self.gap("missing sequence number"),
                }
                if !message.invalidations.is_empty() {
                    self.epochs.change(&message.invalidations);
                    self.metrics
                        .observe_lag((clock.now() - message.committed_at).to_std().unwrap_or_default());
                }
                // Last, so that the cache is not read before the message is applied.
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
        if live == self.feed_is_live.load(Ordering::Acquire) {
            return;
        }
        // Also when the feed comes up: a lookup that was in flight when it went down has added an entry since then, and the
        // invalidation of this entry can be lost without a missing number, if its publisher ended.
        self.drop_all();
        self.feed_is_live.store(live, Ordering::Release);
        if live {
            tracing::info!("credential cache in use: invalidation feed is up");
        } else {
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
    publishers: HashMap<Uuid, Publisher>,
    /// Time of the last message on the current connection.
    last_message_at: Option<Instant>,
    /// Start of the downtime that is not counted yet; `None` while the feed is live.
    down_since: Option<Instant>,
}

/// The last message of a publisher.
struct Publisher {
    sequence: u64,
    received_at: Instant,
    /// Whether more messages are expected. Otherwise the publisher is kept only to recognize repeated messages.
    active: bool,
}

/// The position of an accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// No message before it is missing.
    Next,
    /// Messages before it are missing.
    AfterGap,
}

impl FeedHealth {
    pub(super) fn new(now: Instant) -> Self {
        Self { publishers: HashMap::new(), last_message_at: None, down_since: Some(now) }
    }

    /// Records a message. A rejected message has no effect: it may be a copy that was recorded and sent again.
    fn record(
        &mut self,
        message: &InvalidationMessage,
        received_at: Instant,
        now: DateTime<Utc>,
    ) -> Result<Order, Rejection> {
        if (now - message.sent_at).abs() > MAX_CLOCK_DIFFERENCE {
            return Err(Rejection::Outdated);
        }
        let last = self.publishers.get(&message.publisher);
        if last.is_some_and(|last| message.sequence <= last.sequence) {
            return Err(Rejection::Repeated);
        }
        // Without subtraction below zero or addition above the maximum, whatever the message contains.
        let previous = last.filter(|last| last.active).map_or(0, |last| last.sequence);
        let order = if message.sequence.saturating_sub(previous) > 1 { Order::AfterGap } else { Order::Next };
        let publisher = Publisher { sequence: message.sequence, received_at, active: !message.last };
        self.publishers.insert(message.publisher, publisher);
        self.last_message_at = Some(received_at);
        Ok(order)
    }

    fn disconnected(&mut self) {
        self.publishers.values_mut().for_each(|publisher| publisher.active = false);
        self.last_message_at = None;
    }

    /// Deactivates silent publishers. Returns whether there were any.
    fn remove_silent(&mut self, now: Instant) -> bool {
        let is_silent =
            |publisher: &Publisher| publisher.active && publisher.received_at + MAX_SILENCE <= now;
        let silent = self.publishers.values_mut().filter(|publisher| is_silent(publisher));
        let found = silent.map(|publisher| publisher.active = false).count() > 0;
        self.publishers.retain(|_, publisher| now < publisher.received_at + REMEMBERED_PUBLISHERS);
        found
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
    use super::*;

    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn message(publisher: u128, sequence: u64) -> InvalidationMessage {
        InvalidationMessage {
            publisher: Uuid::from_u128(publisher),
            sequence,
            sent_at: NOW,
            committed_at: NOW,
            invalidations: Vec::new(),
            last: false,
        }
    }

    /// A message of publisher 1 that shuts down.
    fn last(sequence: u64) -> InvalidationMessage {
        InvalidationMessage { last: true, ..message(1, sequence) }
    }

    #[test]
    fn missing_sequence_number_is_a_gap_and_publishers_count_separately() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        let order = [(1, 1), (2, 1), (1, 2), (1, 3), (1, 5), (1, 6), (2, 2), (3, 9)]
            .map(|(publisher, sequence)| health.record(&message(publisher, sequence), now, NOW).unwrap());
        let mut expected = [Order::Next; 8];
        expected[4] = Order::AfterGap;
        expected[7] = Order::AfterGap; // earlier messages of a new publisher are missing
        assert_eq!(order, expected);
    }

    #[test]
    fn the_largest_sequence_number_is_recorded_like_any_other() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        assert_eq!(health.record(&message(1, u64::MAX), now, NOW), Ok(Order::AfterGap));
        assert_eq!(health.record(&message(1, u64::MAX), now, NOW), Err(Rejection::Repeated));
        assert_eq!(health.record(&message(1, 1), now, NOW), Err(Rejection::Repeated));
        assert_eq!(health.record(&message(2, 1), now, NOW), Ok(Order::Next));
    }

    #[test]
    fn repeated_messages_are_rejected_also_after_a_reconnection_silence_or_shutdown() {
        let repeated = Err(Rejection::Repeated);
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        assert_eq!(health.record(&message(1, 1), now, NOW), Ok(Order::Next));
        assert_eq!(health.record(&message(1, 2), now, NOW), Ok(Order::Next));
        assert_eq!(health.record(&message(1, 1), now, NOW), repeated);
        health.disconnected();
        assert_eq!(health.record(&message(1, 2), now, NOW), repeated);
        assert!(!health.is_live(now), "a repeated message does not prove that the feed is up");
        assert_eq!(health.record(&message(1, 3), now, NOW), Ok(Order::AfterGap));
        assert!(health.remove_silent(now + MAX_SILENCE));
        assert_eq!(health.record(&message(1, 3), now, NOW), repeated);
        assert_eq!(health.record(&last(4), now, NOW), Ok(Order::AfterGap));
        assert_eq!(health.record(&last(4), now, NOW), repeated);
    }

    #[test]
    fn messages_with_a_distant_time_are_rejected_and_publishers_are_remembered_as_long_as_theirs_are_accepted()
     {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        let second = TimeDelta::seconds(1);
        for (time, accepted) in [
            (NOW + MAX_CLOCK_DIFFERENCE + second, false),
            (NOW - MAX_CLOCK_DIFFERENCE - second, false),
            (NOW + MAX_CLOCK_DIFFERENCE, true),
        ] {
            assert_eq!(health.record(&message(1, 1), now, time).is_ok(), accepted, "{time}");
        }
        // Sent a minute before its time: the copy is outdated two minutes later.
        let early = InvalidationMessage { sent_at: NOW + MAX_CLOCK_DIFFERENCE, ..message(2, 1) };
        assert_eq!(health.record(&early, now, NOW), Ok(Order::Next));
        let (later, outdated) = (now + REMEMBERED_PUBLISHERS, NOW + MAX_CLOCK_DIFFERENCE * 2 + second);
        health.remove_silent(later - Duration::from_secs(1));
        assert_eq!(health.record(&early, later, NOW + MAX_CLOCK_DIFFERENCE), Err(Rejection::Repeated));
        health.remove_silent(later);
        assert!(health.publishers.is_empty());
        assert_eq!(health.record(&early, later, outdated), Err(Rejection::Outdated));
    }

    #[test]
    fn silence_is_reported_once_and_a_shutdown_is_not_silence() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        health.record(&message(2, 1), now, NOW).unwrap();
        health.record(&message(1, 1), now, NOW).unwrap();
        assert_eq!(health.record(&last(2), now, NOW), Ok(Order::Next));
        assert!(!health.remove_silent(now + MAX_SILENCE / 2));
        assert!(health.remove_silent(now + MAX_SILENCE));
        assert!(!health.remove_silent(now + 2 * MAX_SILENCE));
    }

    #[test]
    fn feed_is_live_from_the_first_message_until_silence_or_disconnection() {
        let now = Instant::now();
        let mut health = FeedHealth::new(now);
        assert!(!health.is_live(now));
        health.record(&message(1, 1), now, NOW).unwrap();
        assert!(health.is_live(now) && !health.is_live(now + MAX_SILENCE));
        health.record(&message(1, 2), now + MAX_SILENCE, NOW).unwrap();
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
