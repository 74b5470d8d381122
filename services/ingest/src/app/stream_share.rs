//! The share of an event stream that one tenant can fill, so that no tenant can fill it for all.
//!
//! NATS has no limit per tenant, and does not count the bytes of a tenant. So each replica counts the bytes that it stores for a
//! tenant, and compares them with the free space of the stream, which it measures every second. With a share of 25 %, a tenant
//! can store a third of the free space: this is a quarter of an otherwise empty stream, and less of a stream that others
//! have filled. Some space is always left. If others have nearly filled the stream, it is full for a tenant below its share: the tenant
//! cannot change this.
//!
//! A replica forgets its counts when it stops. A tenant can then use its share of the space that is free at that time. Each
//! replica enforces its part, as for quotas.

use bus::{Replicas, StreamSize, share_of_free};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tenancy::{PerTenant, TenantId};
use tokio::sync::watch;
use tokio::time::Instant;

use super::over_quota::Limit;
use super::stored_bytes::StoredBytes;

/// Approximate size of subject, headers and record of a stored event.
const OVERHEAD: u64 = 400;

/// Enforces the shares of one stream.
pub(crate) struct StreamShare {
    /// Share of an otherwise empty stream in percent; 100 disables the limit.
    percent: u8,
    replicas: Replicas,
    size: watch::Receiver<Option<StreamSize>>,
    /// The bytes that this replica has stored for each tenant.
    tenants: PerTenant<StoredBytes>,
    recent: Mutex<Recent>,
    /// Events for which the stream has no space.
    pub(super) full: Counter,
}

/// The bytes that this replica has stored since the last measurement of the stream.
#[derive(Default)]
struct Recent {
    bytes: u64,
    measured_at: Option<Instant>,
}

impl StreamShare {
    pub(crate) fn new(
        percent: u8,
        replicas: Replicas,
        size: watch::Receiver<Option<StreamSize>>,
        full: Counter,
    ) -> Self {
        Self { percent, replicas, size, tenants: PerTenant::default(), recent: Mutex::default(), full }
    }

    /// Counts an event, unless the tenant has used its share. Its size has no influence.
    ///
    /// # Errors
    /// The limit that rejects the event.
    pub(super) fn admit(&self, tenant_id: &TenantId, bytes: usize, now: Instant) -> Result<(), Limit> {
        let Some((size, max_bytes)) = self.size.borrow().and_then(|size| Some((size, size.max_bytes?)))
        else {
            return Ok(());
        };
        if self.percent >= 100 {
            return Ok(());
        }
        let is_idle = |own: &mut StoredBytes| {
            own.expire(size.max_age, now);
            own.total() == 0
        };
        self.tenants.update(tenant_id, is_idle, |own| {
            let mut recent = self.recent.lock();
            if recent.measured_at.replace(size.measured_at) != Some(size.measured_at) {
                recent.bytes = 0;
            }
            let free = max_bytes.saturating_sub(size.bytes + recent.bytes);
            own.expire(size.max_age, now);
            // If a tenant has stored nothing, NATS decides whether the stream is full.
            if own.total() > 0 && own.total() >= self.limit(free) {
                return Err(self.exceeded(own.total(), free, max_bytes));
            }
            own.add(with_overhead(bytes), size.max_age, now);
            recent.bytes += with_overhead(bytes);
            Ok(())
        })
    }

    /// Removes an event that was counted but not stored.
    pub(super) fn remove(&self, tenant_id: &TenantId, bytes: usize) {
        let bytes = with_overhead(bytes);
        self.tenants.update_known(tenant_id, |own| {
            own.remove(bytes);
            let mut recent = self.recent.lock();
            recent.bytes = recent.bytes.saturating_sub(bytes);
        });
    }

    /// Returns how many bytes of one tenant this replica can store while this many are free.
    fn limit(&self, free: u64) -> u64 {
        share_of_free(self.percent, free) / u64::from(self.replicas.count())
    }

    /// Returns why a tenant that has stored this many bytes has reached its limit. The stream is full from the size of the alert
    /// `SvcStreamNearlyFull`: with more free space, only a tenant with a large part of the stream is rejected.
    fn exceeded(&self, own: u64, free: u64, max_bytes: u64) -> Limit {
        let share = max_bytes / 100 * u64::from(self.percent) / u64::from(self.replicas.count());
        if own < share && free < max_bytes / 5 { Limit::StreamSpace } else { Limit::StreamShare }
    }
}

/// Returns the approximate size of a stored message with a payload of this size.
pub(super) fn with_overhead(size: usize) -> u64 {
    size as u64 + OVERHEAD
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MAX_BYTES: u64 = 1_000_000;
    const MAX_AGE: Duration = Duration::from_hours(72);

    /// A stream and its replicas of ingest.
    struct Stream {
        size: watch::Sender<Option<StreamSize>>,
        start: Instant,
        now: Instant,
    }

    impl Stream {
        fn new() -> Self {
            let now = Instant::now();
            let stream = Self { size: watch::Sender::new(None), start: now, now };
            stream.measure(0);
            stream
        }

        fn replica(&self, percent: u8, replicas: u32) -> StreamShare {
            StreamShare::new(percent, Replicas::fixed(replicas), self.size.subscribe(), Counter::default())
        }

        fn measure(&self, bytes: u64) {
            let (max_bytes, measured_at) = (Some(MAX_BYTES), self.now);
            self.size.send_replace(Some(StreamSize { bytes, max_bytes, max_age: MAX_AGE, measured_at }));
        }

        /// Sends events of 1000 bytes until one is rejected. Returns their bytes.
        fn fill(&self, replica: &StreamShare, tenant: &str) -> u64 {
            let tenant_id = tenant.parse().unwrap();
            1000 * (0..2000).take_while(|_| replica.admit(&tenant_id, 600, self.now).is_ok()).count() as u64
        }
    }

    #[test]
    fn a_tenant_fills_its_share_of_an_empty_stream() {
        let stream = Stream::new();
        for (percent, filled) in [(1, 10_000), (25, 250_000), (50, 500_000), (99, 990_000)] {
            let replica = stream.replica(percent, 1);
            assert_eq!(stream.fill(&replica, "acme"), filled, "{percent}");
            assert_eq!(stream.fill(&replica, "acme"), 0);
        }
        assert_eq!(stream.fill(&stream.replica(100, 1), "acme"), 2_000_000, "no limit");
    }

    #[test]
    fn a_replica_admits_its_part() {
        let stream = Stream::new();
        let replicas = [(); 2].map(|()| stream.replica(25, 2));
        let first = stream.fill(&replicas[0], "acme");
        stream.measure(first);
        let both = first + stream.fill(&replicas[1], "acme");
        assert!((230_000..=270_000).contains(&both), "{both}");
    }

    #[test]
    fn the_share_follows_the_free_space_and_some_is_always_left() {
        let (mut stream, mut filled) = (Stream::new(), 0);
        let replica = stream.replica(25, 1);
        for (tenant, share) in [("a", 250_000), ("b", 188_000), ("c", 141_000), ("d", 106_000)] {
            let own = stream.fill(&replica, tenant);
            assert!(own.abs_diff(share) <= 1000, "{tenant} {own}");
            filled += own;
            stream.now += Duration::from_secs(1);
            stream.measure(filled);
        }
        // A replica that has restarted knows no tenant.
        for _ in 0..10 {
            filled += stream.fill(&stream.replica(25, 1), "a");
            stream.measure(filled);
        }
        assert!(filled < MAX_BYTES - 10_000, "{filled}");
    }

    #[test]
    fn space_that_others_use_counts_after_the_next_measurement() {
        let mut stream = Stream::new();
        let replica = stream.replica(25, 1);
        assert_eq!(stream.fill(&replica, "acme"), 250_000);
        stream.now += Duration::from_secs(1);
        stream.measure(100_000);
        assert_eq!(
            stream.fill(&replica, "acme"),
            38_000,
            "the stream has less than this replica has counted"
        );
        stream.now += Duration::from_secs(1);
        stream.measure(1_000_000);
        assert_eq!(stream.fill(&replica, "acme"), 0);
        assert_eq!(stream.fill(&replica, "other"), 1000, "NATS decides");
    }

    #[test]
    fn the_cause_is_a_nearly_full_stream_unless_the_tenant_has_its_share_of_an_empty_one() {
        let mut stream = Stream::new();
        let replica = stream.replica(25, 1);
        let cause = |stream: &Stream, tenant: &str| {
            replica.admit(&tenant.parse().unwrap(), 600, stream.now).unwrap_err()
        };
        assert_eq!(stream.fill(&replica, "large"), 250_000);
        replica.admit(&"small".parse().unwrap(), 600, stream.now).unwrap();
        stream.now += Duration::from_secs(1);
        stream.measure(700_000);
        assert_eq!(stream.fill(&replica, "medium"), 75_000);
        assert_eq!(cause(&stream, "medium"), Limit::StreamShare, "a quarter of the stream is free");
        for bytes in [999_000, 1_200_000] {
            stream.now += Duration::from_secs(1);
            stream.measure(bytes);
            assert_eq!(cause(&stream, "small"), Limit::StreamSpace, "{bytes}");
            assert_eq!(cause(&stream, "medium"), Limit::StreamSpace, "{bytes}");
            assert_eq!(cause(&stream, "large"), Limit::StreamShare, "{bytes}");
        }
    }

    #[test]
    fn events_that_expired_or_were_not_stored_do_not_count() {
        let mut stream = Stream::new();
        let (replica, acme) = (stream.replica(25, 1), "acme".parse().unwrap());
        assert_eq!(stream.fill(&replica, "acme"), 250_000);
        (0..10).for_each(|_| replica.remove(&acme, 600));
        assert_eq!(stream.fill(&replica, "acme"), 10_000);
        stream.now = stream.start + Duration::from_hours(75);
        stream.measure(0);
        assert_eq!(stream.fill(&replica, "acme"), 250_000);
    }

    #[test]
    fn tenants_without_stored_events_are_removed() {
        let mut stream = Stream::new();
        let replica = stream.replica(25, 1);
        for number in 0..2048 {
            replica.admit(&format!("tenant{number}").parse().unwrap(), 1, stream.now).unwrap();
        }
        assert_eq!(replica.tenants.count(), 2048);
        stream.now += Duration::from_hours(75);
        replica.admit(&"acme".parse().unwrap(), 1, stream.now).unwrap();
        assert_eq!(replica.tenants.count(), 1);
    }

    #[test]
    fn without_a_measurement_or_a_maximum_size_nothing_is_limited() {
        let stream = Stream::new();
        let replica = stream.replica(25, 1);
        stream.size.send_replace(None);
        assert_eq!(stream.fill(&replica, "acme"), 2_000_000);
        let (bytes, max_age, measured_at) = (0, MAX_AGE, stream.now);
        stream.size.send_replace(Some(StreamSize { bytes, max_bytes: None, max_age, measured_at }));
        assert_eq!(stream.fill(&replica, "acme"), 2_000_000);
    }
}
