//! Quotas of the tenants: events and bytes per second. An event takes its tokens before it is published.
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

    /// Takes tokens for the events of a request, given by their sizes in bytes, in order. After the first event above the
    /// quota, no other one is admitted, so that the order is kept. With [`Admit::AllOrNone`], only the first event is checked.
    pub(super) fn admit(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        sizes: &[usize],
        admit: Admit,
        now: Instant,
    ) -> Admission {
        let limits = Quota {
            events_per_second: quota.events_per_second.or(self.default.events_per_second),
            bytes_per_second: quota.bytes_per_second.or(self.default.bytes_per_second),
        };
        if limits == Quota::default() {
            return Admission { admitted: sizes.len(), over_quota: None };
        }
        let replicas = self.replicas.count();
        self.tenants.update(
            tenant_id,
            |buckets| buckets.are_full(now),
            |buckets| {
                Bucket::update(&mut buckets.events, limits.events_per_second, replicas, now);
                Bucket::update(&mut buckets.bytes, limits.bytes_per_second, replicas, now);
                buckets.admit(sizes, admit)
            },
        )
    }

    /// Gives back the tokens of events that were admitted but not stored.
    pub(super) fn give_back(&self, tenant_id: &TenantId, sizes: &[usize]) {
        self.tenants.update_known(tenant_id, |buckets| {
            buckets.events.iter_mut().for_each(|bucket| bucket.give_back(sizes.len()));
            buckets.bytes.iter_mut().for_each(|bucket| bucket.give_back(sizes.iter().sum()));
        });
    }
}

impl Buckets {
    fn admit(&mut self, sizes: &[usize], admit: Admit) -> Admission {
        for (index, size) in sizes.iter().enumerate() {
            let checked = if admit == Admit::AllOrNone && index > 0 { 0 } else { usize::MAX };
            let over_quota = [
                (&self.events, Limit::EventsPerSecond as fn(u32) -> Limit),
                (&self.bytes, Limit::BytesPerSecond),
            ]
            .into_iter()
            .take(checked)
            .find_map(|(bucket, limit)| {
                let bucket = bucket.as_ref()?;
                let retry_after = bucket.rate.rule().decide(bucket.lead, Duration::ZERO).err()?;
                Some(OverQuota {
                    limit: limit(bucket.rate.limit),
                    retry_after: retry_after.min(MAX_RETRY_AFTER),
                })
            });
            if over_quota.is_some() {
                return Admission { admitted: index, over_quota };
            }
            self.events.iter_mut().for_each(|bucket| bucket.take(1));
            self.bytes.iter_mut().for_each(|bucket| bucket.take(*size));
        }
        Admission { admitted: sizes.len(), over_quota: None }
    }

    /// Returns whether the state equals that of a new tenant.
    fn are_full(&self, now: Instant) -> bool {
        [&self.events, &self.bytes].into_iter().flatten().all(|bucket| bucket.lead_at(now).is_zero())
    }
}

impl Bucket {
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

    #[test]
    fn the_first_events_of_a_request_are_admitted_up_to_the_quota() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let admission = quotas.admit(&acme(), &quota(5, None), &[100; 1000], Admit::First, now);
        assert_eq!(admission.admitted, 5);
        let over_quota = admission.over_quota.unwrap();
        assert_eq!(over_quota.limit, Limit::EventsPerSecond(5));
        assert_eq!(over_quota.retry_after, Duration::from_millis(200));
        let later = now + Duration::from_secs(1);
        assert_eq!(quotas.admit(&acme(), &quota(5, None), &[100; 995], Admit::First, later).admitted, 5);
    }

    #[test]
    fn bytes_are_counted_too_and_an_event_above_the_quota_is_admitted_once() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |sizes: &[usize], seconds| {
            quotas.admit(&acme(), &quota(1000, 1000), sizes, Admit::First, now + Duration::from_secs(seconds))
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
    fn a_changed_quota_applies_at_once_also_to_a_debt() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |own: Quota, size, milliseconds| {
            quotas
                .admit(&acme(), &own, &[size; 100], Admit::First, now + Duration::from_millis(milliseconds))
                .admitted
        };
        assert_eq!(send(quota(2, None), 1, 0), 2);
        assert_eq!(send(quota(1000, None), 1, 10), 10);
        // The next event would wait for almost three hours.
        assert_eq!(send(quota(None, 1000), 10_000_000, 60_000), 1);
        assert_eq!(send(quota(None, 10_000_000), 1, 61_500), 0);
        assert_eq!(send(quota(None, 10_000_000), 1_000_000, 62_600), 2);
    }

    #[test]
    fn the_largest_quota_holds() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let own = quota(None, i32::MAX.unsigned_abs());
        let size = 256 * 1024;
        let admitted = quotas.admit(&acme(), &own, &vec![size; 10_000], Admit::First, now).admitted;
        assert!((8192..=8193).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_replica_takes_its_part_and_at_least_one_event() {
        for (events, replicas, admitted) in [(100, 1, 100), (100, 4, 25), (1, 4, 1)] {
            let admission = quotas(Quota::default(), replicas).admit(
                &acme(),
                &quota(events, None),
                &[1; 200],
                Admit::First,
                Instant::now(),
            );
            assert_eq!(admission.admitted, admitted, "{events} events, {replicas} replicas");
        }
    }

    #[test]
    fn the_default_applies_to_each_limit_that_a_tenant_does_not_have() {
        let admitted = |own: Quota| {
            let quotas = quotas(quota(10, 1000), 1);
            quotas.admit(&acme(), &own, &[50; 100], Admit::First, Instant::now()).admitted
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
        assert_eq!(quotas.admit(&acme(), &quota(5, None), &[1; 10], Admit::First, now).admitted, 5);
        assert_eq!(quotas.admit(&other, &quota(5, None), &[1; 10], Admit::First, now).admitted, 5);
        assert_eq!(quotas.admit(&acme(), &Quota::default(), &[1; 10], Admit::First, now).admitted, 10);
        assert_eq!(quotas.tenants.count(), 2);
    }

    #[test]
    fn tokens_of_events_that_were_not_stored_are_given_back() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send =
            |count| quotas.admit(&acme(), &quota(5, 500), &vec![100; count], Admit::First, now).admitted;
        assert_eq!([send(5), send(5)], [5, 0]);
        quotas.give_back(&acme(), &[100, 100]);
        assert_eq!(send(5), 2);
    }

    #[test]
    fn a_request_as_a_whole_is_admitted_while_tokens_are_left_and_the_next_one_waits_for_its_tokens() {
        let (quotas, now) = (quotas(Quota::default(), 1), Instant::now());
        let send = |count, seconds| {
            let now = now + Duration::from_secs(seconds);
            quotas.admit(&acme(), &quota(5, None), &vec![1; count], Admit::AllOrNone, now)
        };
        assert_eq!(send(1000, 0), Admission { admitted: 1000, over_quota: None });
        for (seconds, admitted) in [(1, 0), (198, 0), (200, 10), (201, 0)] {
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
        let in_debt = "in-debt".parse().unwrap();
        quotas.admit(&in_debt, &quota(None, 1), &[1000], Admit::First, now);
        for number in 0..2048 {
            let tenant_id = format!("tenant{number}").parse().unwrap();
            let later = now + Duration::from_secs(2) * number / 10;
            quotas.admit(&tenant_id, &quota(5, 500), &[100], Admit::First, later);
        }
        assert!(quotas.tenants.count() <= 1024);
        assert_eq!(
            quotas
                .admit(&in_debt, &quota(None, 1), &[1], Admit::First, now + Duration::from_mins(8))
                .admitted,
            0
        );
    }
}
