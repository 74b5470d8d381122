//! The quarantine: invalid items of requests, stored as dead letters of their tenant. Its size is bounded for each tenant.
//!
//! NATS counts the items of a tenant, and not their bytes. So each replica estimates the bytes: it knows the size of what it
//! has stored itself, and takes the average for the rest. Before it stores items, it asks for their number, so that deleted and
//! expired items do not count. Items that other replicas store at the same time can exceed the bounds a little; NATS stores at
//! most 10,000 for a tenant.
//!
//! Quarantined items use at most half of the stream, of which one tenant gets its share. The other half is for the dead letters of
//! consumers ([`DeadLetterSpace`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bus::{
    Ack, DeadLetterSpace, Message, PublishError, Publisher, StreamUsage, quarantine_subject, share_of_free,
};
use contract::ProblemKind;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use service::Tasks;
use service::telemetry::Metrics;
use tenancy::{PerTenant, TenantId};
use tokio::time::Instant;

use super::stream_share::with_overhead;
use crate::config::QuarantineSettings;

/// Interval at which the metric of the used part is measured.
const MEASUREMENT_INTERVAL: Duration = Duration::from_secs(5);
/// The problems of items that can be quarantined.
const REASONS: [ProblemKind; 6] = [
    ProblemKind::MalformedJson,
    ProblemKind::EventTooLarge,
    ProblemKind::BatchTooLarge,
    ProblemKind::ValidationFailed,
    ProblemKind::SourceNotAllowed,
    ProblemKind::EventIdConflict,
];

/// Stores invalid items. Clones share the state.
#[derive(Clone)]
pub(crate) struct Quarantine(Arc<QuarantineState>);

struct QuarantineState {
    publisher: Publisher,
    bounds: Bounds,
    tenants: PerTenant<Usage>,
    /// The items of all tenants.
    all: Mutex<Usage>,
    metrics: QuarantineMetrics,
}

/// What one tenant can use.
struct Bounds {
    max_items: u64,
    max_bytes: u64,
    /// Share of an otherwise empty stream in percent.
    stream_share: u8,
}

/// The quarantined items of a tenant, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    stored: Size,
    /// Admitted, and not settled yet.
    in_flight: Size,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    items: u64,
    bytes: u64,
}

/// Admitted items. They are released when the request is settled, or dropped because its client is gone.
struct InFlight<'a> {
    shared: &'a QuarantineState,
    tenant_id: &'a TenantId,
    sizes: &'a [usize],
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.shared.tenants.update_known(self.tenant_id, |own| own.release(self.sizes));
        self.shared.all.lock().release(self.sizes);
    }
}

impl Quarantine {
    /// Starts the measurement of the metrics. `stream_share` is the share of a stream that one tenant can fill, in percent.
    pub(crate) fn start(
        publisher: Publisher,
        settings: QuarantineSettings,
        stream_share: u8,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        let QuarantineSettings { max_items, max_bytes } = settings;
        let bounds = Bounds { max_items, max_bytes, stream_share };
        let metrics = QuarantineMetrics::new(metrics);
        let (tenants, all) = (PerTenant::default(), Mutex::default());
        let quarantine = Self(Arc::new(QuarantineState { publisher, bounds, tenants, all, metrics }));
        let measured = quarantine.clone();
        tasks.every("quarantine measurement", MEASUREMENT_INTERVAL, move || {
            let quarantine = measured.clone();
            async move { quarantine.measure().await }
        });
        quarantine
    }

    /// Stores the messages of a request. Returns one outcome per message, in the same order. `StreamFull` means that the quarantine of the
    /// tenant is full. `parts` are the numbers of messages of the items, in order. Of an item that does not fit, nothing is stored.
    pub(super) async fn store(
        &self,
        tenant_id: &TenantId,
        messages: Vec<Message>,
        parts: &[usize],
        deadline: Instant,
    ) -> Vec<Result<Ack, PublishError>> {
        let shared = &*self.0;
        let QuarantineState { publisher, bounds, tenants, all, .. } = shared;
        let count = messages.len();
        if count == 0 {
            return Vec::new();
        }
        let (usage, counts) = match publisher.usage_by_subject(&quarantine_subject(None)).await {
            Ok(found) => found,
            Err(error) => return vec![Err(error); count],
        };
        let items = counts.get(&quarantine_subject(Some(tenant_id))).copied().unwrap_or_default();
        let sizes: Vec<_> = messages.iter().map(|message| message.payload().len()).collect();
        let admitted = tenants.update(tenant_id, Usage::is_idle, |own| {
            own.observe(items, average(&usage));
            let mut all = all.lock();
            all.observe(usage.matching, average(&usage));
            let admitted = own.admit(bounds, all.free(&usage), &sizes, parts);
            all.take(&admitted.iter().map(|index| sizes[*index]).collect::<Vec<_>>());
            admitted
        });
        let sizes: Vec<_> = admitted.iter().map(|index| sizes[*index]).collect();
        let in_flight = InFlight { shared, tenant_id, sizes: &sizes };
        let mut messages: Vec<_> = messages.into_iter().map(Some).collect();
        let messages: Vec<_> = admitted.iter().filter_map(|index| messages[*index].take()).collect();
        let published = match messages.len() {
            0 => Vec::new(),
            _ => publisher.publish_all(tenant_id, messages, deadline).await,
        };
        tenants.update_known(tenant_id, |own| own.add_stored(&sizes, &published));
        all.lock().add_stored(&sizes, &published);
        drop(in_flight);
        let mut outcomes = vec![Err(PublishError::StreamFull); count];
        for (index, outcome) in admitted.into_iter().zip(published) {
            outcomes[index] = outcome;
        }
        outcomes
    }

    /// Counts items that were quarantined, or rejected because the quarantine is full.
    pub(super) fn count(&self, code: &str, outcome: &Result<Ack, PublishError>) {
        let QuarantineMetrics { items, rejected, .. } = &self.0.metrics;
        match outcome {
            Ok(ack) if !ack.duplicate => items.get(code).map(Counter::inc),
            Err(PublishError::StreamFull) => Some(rejected.inc()),
            Ok(_) | Err(_) => None,
        };
    }

    /// Measures the largest part of its quarantine that a tenant uses, and the used parts of the halves of the stream.
    async fn measure(&self) {
        let QuarantineState { publisher, bounds, tenants, all, metrics } = &*self.0;
        let Ok((usage, counts)) = publisher.usage_by_subject(&quarantine_subject(None)).await else { return };
        let parts = counts.iter().filter_map(|(subject, count)| {
            let tenant_id = subject.split('.').nth(3)?.parse().ok()?;
            Some(tenants.update(&tenant_id, Usage::is_idle, |own| {
                own.observe(*count, average(&usage));
                own.used(bounds)
            }))
        });
        metrics.used.set(parts.fold(0.0, f64::max));
        let quarantined = {
            let mut all = all.lock();
            all.observe(usage.matching, average(&usage));
            all.stored.in_stream()
        };
        let space = DeadLetterSpace::new(&usage, usage.matching);
        metrics.consumers_half.set(space.used_by_consumers());
        metrics.quarantine_half.set(space.used_by_quarantine(quarantined));
    }
}

impl Size {
    /// Approximate size with subjects, headers and records.
    fn in_stream(&self) -> u64 {
        self.bytes.saturating_add(self.items.saturating_mul(with_overhead(0)))
    }
}

/// Average size of the payload of a message of the stream.
fn average(usage: &StreamUsage) -> u64 {
    let average = usage.bytes.checked_div(usage.messages).unwrap_or_default();
    average.saturating_sub(with_overhead(0))
}

impl Usage {
    fn is_idle(&mut self) -> bool {
        *self == Self::default()
    }

    /// Takes the number of items that the stream has. The bytes change in proportion.
    fn observe(&mut self, items: u64, average: u64) {
        let known = &mut self.stored;
        if items < known.items {
            let bytes = u128::from(known.bytes) * u128::from(items) / u128::from(known.items);
            known.bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        } else {
            let average = known.bytes.checked_div(known.items).unwrap_or(average);
            known.bytes = known.bytes.saturating_add((items - known.items).saturating_mul(average));
        }
        known.items = items;
    }

    /// Admits the items of a request that fit, each with all of its `parts`, if all items of the stream can still take `free` bytes.
    /// Returns the indexes of their messages.
    fn admit(&mut self, bounds: &Bounds, mut free: u64, sizes: &[usize], parts: &[usize]) -> Vec<usize> {
        let mut admitted = Vec::with_capacity(sizes.len());
        let mut next = 0;
        for count in parts {
            let item = next..next + count;
            next = item.end;
            let before = (self.in_flight, free);
            let fits = sizes[item.clone()].iter().all(|&size| {
                let own = Size {
                    items: self.stored.items + self.in_flight.items,
                    bytes: self.stored.bytes + self.in_flight.bytes,
                };
                let fits = own.items < bounds.max_items
                    && own.bytes + size as u64 <= bounds.max_bytes
                    && with_overhead(size) <= free
                    && (own.items == 0 || own.in_stream() < share_of_free(bounds.stream_share, free));
                if fits {
                    self.take(&[size]);
                    free -= with_overhead(size);
                }
                fits
            });
            if fits {
                admitted.extend(item);
            } else {
                (self.in_flight, free) = before;
            }
        }
        admitted
    }

    /// Returns the bytes that the items of all tenants can still take, of which these are the usage.
    fn free(&self, stream: &StreamUsage) -> u64 {
        let free =
            DeadLetterSpace::new(stream, self.stored.items).free_for_quarantine(self.stored.in_stream());
        free.saturating_sub(self.in_flight.in_stream())
    }

    /// Adds items to those in flight.
    fn take(&mut self, sizes: &[usize]) {
        self.in_flight.items += sizes.len() as u64;
        self.in_flight.bytes += sizes.iter().sum::<usize>() as u64;
    }

    /// Counts the items that were stored.
    fn add_stored(&mut self, sizes: &[usize], outcomes: &[Result<Ack, PublishError>]) {
        let stored = |(size, outcome): (&usize, &Result<Ack, PublishError>)| {
            matches!(outcome, Ok(ack) if !ack.duplicate).then_some(*size as u64)
        };
        for size in sizes.iter().zip(outcomes).filter_map(stored) {
            self.stored.items += 1;
            self.stored.bytes += size;
        }
    }

    /// Removes items from those in flight.
    fn release(&mut self, sizes: &[usize]) {
        self.in_flight.items = self.in_flight.items.saturating_sub(sizes.len() as u64);
        self.in_flight.bytes = self.in_flight.bytes.saturating_sub(sizes.iter().sum::<usize>() as u64);
    }

    /// Returns the used part of the bounds: 0 to 1.
    fn used(&self, bounds: &Bounds) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a part needs few digits")]
        let part = |used: u64, max: u64| if max == 0 { 0.0 } else { used as f64 / max as f64 };
        part(self.stored.items, bounds.max_items).max(part(self.stored.bytes, bounds.max_bytes)).min(1.0)
    }
}

struct QuarantineMetrics {
    /// By problem code.
    items: HashMap<&'static str, Counter>,
    rejected: Counter,
    used: Gauge<f64, AtomicU64>,
    consumers_half: Gauge<f64, AtomicU64>,
    quarantine_half: Gauge<f64, AtomicU64>,
}

impl QuarantineMetrics {
    fn new(metrics: &Metrics) -> Self {
        let items = |reason: ProblemKind| {
            let help = "Invalid items stored in the quarantine of their tenant";
            (reason.code(), metrics.metric("quarantined_items", help, &[("reason", reason.code())]))
        };
        let half = |of: &'static str| {
            let help = "Used part of the half of `UDM_DLQ` for dead letters of consumers, or for quarantined items: 0 to 1";
            metrics.metric("dead_letter_used_ratio", help, &[("half", of)])
        };
        Self {
            items: REASONS.map(items).into(),
            consumers_half: half("consumers"),
            quarantine_half: half("quarantine"),
            rejected: metrics.metric(
                "quarantine_rejected_items",
                "Invalid items rejected because the quarantine of their tenant is full",
                &[],
            ),
            used: metrics.metric(
                "quarantine_used_ratio",
                "Largest part of its quarantine that a tenant uses: 0 to 1",
                &[],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn bounds(max_items: u64, max_bytes: u64) -> Bounds {
        Bounds { max_items, max_bytes, stream_share: 25 }
    }

    fn stored(duplicate: bool) -> Ack {
        Ack { stream: "UDM_DLQ".into(), sequence: 1, duplicate }
    }

    #[test]
    fn items_are_admitted_up_to_their_number_and_bytes() {
        let mut own = Usage::default();
        assert_eq!(own.admit(&bounds(3, 1000), MIB, &[10; 5], &[1; 5]), [0, 1, 2]);
        own.add_stored(&[10; 3], &[Ok(stored(false)), Ok(stored(true)), Err(PublishError::Unavailable)]);
        own.release(&[10; 3]);
        assert_eq!(own, Usage { stored: Size { items: 1, bytes: 10 }, in_flight: Size::default() });
        assert_eq!(own.admit(&bounds(100, 1000), MIB, &[400; 5], &[1; 5]), [0, 1], "800 of 990 bytes");
        assert!(own.admit(&bounds(0, 1000), MIB, &[1], &[1]).is_empty());
    }

    #[test]
    fn an_item_in_parts_is_admitted_as_a_whole() {
        let mut own = Usage::default();
        assert!(own.admit(&bounds(10, 1000), MIB, &[400; 3], &[3]).is_empty());
        assert_eq!(own, Usage::default());
        assert_eq!(
            own.admit(&bounds(10, 1000), MIB, &[400; 4], &[1, 2, 1]),
            [0, 3],
            "a later item that fits"
        );
        assert_eq!(own.in_flight, Size { items: 2, bytes: 800 });
        assert_eq!(own.admit(&bounds(10, 2000), MIB, &[400; 3], &[2, 1]), [0, 1, 2]);
    }

    #[test]
    fn deleted_items_and_those_of_other_replicas_are_counted_by_their_number() {
        let mut own = Usage { stored: Size { items: 10, bytes: 1000 }, in_flight: Size::default() };
        own.observe(4, 7);
        assert_eq!(own.stored, Size { items: 4, bytes: 400 });
        own.observe(6, 7);
        assert_eq!(own.stored, Size { items: 6, bytes: 600 });
        own.observe(0, 7);
        own.observe(5, 7);
        assert_eq!(own.stored, Size { items: 5, bytes: 35 }, "after a restart, the average of the stream");
    }

    #[test]
    fn a_tenant_gets_its_share_of_the_free_part_of_the_half() {
        let (bounds, size) = (bounds(10_000, 64 * MIB), 256 * 1024);
        let admitted = |free| Usage::default().admit(&bounds, free, &[size; 1000], &[1; 1000]).len();
        assert!((31..=32).contains(&admitted(32 * MIB)), "{}", admitted(32 * MIB));
        assert!((15..=16).contains(&admitted(16 * MIB)), "{}", admitted(16 * MIB));
        assert_eq!((admitted(MIB / 2), admitted(0)), (1, 0));
        let unlimited = Bounds { stream_share: 100, ..bounds };
        let admitted = Usage::default().admit(&unlimited, 32 * MIB, &[size; 1000], &[1; 1000]).len();
        assert!((120..=127).contains(&admitted), "{admitted}");
    }

    #[test]
    fn the_items_of_all_tenants_share_the_half_of_the_stream() {
        let mut all = Usage::default();
        let stream =
            |bytes, items| StreamUsage { max_bytes: Some(64 * MIB), bytes, messages: items, matching: items };
        assert_eq!(all.free(&stream(0, 0)), 32 * MIB);
        all.take(&[1000; 10]);
        assert_eq!(all.free(&stream(0, 0)), 32 * MIB - 14_000, "in flight");
        all.add_stored(&[1000; 10], &std::array::from_fn::<_, 10, _>(|_| Ok(stored(false))));
        all.release(&[1000; 10]);
        assert_eq!(all.free(&stream(14_000, 10)), 32 * MIB - 14_000, "stored");
        assert_eq!(
            all.free(&stream(64_000, 10)),
            32 * MIB - 64_000,
            "other replicas have stored larger ones"
        );
    }

    #[test]
    fn the_used_part_is_the_larger_one_of_items_and_bytes() {
        let usage = |items, bytes| Usage { stored: Size { items, bytes }, in_flight: Size::default() };
        assert!((usage(5, 10).used(&bounds(10, 100)) - 0.5).abs() < f64::EPSILON);
        assert!((usage(1, 80).used(&bounds(10, 100)) - 0.8).abs() < f64::EPSILON);
        assert!(usage(1, 80).used(&bounds(0, 0)).abs() < f64::EPSILON);
    }
}
