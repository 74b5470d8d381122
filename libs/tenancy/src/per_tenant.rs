//! State of tenants in the memory of a process.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::TenantId;

/// Number of tenants at which idle ones are removed.
const MAX_IDLE: usize = 1024;

/// The state of each tenant that is not idle, and of some idle ones. The user decides when a tenant is idle: without its state, it
/// gets no more than with it.
///
/// Idle tenants are removed when there are many. A tenant that is not idle is never removed: otherwise a client of many tenants
/// could remove the state that limits one of them.
pub struct PerTenant<T>(Mutex<Tenants<T>>);

struct Tenants<T> {
    states: HashMap<TenantId, T>,
    /// Number of tenants at which a new one removes the idle ones. Doubles while most are in use, so that a new tenant costs
    /// little.
    max: usize,
}

impl<T> Default for PerTenant<T> {
    fn default() -> Self {
        Self(Mutex::new(Tenants { states: HashMap::new(), max: MAX_IDLE }))
    }
}

impl<T> PerTenant<T> {
    /// Updates the state of a tenant, which begins with the default. If there are many tenants, a new one removes those that are
    /// idle.
    pub fn update<R>(
        &self,
        tenant_id: &TenantId,
        mut is_idle: impl FnMut(&mut T) -> bool,
        update: impl FnOnce(&mut T) -> R,
    ) -> R
    where
        T: Default,
    {
        let Tenants { states, max } = &mut *self.0.lock();
        if let Some(state) = states.get_mut(tenant_id) {
            return update(state);
        }
        if states.len() >= *max {
            states.retain(|_, state| !is_idle(state));
            *max = MAX_IDLE.max(2 * states.len());
        }
        update(states.entry(tenant_id.clone()).or_default())
    }

    /// Updates the state of a tenant, if there is one.
    pub fn update_known<R>(&self, tenant_id: &TenantId, update: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.lock().states.get_mut(tenant_id).map(update)
    }

    /// Returns the number of tenants with a state.
    pub fn count(&self) -> usize {
        self.0.lock().states.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: usize) -> TenantId {
        format!("tenant{number}").parse().unwrap()
    }

    /// Adds tenants with these numbers. Zero is idle.
    fn add(tenants: &PerTenant<usize>, numbers: impl IntoIterator<Item = usize>, state: usize) {
        for number in numbers {
            tenants.update(&tenant(number), |state| *state == 0, |known| *known = state);
            assert!(tenants.count() <= 4 * MAX_IDLE);
        }
    }

    #[test]
    fn idle_tenants_are_removed_and_others_are_kept() {
        let tenants = PerTenant::default();
        add(&tenants, [0], 7);
        add(&tenants, 1..10 * MAX_IDLE, 0);
        assert!(tenants.count() <= MAX_IDLE);
        assert_eq!(tenants.update_known(&tenant(0), |state| *state), Some(7));
    }

    #[test]
    fn a_client_of_many_tenants_removes_no_state_that_limits_it() {
        let tenants = PerTenant::default();
        add(&tenants, 0..3 * MAX_IDLE, 1);
        assert_eq!(tenants.count(), 3 * MAX_IDLE);
        add(&tenants, 0..3 * MAX_IDLE, 0);
        add(&tenants, 3 * MAX_IDLE..5 * MAX_IDLE, 0);
        assert!(tenants.count() <= 2 * MAX_IDLE, "they are removed when they are idle");
    }

    #[test]
    fn a_state_that_is_only_looked_up_is_not_added() {
        let tenants = PerTenant::<usize>::default();
        assert_eq!(tenants.update_known(&tenant(0), |state| *state), None);
        assert_eq!(tenants.count(), 0);
    }
}
