//! What is remembered, by digest: bounded, and apart for live credentials and for others, so that guesses push nobody out.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashing::TokenDigest;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::BELIEVED;
use crate::Introspection;

/// Parts with a lock each. Digests are spread evenly by themselves.
const SHARDS: usize = 32;
/// Live credentials in a part: 131,072 in all, more than are used within five seconds. Any beyond are asked for each time.
const LIVE: usize = 4096;
/// Others in a part: 16,384 in all.
const DEAD: usize = 512;

/// One question to session and its answer. Whoever asks for the same meanwhile waits for that answer.
pub(super) struct Slot {
    asked_at: Instant,
    /// The latest mark that the answer was compared with; at first the latest one before the question was put.
    pub(super) compared: AtomicU64,
    pub(super) answer: OnceCell<Introspection>,
}

impl Slot {
    pub(super) fn new(now: Instant, latest_mark: u64) -> Self {
        Self { asked_at: now, compared: AtomicU64::new(latest_mark), answer: OnceCell::new() }
    }

    fn is_believed(&self, now: Instant) -> bool {
        now < self.asked_at + BELIEVED
    }
}

pub(super) struct Slots([Mutex<Shard>; SHARDS]);

struct Shard {
    /// Those that are asked for too: how many, is bounded by the requests under way.
    live: Part,
    dead: Part,
}

struct Part {
    slots: HashMap<TokenDigest, Arc<Slot>>,
    most: usize,
    swept: Instant,
}

impl Slots {
    pub(super) fn new(now: Instant) -> Self {
        let part = |most| Part { slots: HashMap::new(), most, swept: now };
        Self(std::array::from_fn(|_| Mutex::new(Shard { live: part(LIVE), dead: part(DEAD) })))
    }

    /// What may still be believed, or is being asked.
    pub(super) fn find(&self, digest: TokenDigest, now: Instant) -> Option<Arc<Slot>> {
        self.shard(digest).find(digest, now)
    }

    /// The same, or a new slot. One that finds no room is remembered by nobody.
    pub(super) fn find_or_insert(
        &self,
        digest: TokenDigest,
        now: Instant,
        make: impl FnOnce() -> Slot,
    ) -> Arc<Slot> {
        let mut shard = self.shard(digest);
        shard.find(digest, now).unwrap_or_else(|| {
            let slot = Arc::new(make());
            shard.live.insert(digest, &slot, now);
            slot
        })
    }

    /// Moves a slot to those of credentials that are not live.
    pub(super) fn bury(&self, digest: TokenDigest, slot: &Arc<Slot>, now: Instant) {
        let mut shard = self.shard(digest);
        if shard.live.remove(digest, slot) {
            shard.dead.insert(digest, slot, now);
        }
    }

    /// Forgets this slot, unless another one has taken its place.
    pub(super) fn remove(&self, digest: TokenDigest, slot: &Arc<Slot>) {
        let mut shard = self.shard(digest);
        let _ = shard.live.remove(digest, slot) || shard.dead.remove(digest, slot);
    }

    /// How many of each kind there are.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let lengths = self.0.iter().map(|shard| {
            let shard = lock(shard);
            (shard.live.slots.len(), shard.dead.slots.len())
        });
        lengths.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    fn shard(&self, digest: TokenDigest) -> MutexGuard<'_, Shard> {
        lock(&self.0[usize::from(digest.as_bytes()[0]) % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn find(&self, digest: TokenDigest, now: Instant) -> Option<Arc<Slot>> {
        let slot = self.live.slots.get(&digest).or_else(|| self.dead.slots.get(&digest))?;
        slot.is_believed(now).then(|| Arc::clone(slot))
    }
}

impl Part {
    fn insert(&mut self, digest: TokenDigest, slot: &Arc<Slot>, now: Instant) {
        if now >= self.swept + BELIEVED {
            self.slots.retain(|_, slot| slot.is_believed(now));
            self.swept = now;
        }
        if self.slots.len() < self.most || self.slots.contains_key(&digest) {
            self.slots.insert(digest, Arc::clone(slot));
        }
    }

    fn remove(&mut self, digest: TokenDigest, slot: &Arc<Slot>) -> bool {
        let same = self.slots.get(&digest).is_some_and(|known| Arc::ptr_eq(known, slot));
        same && self.slots.remove(&digest).is_some()
    }
}
