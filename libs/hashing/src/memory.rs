//! The memory budget of the hash workers.
//!
//! A stored digest can need more memory than the current settings, for example after they were lowered. Its verification waits until the
//! other workers have returned enough memory. So all workers together never exceed the budget, and every digest that fits into it alone
//! can be verified.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use prometheus_client::metrics::gauge::Gauge;

/// How often a reservation that waits wakes the idle workers, which return their memory: a worker can begin to wait after a wake.
const WAKE_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes that all workers share.
pub(crate) struct MemoryBudget {
    max: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Idle workers wait for it.
    idle: Arc<Condvar>,
    used: Gauge,
}

/// Reservations take turns, so that small ones do not delay a large one without limit.
#[derive(Default)]
struct State {
    used: usize,
    next_turn: u64,
    turn: u64,
}

impl MemoryBudget {
    pub(crate) fn new(max: usize, idle: Arc<Condvar>, used: Gauge) -> Self {
        Self { max, state: Mutex::default(), changed: Condvar::new(), idle, used }
    }

    /// Reserves bytes, and waits until there are enough. The caller has none reserved. Returns false if they exceed the budget.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        if bytes > self.max {
            return false;
        }
        let mut state = self.state.lock();
        let turn = state.next_turn;
        state.next_turn += 1;
        while state.turn != turn || state.used + bytes > self.max {
            self.idle.notify_all();
            self.changed.wait_for(&mut state, WAKE_INTERVAL);
        }
        state.used += bytes;
        state.turn += 1;
        self.set_used(&state);
        true
    }

    pub(crate) fn release(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.used -= bytes;
        self.set_used(&state);
    }

    /// Returns whether a reservation waits: a worker returns memory that it does not use now.
    pub(crate) fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.turn != state.next_turn
    }

    fn set_used(&self, state: &State) {
        self.used.set(i64::try_from(state.used).unwrap_or(i64::MAX));
        self.changed.notify_all();
    }
}
