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

pub(super) struct Epochs {
    current: AtomicU64,
    /// The epoch of the last gap.
    all: AtomicU64,
    /// The last epoch in which a user or tenant changed. The change can activate any inactive credential, because a negative
    /// entry does not contain the user and the tenant.
    inactive: AtomicU64,
    slots: Box<[AtomicU64]>,
    increases: watch::Sender<()>,
}

/// The slots that an entry depends on.
#[derive(Clone, Copy)]
pub(super) struct Dependencies {
    slots: [u16; 3],
    active: bool,
}

impl Default for Epochs {
    fn default() -> Self {
        Self {
            current: AtomicU64::new(0),
            all: AtomicU64::new(0),
            inactive: AtomicU64::new(0),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            increases: watch::Sender::new(()),
        }
    }
}

impl Epochs {
    /// Returns the current epoch. Read it before a lookup starts.
    pub(super) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Starts an epoch in which the objects of these invalidations changed.
    pub(super) fn change(&self, invalidations: &[Invalidation]) {
        let epoch = self.next();
        for invalidation in invalidations {
            let slot = match invalidation {
                Invalidation::Credential(digest) => slot_of("credential", digest),
                Invalidation::User(user_id) => slot_of("user", user_id),
                Invalidation::Tenant(tenant_id) => slot_of("tenant", tenant_id),
            };
            self.slots[usize::from(slot)].fetch_max(epoch, Ordering::Release);
            if !matches!(invalidation, Invalidation::Credential(_)) {
                self.inactive.fetch_max(epoch, Ordering::Release);
            }
        }
        self.increases.send_replace(());
    }

    /// Starts an epoch in which any credential, user or tenant may have changed.
    pub(super) fn change_all(&self) {
        self.all.fetch_max(self.next(), Ordering::Release);
        self.increases.send_replace(());
    }

    /// Returns a receiver of later increases.
    pub(super) fn subscribe(&self) -> EpochReceiver {
        self.increases.subscribe()
    }

    /// Returns whether a change after this epoch concerns the entry.
    pub(super) fn changed_after(&self, epoch: u64, entry: Dependencies) -> bool {
        let is_newer = |change: &AtomicU64| change.load(Ordering::Acquire) > epoch;
        is_newer(&self.all)
            || entry.slots.iter().any(|slot| is_newer(&self.slots[usize::from(*slot)]))
            || !entry.active && is_newer(&self.inactive)
    }

    fn next(&self) -> u64 {
        self.current.fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl Dependencies {
    pub(super) fn new(digest: TokenDigest, introspection: &Introspection) -> Self {
        let own = slot_of("credential", &digest);
        let Some(subject) = introspection else { return Self { slots: [own; 3], active: false } };
        let tenant = slot_of("tenant", &subject.tenant_id);
        let user = match &subject.credential {
            Credential::Session { user_id, .. } => slot_of("user", user_id),
            Credential::ApiKey { .. } | Credential::ServiceAccount { .. } => own,
        };
        Self { slots: [own, user, tenant], active: true }
    }
}

/// Without a random key: ids are generated or digests, so a client cannot choose a slot.
fn slot_of(kind: &str, id: &impl Hash) -> u16 {
    let mut hasher = DefaultHasher::new();
    (kind, id).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "there are 65,536 slots")]
    let slot = hasher.finish() as u16;
    slot
}
