//! Quotas of the tenants: events and bytes per second. An event takes its tokens before it is published.
//!
//! Each replica enforces the quota divided by the number of active replicas, so a tenant gets its whole quota if its requests
//! are distributed evenly. While replicas start or stop, the sum of the parts can differ from the quota.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bus::Replicas;
use contract::identity::Quota;
use tenancy::TenantId;
use tokio::time::Instant;

use super::tenant_limits::{Admission, Limit, MAX_RETRY_AFTER, OverQuota};
use super::token_bucket::TokenBucket;

/// Number of tenants at which those are removed that have sent nothing for a while.
const MAX_IDLE_TENANTS: usize = 1024;

/// Enforces the quotas.
pub(crate) struct Quotas {
    /// Applies to each limit that a tenant does not have.
    default: Quota,
    replicas: Replicas,
    tenants: Mutex<HashMap<TenantId, Buckets>>,
}

/// The tokens of a tenant that has a quota.
#[derive(Default)]
struct Buckets {
    events: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

impl Quotas {
    /// Returns the quotas. `default` applies to each limit that a tenant does not have.
    pub(crate) fn new(default: Quota, replicas: Replicas) -> Self {
        Self { default, replicas, tenants: Mutex::default() }
    }

    /// Takes tokens for the events of a request, given by their sizes in bytes, in order. After the first event above the
    /// quota, no other one is admitted, so that the order is kept.
    pub(super) fn admit(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        sizes: &[usize],
        now: Instant,
    ) -> Admission {
        let limits = Quota {
            events_per_second: quota.events_per_second.or(self.default.events_per_second),
            bytes_per_second: quota.bytes_per_second.or(self.default.bytes_per_second),
        };
        if limits == Quota::default() {
            return Admission { admitted: sizes.len(), over_quota: None };
        }
        let replicas = f64::from(self.replicas.count());
        let mut tenants = self.lock();
        if tenants.len() >= MAX_IDLE_TENANTS && !tenants.contains_key(tenant_id) {
            tenants.retain(|_, buckets| !buckets.are_full(now));
        }
        let buckets = tenants.entry(tenant_id.clone()).or_default();
        buckets.update(&limits, replicas, now);
        buckets.admit(&limits, sizes)
    }

    /// Gives back the tokens of events that were admitted but not stored.
    pub(super) fn give_back(&self, tenant_id: &TenantId, sizes: &[usize]) {
        if let Some(buckets) = self.lock().get_mut(tenant_id) {
            buckets.events.iter_mut().for_each(|bucket| bucket.give_back(tokens(sizes.len())));
            buckets.bytes.iter_mut().for_each(|bucket| bucket.give_back(tokens(sizes.iter().sum())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Buckets>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    fn update(&mut self, limits: &Quota, replicas: f64, now: Instant) {
        let update = |bucket: &mut Option<TokenBucket>, limit: Option<u32>| match limit {
            Some(limit) => {
                let rate = f64::from(limit) / replicas;
                bucket.get_or_insert_with(|| TokenBucket::full(rate, now)).update(rate, now);
            }
            None => *bucket = None,
        };
        update(&mut self.events, limits.events_per_second);
        update(&mut self.bytes, limits.bytes_per_second);
    }

    fn admit(&mut self, limits: &Quota, sizes: &[usize]) -> Admission {
        for (index, size) in sizes.iter().enumerate() {
            let over_quota = [
                (&self.events, limits.events_per_second.map(Limit::EventsPerSecond)),
                (&self.bytes, limits.bytes_per_second.map(Limit::BytesPerSecond)),
            ]
            .into_iter()
            .find_map(|(bucket, limit)| {
                let bucket = bucket.as_ref().filter(|bucket| !bucket.admits())?;
                Some(OverQuota { limit: limit?, retry_after: bucket.delay().min(MAX_RETRY_AFTER) })
            });
            if over_quota.is_some() {
                return Admission { admitted: index, over_quota };
            }
            self.events.iter_mut().for_each(|bucket| bucket.take(1.0));
            self.bytes.iter_mut().for_each(|bucket| bucket.take(tokens(*size)));
        }
        Admission { admitted: sizes.len(), over_quota: None }
    }

    /// Returns whether the state equals that of a new tenant.
    fn are_full(&self, now: Instant) -> bool {
        [&self.events, &self.bytes].into_iter().flatten().all(|bucket| bucket.is_full(now))
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn tokens(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn the_first_events_of_a_request_are_admitted_up_to_the_quota() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let admission = quotas.admit(&acme(), &quota(5, None), &[100; 1000], now);
        assert_eq!(admission.admitted, 5);
        let over_quota = admission.over_quota.unwrap();
        assert_eq!(over_quota.limit, Limit::EventsPerSecond(5));
        assert_eq!(over_quota.retry_after, Duration::from_millis(200));
        let later = now + Duration::from_secs(1);
        assert_eq!(quotas.admit(&acme(), &quota(5, None), &[100; 995], later).admitted, 5);
    }

    #[test]
    fn bytes_are_counted_too_and_an_event_above_the_quota_is_admitted_once() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |sizes: &[usize], seconds| {
            quotas.admit(&acme(), &quota(1000, 1000), sizes, now + Duration::from_secs(seconds))
        };
        assert_eq!(send(&[400; 10], 0).admitted, 3, "the third one takes tokens of the future");
        let large = send(&[100_000, 1], 5);
        assert_eq!(large.admitted, 1);
        let over_quota = large.over_quota.unwrap();
        assert_eq!(over_quota.limit, Limit::BytesPerSecond(1000));
        assert_eq!(over_quota.retry_after, MAX_RETRY_AFTER);
        assert_eq!(send(&[1], 103).admitted, 0);
        assert_eq!(send(&[1], 105).admitted, 1);
    }

    #[test]
    fn a_replica_takes_its_part_and_at_least_one_event() {
        for (events, replicas, admitted) in [(100, 1, 100), (100, 4, 25), (1, 4, 1)] {
            let admission = quotas(Quota::default(), replicas).admit(
                &acme(),
                &quota(events, None),
                &[1; 200],
                Instant::now(),
            );
            assert_eq!(admission.admitted, admitted, "{events} events, {replicas} replicas");
        }
    }

    #[test]
    fn the_default_applies_to_each_limit_that_a_tenant_does_not_have() {
        let admitted = |own: Quota| {
            let quotas = quotas(quota(10, 1000), 1);
            quotas.admit(&acme(), &own, &[50; 100], Instant::now()).admitted
        };
        assert_eq!(admitted(Quota::default()), 10);
        assert_eq!(admitted(quota(15, None)), 15);
        assert_eq!(admitted(quota(50, None)), 20, "1000 bytes");
        assert_eq!(admitted(quota(50, 1_000_000)), 50);
    }

    #[test]
    fn tenants_have_separate_tokens_and_a_tenant_without_a_quota_is_not_limited() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let other = "other".parse().unwrap();
        assert_eq!(quotas.admit(&acme(), &quota(5, None), &[1; 10], now).admitted, 5);
        assert_eq!(quotas.admit(&other, &quota(5, None), &[1; 10], now).admitted, 5);
        assert_eq!(quotas.admit(&acme(), &Quota::default(), &[1; 10], now).admitted, 10);
        assert_eq!(quotas.lock().len(), 2);
    }

    #[test]
    fn tokens_of_events_that_were_not_stored_are_given_back() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |count| quotas.admit(&acme(), &quota(5, 500), &vec![100; count], now).admitted;
        assert_eq!([send(5), send(5)], [5, 0]);
        quotas.give_back(&acme(), &[100, 100]);
        assert_eq!(send(5), 2);
    }

    #[test]
    fn idle_tenants_are_removed_and_tenants_in_debt_are_kept() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let in_debt = "in-debt".parse().unwrap();
        quotas.admit(&in_debt, &quota(None, 1), &[1000], now);
        for number in 0..2 * MAX_IDLE_TENANTS {
            let tenant_id = format!("tenant{number}").parse().unwrap();
            let later = now + Duration::from_secs(2) * u32::try_from(number).unwrap() / 10;
            quotas.admit(&tenant_id, &quota(5, 500), &[100], later);
        }
        assert!(quotas.lock().len() <= MAX_IDLE_TENANTS);
        assert_eq!(quotas.admit(&in_debt, &quota(None, 1), &[1], now + Duration::from_mins(8)).admitted, 0);
    }
}
