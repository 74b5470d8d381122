//! Quotas of the tenants: events and bytes per second. The bytes of a request take their tokens before they are parsed, and each of its
//! items takes one of events, whatever becomes of them; an event takes it before it is published.
//!
//! Each replica enforces the quota divided by the number of active replicas, so a tenant gets its whole quota if its requests
//! are distributed evenly. While replicas start or stop, the sum of the parts can differ from the quota.

use std::time::Duration;

use bus::Replicas;
use contract::identity::Quota;
use ratelimit::Gcra;
use tenancy::{PerTenant, TenantId};
use tokio::time::Instant;

use super::over_quota::{Admission, Admit, Limit, MAX_RETRY_AFTER, OverQuota};

/// The tokens that a tenant can take at once are those of one second.
const BURST: Duration = Duration::from_secs(1);
/// The tokens of the future that a request can take. A request of any size is paid for, and the tenant waits at most for this time and
/// one event.
const MAX_DEBT: Duration = Duration::from_secs(2);
const NANOSECONDS: u128 = 1_000_000_000;

/// Enforces the quotas.
pub(crate) struct Quotas {
    /// Applies to each limit that a tenant does not have.
    default: Quota,
    replicas: Replicas,
    tenants: PerTenant<Buckets>,
}

/// The state of a tenant that has a quota.
#[derive(Default)]
struct Buckets {
    events: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// The number of bytes that the events of a request can have. Their tokens are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance(usize);

/// The state of one limit, as [`Gcra`] defines it.
#[derive(Clone, Copy)]
struct Bucket {
    rate: TokenRate,
    lead: Duration,
    updated_at: Instant,
}

/// The part of a limit that one replica enforces: tokens per second, divided by the number of replicas.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TokenRate {
    limit: u32,
    replicas: u32,
}

impl Quotas {
    /// Returns the quotas. `default` applies to each limit that a tenant does not have.
    pub(crate) fn new(default: Quota, replicas: Replicas) -> Self {
        Self { default, replicas, tenants: PerTenant::default() }
    }

    /// Returns the limit of which the tenant has no token.
    pub(super) fn exhausted(&self, tenant_id: &TenantId, quota: &Quota, now: Instant) -> Option<OverQuota> {
        self.update(tenant_id, quota, now, |buckets| buckets.exhausted())?
    }

    /// Takes tokens for the bytes of a request, whatever becomes of them, up to [`MAX_DEBT`]. Returns how many of them its events can have.
    pub(super) fn take_bytes(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        bytes: usize,
        now: Instant,
    ) -> Allowance {
        let taken = self.update(tenant_id, quota, now, |buckets| buckets.take_bytes(bytes));
        taken.unwrap_or(Allowance::UNLIMITED)
    }

    /// Takes tokens for events that are not stored, up to [`MAX_DEBT`].
    pub(super) fn take_events(&self, tenant_id: &TenantId, quota: &Quota, events: usize, now: Instant) {
        self.update(tenant_id, quota, now, |buckets| {
            buckets.events.iter_mut().for_each(|bucket| _ = bucket.take_available(events));
        });
    }

    /// Takes tokens for the events of a request, given by their sizes in bytes, in order. After the first event above the
    /// quota, no other one is admitted, so that the order is kept. With [`Admit::AllOrNone`], only the first event is checked.
    pub(super) fn admit(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        allowance: Allowance,
        sizes: &[usize],
        admit: Admit,
        now: Instant,
    ) -> Admission {
        let admission = self.update(tenant_id, quota, now, |buckets| buckets.admit(allowance, sizes, admit));
        admission.unwrap_or(Admission { admitted: sizes.len(), over_quota: None })
    }

    /// Changes the state of a tenant that has a quota.
    fn update<T>(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        now: Instant,
        change: impl FnOnce(&mut Buckets) -> T,
    ) -> Option<T> {
        let limits = Quota {
            events_per_second: quota.events_per_second.or(self.default.events_per_second),
            bytes_per_second: quota.bytes_per_second.or(self.default.bytes_per_second),
        };
        if limits == Quota::default() {
            return None;
        }
        let replicas = self.replicas.count();
        Some(self.tenants.update(
            tenant_id,
            |buckets| buckets.are_full(now),
            |buckets| {
                Bucket::update(&mut buckets.events, limits.events_per_second, replicas, now);
                Bucket::update(&mut buckets.bytes, limits.bytes_per_second, replicas, now);
                change(buckets)
            },
        ))
    }

    /// Gives back the tokens of events that were admitted but not stored.
    pub(super) fn give_back(&self, tenant_id: &TenantId, events: usize, bytes: usize) {
        self.tenants.update_known(tenant_id, |buckets| {
            buckets.events.iter_mut().for_each(|bucket| bucket.give_back(events));
            buckets.bytes.iter_mut().for_each(|bucket| bucket.give_back(bytes));
        });
    }
}

impl Allowance {
    pub(crate) const UNLIMITED: Self = Self(usize::MAX);
}

impl Buckets {
    fn exhausted(&self) -> Option<OverQuota> {
        let events = self.events.as_ref().and_then(|bucket| bucket.exhausted(Limit::EventsPerSecond));
        events.or_else(|| self.bytes.as_ref()?.exhausted(Limit::BytesPerSecond))
    }

    fn take_bytes(&mut self, bytes: usize) -> Allowance {
        self.bytes.as_mut().map_or(Allowance::UNLIMITED, |bucket| Allowance(bucket.take_available(bytes)))
    }

    fn admit(&mut self, allowance: Allowance, sizes: &[usize], admit: Admit) -> Admission {
        let (mut admitted, mut bytes) = (0, 0);
        let (mut events_exceeded, mut bytes_exceeded) = (false, false);
        // Each event is admitted whatever its size, so that a large one is not starved by small ones.
        for size in sizes {
            let is_checked = admit == Admit::First || admitted == 0;
            if is_checked && bytes > 0 && bytes >= allowance.0 {
                bytes_exceeded = true;
                break;
            }
            if let Some(bucket) = &mut self.events {
                if is_checked && bucket.time_left() < bucket.rate.cost(1) {
                    events_exceeded = true;
                    break;
                }
                bucket.take(1);
            }
            admitted += 1;
            bytes += size;
        }
        self.bytes.iter_mut().for_each(|bucket| bucket.take(bytes.saturating_sub(allowance.0)));
        let events = self.events.as_ref().filter(|_| events_exceeded);
        let bytes = self.bytes.as_ref().filter(|_| bytes_exceeded);
        let over_quota = events.map(|bucket| bucket.over_quota(Limit::EventsPerSecond));
        let over_quota = over_quota.or_else(|| Some(bytes?.over_quota(Limit::BytesPerSecond)));
        Admission { admitted, over_quota }
    }

    /// Returns whether the state equals that of a new tenant.
    fn are_full(&self, now: Instant) -> bool {
        [&self.events, &self.bytes].into_iter().flatten().all(|bucket| bucket.lead_at(now).is_zero())
    }
}

impl Bucket {
    /// Returns the delay until there is a token, if it has none.
    fn exhausted(&self, limit: fn(u32) -> Limit) -> Option<OverQuota> {
        let retry_after = self.rate.rule().decide(self.lead, Duration::ZERO).err()?;
        Some(OverQuota { limit: limit(self.rate.limit), retry_after: retry_after.min(MAX_RETRY_AFTER) })
    }

    /// What the rest of a request exceeds.
    fn over_quota(&self, limit: fn(u32) -> Limit) -> OverQuota {
        let retry_after = self.rate.cost(1);
        self.exhausted(limit).unwrap_or(OverQuota { limit: limit(self.rate.limit), retry_after })
    }

    /// Time at the rate of the limit of which a request can still take the tokens.
    fn time_left(&self) -> Duration {
        (BURST + MAX_DEBT).max(self.rate.cost(1)).saturating_sub(self.lead)
    }

    /// Applies the current limit, from now on.
    fn update(bucket: &mut Option<Self>, limit: Option<u32>, replicas: u32, now: Instant) {
        *bucket = limit.map(|limit| {
            let rate = TokenRate { limit, replicas };
            let lead = bucket.map_or(Duration::ZERO, |known| {
                let lead = known.lead_at(now);
                // Tokens of the future cost as much time as at the new rate.
                let debt = lead.saturating_sub(BURST);
                if rate == known.rate {
                    lead
                } else {
                    lead.saturating_sub(debt) + rate.cost(known.rate.tokens(debt))
                }
            });
            Self { rate, lead, updated_at: now }
        });
    }

    fn lead_at(&self, now: Instant) -> Duration {
        self.lead.saturating_sub(now.saturating_duration_since(self.updated_at))
    }

    /// Takes tokens, up to [`MAX_DEBT`]. Returns how many a request could take.
    fn take_available(&mut self, tokens: usize) -> usize {
        let available = usize::try_from(self.rate.tokens(self.time_left())).unwrap_or(usize::MAX);
        self.take(tokens.min(available));
        available
    }

    fn take(&mut self, tokens: usize) {
        self.lead = self.lead.saturating_add(self.rate.cost(tokens as u128));
    }

    fn give_back(&mut self, tokens: usize) {
        self.lead = self.lead.saturating_sub(self.rate.cost(tokens as u128));
    }
}

impl TokenRate {
    fn rule(self) -> Gcra {
        Gcra::new(BURST, self.cost(1))
    }

    /// Returns the time that the rate takes for tokens.
    fn cost(self, tokens: u128) -> Duration {
        let nanoseconds = tokens * u128::from(self.replicas) * NANOSECONDS / u128::from(self.limit.max(1));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns the tokens of a time.
    fn tokens(self, time: Duration) -> u128 {
        time.as_nanos() * u128::from(self.limit) / (u128::from(self.replicas) * NANOSECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(default: Quota, replicas: u32) -> Quotas {
        Quotas::new(default, Replicas::fixed(replicas))
    }

    fn quota(events: impl Into<Option<u32>>, bytes: impl Into<Option<u32>>) -> Quota {
        Quota { events_per_second: events.into(), bytes_per_second: bytes.into() }
    }

    fn acme() -> TenantId {
        "acme".parse().unwrap()
    }

    /// Sends a request of valid events, as ingest does.
    fn send(quotas: &Quotas, own: &Quota, sizes: &[usize], now: Instant) -> Admission {
        if let Some(over_quota) = quotas.exhausted(&acme(), own, now) {
            return Admission { admitted: 0, over_quota: Some(over_quota) };
        }
        let allowance = quotas.take_bytes(&acme(), own, sizes.iter().sum(), now);
        quotas.admit(&acme(), own, allowance, sizes, Admit::First, now)
    }

    #[test]
    fn a_request_takes_the_tokens_of_its_burst_and_of_two_seconds_more() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let own = quota(5, None);
        let admission = send(&quotas, &own, &[100; 1000], now);
        assert_eq!(admission.admitted, 15);
        let over_quota = admission.over_quota.unwrap();
        assert_eq!(over_quota.limit, Limit::EventsPerSecond(5));
        assert_eq!(over_quota.retry_after, Duration::from_millis(2200));
        let mut admitted = 0;
        for second in 1..=60 {
            admitted += send(&quotas, &own, &[100; 985], now + Duration::from_secs(second)).admitted;
        }
        assert_eq!(admitted, 5 * 60);
    }

    #[test]
    fn bytes_count_whatever_becomes_of_them_and_cost_at_most_two_seconds() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let own = quota(None, 1000);
        let bytes = |bytes, milliseconds| {
            let now = now + Duration::from_millis(milliseconds);
            let exhausted = quotas.exhausted(&acme(), &own, now);
            exhausted.is_none().then(|| quotas.take_bytes(&acme(), &own, bytes, now))
        };
        assert_eq!(bytes(400, 0), Some(Allowance(3000)));
        assert_eq!(bytes(10_000_000, 0), Some(Allowance(2600)));
        assert_eq!([bytes(1, 0), bytes(1, 2000)], [None, None]);
        assert_eq!(bytes(1, 2001), Some(Allowance(2001)));
    }

    #[test]
    fn an_event_is_admitted_whatever_its_size_and_the_next_request_waits_for_it() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |sizes: &[usize], seconds| {
            send(&quotas, &quota(1000, 1000), sizes, now + Duration::from_secs(seconds))
        };
        assert_eq!(send(&[400; 10], 0).admitted, 8, "the last one takes tokens of the future");
        let large = send(&[100_000, 1], 5);
        assert_eq!(large.admitted, 1);
        let over_quota = large.over_quota.unwrap();
        assert_eq!(over_quota.limit, Limit::BytesPerSecond(1000));
        assert_eq!(over_quota.retry_after, MAX_RETRY_AFTER);
        assert_eq!(send(&[1], 103).admitted, 0);
        assert_eq!(send(&[1], 105).admitted, 1);
    }

    #[test]
    fn a_changed_quota_applies_at_once_also_to_a_debt() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |own: Quota, size, milliseconds| {
            send(&quotas, &own, &[size; 100], now + Duration::from_millis(milliseconds)).admitted
        };
        assert_eq!(send(quota(2, None), 1, 0), 6);
        assert_eq!(send(quota(1000, None), 1, 2100), 100);
        // The next event would wait for almost three hours.
        assert_eq!(send(quota(None, 1000), 10_000_000, 60_000), 1);
        assert_eq!(send(quota(None, 10_000_000), 1, 60_500), 0);
        assert_eq!(send(quota(None, 10_000_000), 1_000_000, 62_600), 30);
    }

    #[test]
    fn the_largest_quota_holds() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let own = quota(None, i32::MAX.unsigned_abs());
        let size = 256 * 1024;
        let admitted = send(&quotas, &own, &vec![size; 30_000], now).admitted;
        assert!((3 * 8192..=3 * 8192 + 1).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_replica_takes_its_part_and_at_least_one_event() {
        for (events, replicas, admitted) in [(100, 1, 300), (100, 4, 75), (1, 4, 1)] {
            let quotas = quotas(Quota::default(), replicas);
            let admission = send(&quotas, &quota(events, None), &[1; 400], Instant::now());
            assert_eq!(admission.admitted, admitted, "{events} events, {replicas} replicas");
        }
    }

    #[test]
    fn the_default_applies_to_each_limit_that_a_tenant_does_not_have() {
        let admitted = |own: Quota| {
            let quotas = quotas(quota(10, 1000), 1);
            send(&quotas, &own, &[50; 200], Instant::now()).admitted
        };
        assert_eq!(admitted(Quota::default()), 30);
        assert_eq!(admitted(quota(15, None)), 45);
        assert_eq!(admitted(quota(50, None)), 60, "3000 bytes");
        assert_eq!(admitted(quota(50, 1_000_000)), 150);
    }

    #[test]
    fn tenants_have_separate_tokens_and_a_tenant_without_a_quota_is_not_limited() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let other = "other".parse().unwrap();
        let admit = |tenant: &TenantId, own: Quota| {
            quotas.admit(tenant, &own, Allowance::UNLIMITED, &[1; 20], Admit::First, now).admitted
        };
        assert_eq!(admit(&acme(), quota(5, None)), 15);
        assert_eq!(admit(&other, quota(5, None)), 15);
        assert_eq!(admit(&acme(), Quota::default()), 20);
        assert_eq!(quotas.tenants.count(), 2);
    }

    #[test]
    fn tokens_of_events_that_were_not_stored_are_given_back() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |count| send(&quotas, &quota(5, 500), &vec![100; count], now).admitted;
        assert_eq!([send(15), send(5)], [15, 0]);
        quotas.give_back(&acme(), 12, 1200);
        assert_eq!(send(15), 12);
    }

    #[test]
    fn a_request_as_a_whole_is_admitted_while_tokens_are_left_and_the_next_one_waits_for_its_tokens() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |count, seconds| {
            let now = now + Duration::from_secs(seconds);
            quotas.admit(
                &acme(),
                &quota(5, None),
                Allowance::UNLIMITED,
                &vec![1; count],
                Admit::AllOrNone,
                now,
            )
        };
        assert_eq!(send(1000, 0), Admission { admitted: 1000, over_quota: None });
        for (seconds, admitted) in [(1, 0), (196, 0), (198, 10), (199, 0)] {
            let admission = send(10, seconds);
            assert_eq!(
                (admission.admitted, admission.over_quota.is_some()),
                (admitted, admitted == 0),
                "{seconds}"
            );
        }
    }

    #[test]
    fn idle_tenants_are_removed_and_tenants_in_debt_are_kept() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let own = quota(None, 1);
        send(&quotas, &own, &[1000], now);
        for number in 0..2048 {
            let tenant_id = format!("tenant{number}").parse().unwrap();
            let later = now + Duration::from_secs(2) * number / 10;
            quotas.admit(&tenant_id, &quota(5, 500), Allowance::UNLIMITED, &[100], Admit::First, later);
        }
        assert!(quotas.tenants.count() <= 1024);
        assert_eq!(send(&quotas, &own, &[1], now + Duration::from_mins(8)).admitted, 0);
    }
}
