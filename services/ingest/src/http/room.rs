//! The memory for bodies: taken without waiting as a body arrives or inflates, and held until the answer is out. Whoever
//! sends much at once is told to come back instead of filling the memory, and no tenant takes what the others need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::ProblemKind;
use service::Problem;
use tenancy::TenantId;
use tokio::sync::Semaphore;

/// What all bodies of the process may hold at once.
const ROOM: usize = 256 * 1024 * 1024;
/// One tenant may hold one part in so many of it, as in the publisher.
const TENANT_SHARE: usize = 4;
/// Shares of tenants that hold nothing are forgotten when there are more than this.
const IDLE_SHARES: usize = 1024;
/// Room is taken in steps of this: as a body arrives, not as it is announced, so that only bytes that were sent take any.
const STEP: usize = 64 * 1024;

/// All the room there is, in bytes. Clones are handles to the same.
#[derive(Clone)]
pub(crate) struct Room {
    whole: Arc<Semaphore>,
    share: usize,
    tenants: Arc<Mutex<HashMap<TenantId, Arc<Semaphore>>>>,
}

/// The part that one request holds; given back when it is dropped.
pub(super) struct Held {
    own: Arc<Semaphore>,
    whole: Arc<Semaphore>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self::of_size(ROOM)
    }

    pub(super) fn of_size(bytes: usize) -> Self {
        Self { whole: Arc::new(Semaphore::new(bytes)), share: bytes / TENANT_SHARE, tenants: Arc::default() }
    }

    /// For a request of a tenant: nothing yet.
    pub(super) fn of(&self, tenant: &TenantId) -> Held {
        Held { own: self.share_of(tenant), whole: Arc::clone(&self.whole), bytes: 0 }
    }

    fn share_of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = tenants.get(tenant) {
            return Arc::clone(share);
        }
        if tenants.len() >= IDLE_SHARES {
            tenants.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(self.share));
        tenants.insert(tenant.clone(), Arc::clone(&share));
        share
    }
}

impl Held {
    /// Takes so much more.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        let permits = u32::try_from(bytes).map_err(|_| ProblemKind::Overloaded)?;
        let own = self.own.try_acquire_many(permits).map_err(|_| ProblemKind::Overloaded)?;
        let whole = self.whole.try_acquire_many(permits).map_err(|_| ProblemKind::Overloaded)?;
        own.forget();
        whole.forget();
        self.bytes += bytes;
        Ok(())
    }

    /// Holds what has arrived of a body that may become as large as `expected`: a small one is taken at once.
    pub(super) fn keep(&mut self, arrived: usize, expected: usize) -> Result<(), Problem> {
        if arrived <= self.bytes {
            return Ok(());
        }
        let next = arrived.next_multiple_of(STEP).min(expected).max(arrived);
        self.take(next - self.bytes)
    }

    /// Gives back what is held beyond this.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        if surplus > 0 {
            self.own.add_permits(surplus);
            self.whole.add_permits(surplus);
            self.bytes -= surplus;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[test]
    fn a_tenant_has_a_quarter_and_all_tenants_together_the_whole() {
        let room = Room::of_size(1000);
        let take = |name: &str, bytes| {
            let mut held = room.of(&tenant(name));
            held.take(bytes).map(|()| held)
        };
        let all: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| take(name, 250).unwrap()).collect();
        assert!(take("a", 1).is_err() && take("e", 1).is_err());
        drop(all);
        let some = take("a", 200).unwrap();
        assert!(take("a", 51).is_err(), "and what did not fit took nothing");
        assert!(take("a", 50).is_ok());
        drop(some);
        assert!(take("a", 250).is_ok());
        assert_eq!(room.whole.available_permits(), 1000);
    }

    #[test]
    fn shares_that_are_not_in_use_are_forgotten_and_those_in_use_are_not() {
        let room = Room::of_size(1000);
        let mut held = room.of(&tenant("first"));
        held.take(250).unwrap();
        for number in 0..2 * IDLE_SHARES {
            drop(room.of(&tenant(&format!("tenant{number}"))));
        }
        assert!(room.tenants.lock().unwrap().len() <= IDLE_SHARES + 1);
        assert!(room.of(&tenant("first")).take(1).is_err());
    }

    #[test]
    fn room_is_taken_in_steps_but_never_beyond_what_a_body_can_become() {
        let room = Room::of_size(100 * STEP);
        let mut held = room.of(&tenant("a"));
        for (arrived, holds) in [
            (1, STEP),
            (STEP, STEP),
            (STEP + 1, 2 * STEP),
            (2 * STEP + 1, 2 * STEP + 10),
            (3 * STEP, 3 * STEP),
        ] {
            held.keep(arrived, 2 * STEP + 10).unwrap();
            assert_eq!(held.bytes, holds, "{arrived}");
        }
        held.shrink_to(5);
        assert_eq!(room.whole.available_permits(), 100 * STEP - 5);
    }
}
