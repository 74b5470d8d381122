//! Whether the cache may be believed now: it may not while invalidations may be missing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::InvalidationMessage;
use tokio::time::Instant;
use uuid::Uuid;

use super::BELIEVED;

/// A publisher says something every second. One that said nothing for this long has gone, or is not heard.
const SILENCE: Duration = Duration::from_secs(3);

/// From when on the cache is believed.
pub(super) struct Trust {
    start: Instant,
    /// In nanoseconds since the start.
    from: AtomicU64,
}

impl Trust {
    /// Nothing yet: for a while it is waited for invalidations to be heard.
    pub(super) fn none_yet() -> Self {
        let trust = Self { start: Instant::now(), from: AtomicU64::new(0) };
        trust.suspend(trust.start);
        trust
    }

    pub(super) fn holds(&self, now: Instant) -> bool {
        self.nanoseconds(now) >= self.from.load(Ordering::Relaxed)
    }

    /// Hints may have been missed: what was remembered until now shall have ended before anything is believed again. Returns
    /// how much longer that takes than was known before.
    pub(super) fn suspend(&self, now: Instant) -> Duration {
        let from = self.nanoseconds(now + BELIEVED);
        let before = self.from.fetch_max(from, Ordering::Relaxed);
        Duration::from_nanos(from.saturating_sub(before.max(self.nanoseconds(now))))
    }

    /// Hints are heard from now on. That is enough while nothing was ever remembered; else some were missed.
    pub(super) fn begin(&self, now: Instant) -> Duration {
        let first = self.nanoseconds(self.start + BELIEVED);
        let begun = self.nanoseconds(now);
        let never_held = begun < first
            && self.from.compare_exchange(first, begun, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if never_held { Duration::ZERO } else { self.suspend(now) }
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        // An overflow takes 584 years.
        at.saturating_duration_since(self.start).as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

/// The publishers that are heard, with the number of the last message and its time.
#[derive(Default)]
pub(super) struct Publishers(HashMap<Uuid, (u64, Instant)>);

impl Publishers {
    /// Takes note of a message. Returns whether none was missed.
    pub(super) fn hear(&mut self, hint: &InvalidationMessage, now: Instant) -> bool {
        let expected = match self.0.get(&hint.publisher) {
            Some((number, _)) => number + 1,
            None => 1,
        };
        if hint.last {
            self.0.remove(&hint.publisher);
        } else {
            self.0.insert(hint.publisher, (hint.number, now));
        }
        hint.number == expected
    }

    /// Forgets whoever is silent. Returns whether nobody is.
    pub(super) fn forget_silent(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (_, heard_at)| now < *heard_at + SILENCE);
        self.0.len() == before
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn hint(publisher: u128, number: u64) -> InvalidationMessage {
        let publisher = Uuid::from_u128(publisher);
        InvalidationMessage {
            publisher,
            number,
            since: DateTime::UNIX_EPOCH,
            revoked: Vec::new(),
            last: false,
        }
    }

    #[test]
    fn a_gap_in_a_publishers_numbers_is_noticed_and_publishers_count_apart() {
        let (mut publishers, now) = (Publishers::default(), Instant::now());
        assert!(publishers.hear(&hint(1, 1), now) && publishers.hear(&hint(2, 1), now));
        assert!(publishers.hear(&hint(1, 2), now) && publishers.hear(&hint(1, 3), now));
        assert!(!publishers.hear(&hint(1, 5), now) && publishers.hear(&hint(1, 6), now));
        assert!(publishers.hear(&hint(2, 2), now));
        assert!(!publishers.hear(&hint(3, 9), now), "what it said before was missed");
    }

    #[test]
    fn silence_is_noticed_once_and_a_farewell_is_no_silence() {
        let (mut publishers, now) = (Publishers::default(), Instant::now());
        publishers.hear(&hint(1, 1), now);
        publishers.hear(&hint(2, 1), now);
        assert!(publishers.hear(&InvalidationMessage { last: true, ..hint(2, 2) }, now));
        assert!(publishers.forget_silent(now + SILENCE / 2));
        assert!(!publishers.forget_silent(now + SILENCE));
        assert!(publishers.forget_silent(now + 2 * SILENCE));
    }

    #[test]
    fn trust_begins_with_the_first_connection_and_is_suspended_by_what_was_missed() {
        let trust = Trust::none_yet();
        let start = trust.start;
        assert!(!trust.holds(start));
        let connected = start + Duration::from_millis(10);
        assert_eq!(trust.begin(connected), Duration::ZERO);
        assert!(trust.holds(connected));
        let missed = start + Duration::from_mins(1);
        assert_eq!(trust.suspend(missed), BELIEVED);
        assert!(!trust.holds(missed + BELIEVED / 2));
        assert_eq!(trust.begin(missed + BELIEVED / 5), BELIEVED / 5, "a second connection is too late");
        assert!(!trust.holds(missed + BELIEVED));
        assert!(trust.holds(missed + 2 * BELIEVED));
    }

    #[test]
    fn without_a_connection_the_ceiling_is_trusted_and_a_late_first_one_has_missed_hints() {
        let trust = Trust::none_yet();
        let late = trust.start + 2 * BELIEVED;
        assert!(trust.holds(late));
        assert_eq!(trust.begin(late), BELIEVED);
        assert!(!trust.holds(late));
    }
}
