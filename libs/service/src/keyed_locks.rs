//! Locks by key: of several tasks that do the same work for a key, one does it and the others use its result.

use std::hash::{BuildHasher as _, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Number of locks. Keys with the same lock wait for each other.
const LOCKS: u64 = 256;

/// A fixed number of locks, one of them for each key.
pub struct KeyedLocks {
    hasher: RandomState,
    locks: Vec<Mutex<()>>,
}

impl Default for KeyedLocks {
    fn default() -> Self {
        Self { hasher: RandomState::new(), locks: (0..LOCKS).map(|_| Mutex::default()).collect() }
    }
}

impl KeyedLocks {
    /// Waits until no other task has the lock of the key.
    pub async fn lock(&self, key: impl Hash) -> MutexGuard<'_, ()> {
        let index = usize::try_from(self.hasher.hash_one(key) % LOCKS).unwrap_or_default();
        self.locks[index].lock().await
    }
}
