//! The bytes that this process has stored in the stream for one tenant and that have not expired.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Bytes are counted in slots of this fraction of the retention time, so that memory is bounded. They expire at most one slot late.
const SLOTS: u32 = 32;

/// Start and bytes of slots, oldest first.
#[derive(Debug, Default)]
pub(super) struct StoredBytes {
    slots: VecDeque<(Instant, u64)>,
    total: u64,
}

impl StoredBytes {
    /// Removes the bytes that are older than the retention time. Zero means that nothing expires.
    pub(super) fn expire(&mut self, max_age: Duration, now: Instant) {
        if max_age.is_zero() {
            return;
        }
        let end = |start: Instant| start + max_age + max_age / SLOTS;
        while let Some((_, bytes)) = self.slots.pop_front_if(|(start, _)| end(*start) <= now) {
            self.total -= bytes;
        }
    }

    /// Adds the bytes of an event.
    pub(super) fn add(&mut self, bytes: u64, max_age: Duration, now: Instant) {
        let is_over =
            |start: Instant| !max_age.is_zero() && now.saturating_duration_since(start) >= max_age / SLOTS;
        if self.slots.back().is_none_or(|(start, _)| is_over(*start)) {
            self.slots.push_back((now, 0));
        }
        if let Some((_, sum)) = self.slots.back_mut() {
            *sum += bytes;
            self.total += bytes;
        }
    }

    /// Removes the bytes of an event that was not stored.
    pub(super) fn remove(&mut self, bytes: u64) {
        if let Some((_, sum)) = self.slots.back_mut() {
            let removed = bytes.min(*sum);
            *sum -= removed;
            self.total -= removed;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const DAYS: Duration = Duration::from_hours(72);

    #[test]
    fn bytes_expire_after_the_retention_time() {
        let (mut stored, start) = (StoredBytes::default(), Instant::now());
        stored.add(10, DAYS, start);
        stored.add(5, DAYS, start + 24 * HOUR);
        for (hours, total) in [(0, 15), (72, 15), (75, 5), (96, 5), (99, 0)] {
            stored.expire(DAYS, start + hours * HOUR);
            assert_eq!(stored.total(), total, "{hours}");
        }
    }

    #[test]
    fn without_a_retention_time_nothing_expires() {
        let (mut stored, start) = (StoredBytes::default(), Instant::now());
        for hours in 0..1000 {
            stored.expire(Duration::ZERO, start + hours * HOUR);
            stored.add(1, Duration::ZERO, start + hours * HOUR);
        }
        assert_eq!((stored.total(), stored.slots.len()), (1000, 1));
    }

    #[test]
    fn memory_is_bounded_and_no_byte_is_lost() {
        let (mut stored, start) = (StoredBytes::default(), Instant::now());
        let minutes = 200 * 60;
        for minute in 0..minutes {
            let now = start + Duration::from_mins(minute);
            stored.expire(DAYS, now);
            stored.add(3, DAYS, now);
            assert!(stored.slots.len() <= 34, "{}", stored.slots.len());
        }
        let expected = 72 * 60 * 3..=75 * 60 * 3;
        assert!(expected.contains(&stored.total()), "{}", stored.total());
    }

    #[test]
    fn bytes_that_were_not_stored_are_removed() {
        let (mut stored, start) = (StoredBytes::default(), Instant::now());
        stored.remove(1);
        stored.add(10, DAYS, start);
        stored.remove(4);
        assert_eq!(stored.total(), 6);
        stored.remove(100);
        assert_eq!(stored.total(), 0);
    }
}
