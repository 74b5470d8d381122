//! Epochs of invalidations: decides whether an entry is older than an invalidation of it.
//!
//! The epoch increases with every invalidation and every gap. A table of fixed size records the last epoch in which each
//! credential, user and tenant changed. Several of them can share a slot of the table. Sharing only makes an entry unusable
//! too early, which costs one lookup; it never makes an old entry usable. Memory is constant for any number of
//! invalidations, and the table needs neither locks nor cleaning.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Invalidation;
use contract::internal::Credential;
use hashing::TokenDigest;
use tokio::sync::watch;

use crate::Introspection;

/// Reports that the epoch has increased.
pub(crate) type EpochReceiver = watch::Receiver<()>;

/// The table takes 512 KiB. With 1,000 invalidations per second, 5 % of the entries become unusable too early per second.
const SLOTS: usize = 65_536;
/// The slot of all entries. It changes with a gap.
const ALL: usize = SLOTS;
/// The slot of inactive credentials. It changes with each user and tenant: the change can activate any of them, because a negative
/// entry does not contain the user and the tenant.
const INACTIVE: usize = SLOTS + 1;

pub(super) struct Epochs {
    current: AtomicU64,
    slots: Box<[AtomicU64]>,
    increases: watch::Sender<()>,
}

/// The slots that an entry depends on.
#[derive(Clone, Copy)]
pub(super) struct Dependencies([usize; 4]);

impl Default for Epochs {
    fn default() -> Self {
        let slots = (0..SLOTS + 2).map(|_| AtomicU64::new(0)).collect();
        Self { current: AtomicU64::new(0), slots, increases: watch::Sender::new(()) }
    }
}

impl Epochs {
    /// Returns the current epoch. Read it before a lookup starts.
    pub(super) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Starts an epoch in which the objects of these invalidations changed.
    pub(super) fn change(&self, invalidations: &[Invalidation]) {
        self.change_slots(invalidations.iter().flat_map(|invalidation| match invalidation {
            Invalidation::Credential(digest) => [slot_of("credential", digest); 2],
            Invalidation::User(user_id) => [slot_of("user", user_id), INACTIVE],
            Invalidation::Tenant(tenant_id) => [slot_of("tenant", tenant_id), INACTIVE],
        }));
    }

    /// Starts an epoch in which any credential, user or tenant may have changed.
    pub(super) fn change_all(&self) {
        self.change_slots([ALL]);
    }

    fn change_slots(&self, slots: impl IntoIterator<Item = usize>) {
        let epoch = self.current.fetch_add(1, Ordering::AcqRel) + 1;
        for slot in slots {
            self.slots[slot].fetch_max(epoch, Ordering::Release);
        }
        self.increases.send_replace(());
    }

    /// Returns a receiver of later increases.
    pub(super) fn subscribe(&self) -> EpochReceiver {
        self.increases.subscribe()
    }

    /// Returns whether a change after this epoch concerns the entry.
    pub(super) fn changed_after(&self, epoch: u64, Dependencies(slots): Dependencies) -> bool {
        slots.iter().any(|slot| self.slots[*slot].load(Ordering::Acquire) > epoch)
    }
}

impl Dependencies {
    pub(super) fn new(digest: TokenDigest, introspection: &Introspection) -> Self {
        let own = slot_of("credential", &digest);
        let Some(subject) = introspection else { return Self([own, INACTIVE, INACTIVE, ALL]) };
        let user = match &subject.credential {
            Credential::Session { user_id, .. } => slot_of("user", user_id),
            Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => own,
        };
        Self([own, user, slot_of("tenant", &subject.tenant_id), ALL])
    }
}

/// Without a random key: ids are generated or digests, so a client cannot choose a slot.
fn slot_of(kind: &str, id: &impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    (kind, id).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "only the lower bits are used")]
    let slot = hasher.finish() as usize % SLOTS;
    slot
}
