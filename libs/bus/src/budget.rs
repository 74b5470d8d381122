//! Memory budget with a share per tenant.
//!
//! A reservation succeeds or fails at once, it never queues. Dropping a reservation returns its bytes. One tenant can
//! reserve at most a quarter of the budget, so that it cannot block the others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenancy::{PerTenant, TenantId};

/// One tenant can reserve this fraction of the budget.
const TENANT_FRACTION: usize = 4;
/// Divisors of a limit of bytes.
const ALL: usize = 1;
const HALF: usize = 2;

/// A bounded amount of memory, and a bounded number of reservations of it. Clones share the budget.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Budget>);

struct Budget {
    total: Arc<Usage>,
    tenants: PerTenant<Option<Arc<Share>>>,
}

/// The part of the budget that one tenant can reserve.
struct Share {
    usage: Usage,
    total: Arc<Usage>,
}

struct Usage {
    reservations: Counter,
    bytes: Counter,
}

struct Counter {
    used: AtomicUsize,
    limit: usize,
}

/// Bytes of a [`MemoryBudget`] that belong to one holder. Dropping it returns them.
pub struct Reservation {
    share: Arc<Share>,
    bytes: usize,
}

/// The budget of the process or of the tenant is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory budget exceeded")]
pub struct BudgetExceeded;

impl MemoryBudget {
    /// Returns an unused budget of this many bytes for any number of reservations.
    pub fn new(bytes: usize) -> Self {
        Self::with_max_reservations(usize::MAX, bytes)
    }

    /// Returns an unused budget for at most `reservations` reservations of `bytes` bytes in total.
    pub fn with_max_reservations(reservations: usize, bytes: usize) -> Self {
        let total = Arc::new(Usage::new(reservations, bytes));
        Self(Arc::new(Budget { total, tenants: PerTenant::default() }))
    }

    /// Reserves `bytes` for the tenant. The reservation can grow later.
    pub fn reserve(&self, tenant: &TenantId, bytes: usize) -> Result<Reservation, BudgetExceeded> {
        let share = self.share(tenant);
        share.take(1, bytes, ALL)?;
        Ok(Reservation { share, bytes })
    }

    /// Makes one reservation per size, or none at all.
    pub fn reserve_all(
        &self,
        tenant: &TenantId,
        sizes: &[usize],
    ) -> Result<Vec<Reservation>, BudgetExceeded> {
        let share = self.share(tenant);
        share.take(sizes.len(), sizes.iter().sum(), ALL)?;
        Ok(sizes.iter().map(|bytes| Reservation { share: Arc::clone(&share), bytes: *bytes }).collect())
    }

    /// Number of reservations of all tenants.
    pub fn reservations(&self) -> usize {
        self.0.total.reservations.used()
    }

    /// Reserved bytes of all tenants.
    pub fn reserved_bytes(&self) -> usize {
        self.0.total.bytes.used()
    }

    fn share(&self, tenant: &TenantId) -> Arc<Share> {
        let is_unused =
            |share: &mut Option<Arc<Share>>| share.as_ref().is_none_or(|share| Arc::strong_count(share) == 1);
        let new = || {
            let total = Arc::clone(&self.0.total);
            let usage =
                Usage::new(total.reservations.limit / TENANT_FRACTION, total.bytes.limit / TENANT_FRACTION);
            Arc::new(Share { usage, total })
        };
        self.0.tenants.update(tenant, is_unused, |share| Arc::clone(share.get_or_insert_with(new)))
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reservations, bytes) = (self.reservations(), self.reserved_bytes());
        f.debug_struct("MemoryBudget").field("reservations", &reservations).field("bytes", &bytes).finish()
    }
}

impl Reservation {
    /// Number of reserved bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows the reservation to at least `bytes`. On failure it keeps its size.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.grow(bytes, ALL)
    }

    /// Like [`grow_to`](Self::grow_to) for a holder that keeps its bytes for long: fails also if more than half of the budget, or of
    /// the share of the tenant, is then reserved. So the other half is left for short reservations.
    pub fn grow_to_within_half(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.grow(bytes, HALF)
    }

    fn grow(&mut self, bytes: usize, divisor: usize) -> Result<(), BudgetExceeded> {
        let missing = bytes.saturating_sub(self.bytes);
        self.share.take(0, missing, divisor)?;
        self.bytes += missing;
        Ok(())
    }

    /// Returns the bytes above this size.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.share.release(0, surplus);
        self.bytes -= surplus;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.release(1, self.bytes);
    }
}

impl Share {
    fn take(&self, reservations: usize, bytes: usize, divisor: usize) -> Result<(), BudgetExceeded> {
        self.usage.take(reservations, bytes, divisor)?;
        let taken = self.total.take(reservations, bytes, divisor);
        if taken.is_err() {
            self.usage.release(reservations, bytes);
        }
        taken
    }

    fn release(&self, reservations: usize, bytes: usize) {
        self.usage.release(reservations, bytes);
        self.total.release(reservations, bytes);
    }
}

impl Usage {
    fn new(reservations: usize, bytes: usize) -> Self {
        let counter = |limit| Counter { used: AtomicUsize::new(0), limit };
        Self { reservations: counter(reservations), bytes: counter(bytes) }
    }

    fn take(&self, reservations: usize, bytes: usize, divisor: usize) -> Result<(), BudgetExceeded> {
        self.reservations.take(reservations, self.reservations.limit)?;
        let taken = self.bytes.take(bytes, self.bytes.limit / divisor);
        if taken.is_err() {
            self.reservations.release(reservations);
        }
        taken
    }

    fn release(&self, reservations: usize, bytes: usize) {
        self.reservations.release(reservations);
        self.bytes.release(bytes);
    }
}

impl Counter {
    fn take(&self, amount: usize, limit: usize) -> Result<(), BudgetExceeded> {
        let added = |used: usize| used.checked_add(amount).filter(|sum| *sum <= limit);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        taken.map(drop).map_err(|_| BudgetExceeded)
    }

    fn release(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[test]
    fn one_tenant_reserves_at_most_a_quarter() {
        let budget = MemoryBudget::new(1000);
        let reserve = |name: &str, bytes| budget.reserve(&tenant(name), bytes);
        let all: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| reserve(name, 250).unwrap()).collect();
        assert!(reserve("a", 1).is_err(), "the share of the tenant is used");
        assert!(reserve("e", 1).is_err(), "the whole budget is used");
        drop(all);
        let part = reserve("a", 200).unwrap();
        assert!(reserve("a", 51).is_err());
        assert!(reserve("a", 50).is_ok(), "a failed reservation takes nothing");
        drop(part);
        assert!(reserve("a", 250).is_ok());
        assert_eq!((budget.reservations(), budget.reserved_bytes()), (0, 0));
    }

    #[test]
    fn the_number_of_reservations_is_limited_too() {
        let budget = MemoryBudget::with_max_reservations(8, 1000);
        assert!(budget.reserve_all(&tenant("a"), &[1, 1, 1]).is_err());
        let two = budget.reserve_all(&tenant("a"), &[1, 2]).unwrap();
        assert_eq!((budget.reservations(), budget.reserved_bytes()), (2, 3));
        assert!(budget.reserve(&tenant("a"), 0).is_err());
        assert!(budget.reserve(&tenant("b"), 0).is_ok());
        drop(two);
        assert!(budget.reserve(&tenant("a"), 0).is_ok());
    }

    #[test]
    fn long_reservations_leave_half_of_the_budget_and_of_each_share() {
        let budget = MemoryBudget::new(1000);
        let hold = |name: &str, bytes| {
            let mut held = budget.reserve(&tenant(name), 0).unwrap();
            held.grow_to_within_half(bytes).map(|()| held)
        };
        let mut first = hold("a", 125).unwrap();
        assert!(hold("a", 1).is_err(), "half of the share is used");
        let others: Vec<_> = ["b", "c", "d"].map(|name| hold(name, 125).unwrap()).into();
        assert!(hold("e", 1).is_err(), "half of the budget is used");
        let short = budget.reserve(&tenant("e"), 250).unwrap();
        assert!(
            first.grow_to_within_half(125).is_err(),
            "it keeps no more than half while others need the rest"
        );
        drop((short, others));
        assert!(first.grow_to_within_half(125).is_ok() && first.grow_to_within_half(126).is_err());
        assert_eq!(first.bytes(), 125);
    }

    #[test]
    fn unused_shares_are_removed_and_used_shares_are_kept() {
        let budget = MemoryBudget::new(1000);
        let held = budget.reserve(&tenant("first"), 250).unwrap();
        for number in 0..2048 {
            drop(budget.reserve(&tenant(&format!("tenant{number}")), 0));
        }
        assert!(budget.0.tenants.count() <= 1024);
        assert!(budget.reserve(&tenant("first"), 1).is_err());
        drop(held);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Reserve { tenant: usize, bytes: usize },
        GrowTo(prop::sample::Index, usize),
        ShrinkTo(prop::sample::Index, usize),
        Drop(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (index, bytes) = (any::<prop::sample::Index>, 0..400_usize);
        prop_oneof![
            (0..5_usize, bytes.clone()).prop_map(|(tenant, bytes)| Step::Reserve { tenant, bytes }),
            (index(), bytes.clone()).prop_map(|(index, bytes)| Step::GrowTo(index, bytes)),
            (index(), bytes).prop_map(|(index, bytes)| Step::ShrinkTo(index, bytes)),
            index().prop_map(Step::Drop),
        ]
    }

    proptest! {
        #[test]
        fn limits_hold_and_every_byte_is_returned(steps in prop::collection::vec(step(), 0..60)) {
            let budget = MemoryBudget::with_max_reservations(12, 1000);
            let mut held: Vec<(usize, Reservation)> = Vec::new();
            for step in steps {
                match step {
                    Step::Reserve { tenant: number, bytes } => {
                        let reserved = budget.reserve(&tenant(&format!("t{number}")), bytes);
                        held.extend(reserved.ok().map(|reservation| (number, reservation)));
                    }
                    Step::GrowTo(index, bytes) if !held.is_empty() => {
                        let at = index.index(held.len());
                        let before = held[at].1.bytes();
                        let grown = held[at].1.grow_to(bytes).is_ok();
                        prop_assert_eq!(held[at].1.bytes(), if grown { before.max(bytes) } else { before });
                    }
                    Step::ShrinkTo(index, bytes) if !held.is_empty() => {
                        let at = index.index(held.len());
                        held[at].1.shrink_to(bytes);
                        prop_assert!(held[at].1.bytes() <= bytes);
                    }
                    Step::Drop(index) if !held.is_empty() => drop(held.swap_remove(index.index(held.len()))),
                    _ => {}
                }
                let sum = |of: Option<usize>| {
                    let of_tenant = held.iter().filter(|(tenant, _)| of.is_none_or(|of| of == *tenant));
                    of_tenant.fold((0, 0), |sum, (_, held)| (sum.0 + 1, sum.1 + held.bytes()))
                };
                prop_assert_eq!(sum(None), (budget.reservations(), budget.reserved_bytes()));
                prop_assert!(sum(None).0 <= 12 && sum(None).1 <= 1000);
                for number in 0..5 {
                    prop_assert!(sum(Some(number)).0 <= 3 && sum(Some(number)).1 <= 250);
                }
            }
            drop(held);
            prop_assert_eq!((budget.reservations(), budget.reserved_bytes()), (0, 0));
        }
    }
}
