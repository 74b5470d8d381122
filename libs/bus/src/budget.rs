//! Memory budget with a share per tenant.
//!
//! A reservation succeeds or fails at once, it never queues. Dropping a reservation returns its bytes. One tenant can
//! reserve at most a quarter of the budget, so that it cannot block the others.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use tenancy::TenantId;

/// One tenant can reserve this fraction of the budget.
const TENANT_FRACTION: usize = 4;

/// A bounded amount of memory, and a bounded number of reservations of it. Clones share the budget.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Budget>);

struct Budget {
    limit: Amount,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    total: Amount,
    /// Of the tenants that have a reservation.
    tenants: HashMap<Arc<TenantId>, Amount>,
}

#[derive(Clone, Copy, Default)]
struct Amount {
    reservations: usize,
    bytes: usize,
}

/// Bytes of a [`MemoryBudget`] that belong to one holder. Dropping it returns them.
pub struct Reservation {
    budget: Arc<Budget>,
    tenant: Arc<TenantId>,
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
        Self(Arc::new(Budget { limit: Amount { reservations, bytes }, used: Mutex::default() }))
    }

    /// Reserves `bytes` for the tenant. The reservation can grow later.
    pub fn reserve(&self, tenant: &TenantId, bytes: usize) -> Result<Reservation, BudgetExceeded> {
        let (budget, tenant) = (Arc::clone(&self.0), Arc::new(tenant.clone()));
        budget.take(&tenant, Amount { reservations: 1, bytes }, budget.limit.bytes)?;
        Ok(Reservation { budget, tenant, bytes })
    }

    /// Makes one reservation per size, or none at all.
    pub fn reserve_all(
        &self,
        tenant: &TenantId,
        sizes: &[usize],
    ) -> Result<Vec<Reservation>, BudgetExceeded> {
        let tenant = Arc::new(tenant.clone());
        let all = Amount { reservations: sizes.len(), bytes: sizes.iter().sum() };
        self.0.take(&tenant, all, self.0.limit.bytes)?;
        let reservation = |bytes: &usize| {
            let (budget, tenant) = (Arc::clone(&self.0), Arc::clone(&tenant));
            Reservation { budget, tenant, bytes: *bytes }
        };
        Ok(sizes.iter().map(reservation).collect())
    }

    /// Number of reservations of all tenants.
    pub fn reservations(&self) -> usize {
        self.0.used.lock().total.reservations
    }

    /// Reserved bytes of all tenants.
    pub fn reserved_bytes(&self) -> usize {
        self.0.used.lock().total.bytes
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
        self.grow(bytes, self.budget.limit.bytes)
    }

    /// Like [`grow_to`](Self::grow_to) for a holder that keeps its bytes for long: fails also if more than half of the budget, or of
    /// the share of the tenant, is then reserved. So the other half is left for short reservations.
    pub fn grow_to_within_half(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.grow(bytes, self.budget.limit.bytes / 2)
    }

    fn grow(&mut self, bytes: usize, max_bytes: usize) -> Result<(), BudgetExceeded> {
        let missing = bytes.saturating_sub(self.bytes);
        self.budget.take(&self.tenant, Amount { reservations: 0, bytes: missing }, max_bytes)?;
        self.bytes += missing;
        Ok(())
    }

    /// Takes the bytes of another reservation of the same tenant.
    pub fn absorb(&mut self, mut other: Self) {
        self.bytes += mem::take(&mut other.bytes);
    }

    /// Returns the bytes above this size.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.budget.release(&self.tenant, Amount { reservations: 0, bytes: surplus });
        self.bytes -= surplus;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(&self.tenant, Amount { reservations: 1, bytes: self.bytes });
    }
}

impl Budget {
    /// Adds an amount, unless more than `max_bytes`, or than its fraction for the tenant, would be reserved then.
    fn take(&self, tenant: &Arc<TenantId>, amount: Amount, max_bytes: usize) -> Result<(), BudgetExceeded> {
        let used = &mut *self.used.lock();
        let own = used.tenants.get(tenant).copied().unwrap_or_default();
        let max = Amount { bytes: max_bytes, ..self.limit };
        let share =
            Amount { reservations: max.reservations / TENANT_FRACTION, bytes: max.bytes / TENANT_FRACTION };
        let (total, own) = (used.total.plus(amount, max)?, own.plus(amount, share)?);
        used.total = total;
        if own.reservations > 0 {
            used.tenants.insert(Arc::clone(tenant), own);
        }
        Ok(())
    }

    fn release(&self, tenant: &Arc<TenantId>, Amount { reservations, bytes }: Amount) {
        let Used { total, tenants } = &mut *self.used.lock();
        total.reservations -= reservations;
        total.bytes -= bytes;
        if let Some(own) = tenants.get_mut(tenant) {
            own.reservations -= reservations;
            own.bytes -= bytes;
            if own.reservations == 0 {
                tenants.remove(tenant);
            }
        }
    }
}

impl Amount {
    fn plus(self, other: Self, max: Self) -> Result<Self, BudgetExceeded> {
        let sum = |used: usize, more: usize, max: usize| used.checked_add(more).filter(|sum| *sum <= max);
        let reservations = sum(self.reservations, other.reservations, max.reservations);
        let bytes = sum(self.bytes, other.bytes, max.bytes);
        let (Some(reservations), Some(bytes)) = (reservations, bytes) else { return Err(BudgetExceeded) };
        Ok(Self { reservations, bytes })
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
    fn only_tenants_with_a_reservation_are_kept() {
        let budget = MemoryBudget::new(1000);
        let held = budget.reserve(&tenant("first"), 250).unwrap();
        for number in 0..2048 {
            drop(budget.reserve(&tenant(&format!("tenant{number}")), 0));
        }
        assert_eq!(budget.0.used.lock().tenants.len(), 1);
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
