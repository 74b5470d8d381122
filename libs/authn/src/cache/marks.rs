//! What invalidations said of late: an answer is good while no mark against it is younger than its question.
//!
//! Marks are numbered. A question takes the latest number before it is put: a mark that is younger stands for a change whose
//! commit the answer may have missed; one that is not was heard before, so the answer knows of the change.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use bus::Invalidation;
use contract::internal::Credential;
use hashing::TokenDigest;
use tenancy::{TenantId, UserId};
use tokio::time::Instant;

use super::BELIEVED;
use super::slots::Slot;
use crate::Introspection;

/// Longer than any answer is believed that a mark could be against.
const KEPT: Duration = BELIEVED.saturating_mul(2);
/// When there are more, one mark stands against everything instead.
const MOST: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Marks {
    latest: AtomicU64,
    made: RwLock<Made>,
}

#[derive(Default)]
struct Made {
    credentials: Against<TokenDigest>,
    users: Against<UserId>,
    tenants: Against<TenantId>,
    /// Against credentials that are not live: a change of a user or a tenant may bring them to life.
    dead: u64,
    everything: u64,
}

/// The latest mark against each, and when it was made.
struct Against<K>(HashMap<K, (u64, Instant)>);

impl Marks {
    /// The number that a question takes before it is put.
    pub(super) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Marks what a hint says. After this no answer to an earlier question is good.
    pub(super) fn make(&self, revoked: &[Invalidation], now: Instant) {
        let mut made = self.write();
        let number = self.latest.load(Ordering::Relaxed) + 1;
        for revoked in revoked {
            match revoked {
                Invalidation::Credential(hex) => match TokenDigest::from_hex(hex) {
                    Some(digest) => made.credentials.mark(digest, number, now),
                    None => made.everything = number,
                },
                Invalidation::User(user_id) => {
                    made.users.mark(*user_id, number, now);
                    made.dead = number;
                }
                Invalidation::Tenant(tenant_id) => {
                    made.tenants.mark(tenant_id.clone(), number, now);
                    made.dead = number;
                }
            }
        }
        if made.len() > MOST {
            *made = Made { dead: number, everything: number, ..Made::default() };
        }
        self.latest.store(number, Ordering::Release);
    }

    /// Forgets marks that nothing is left to be against.
    pub(super) fn forget(&self, now: Instant) {
        let mut made = self.write();
        made.credentials.forget(now);
        made.users.forget(now);
        made.tenants.forget(now);
    }

    /// Whether no mark is against this answer. Costs one comparison while no mark was made since the last time.
    pub(super) fn spare(&self, digest: TokenDigest, slot: &Slot, known: &Introspection) -> bool {
        let latest = self.latest();
        let compared = slot.compared.load(Ordering::Relaxed);
        if compared == latest {
            return true;
        }
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
        if made.youngest(digest, known) > compared {
            return false;
        }
        slot.compared.fetch_max(latest, Ordering::Relaxed);
        true
    }

    fn write(&self) -> RwLockWriteGuard<'_, Made> {
        self.made.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    /// The youngest mark against an answer; 0 without any.
    fn youngest(&self, digest: TokenDigest, known: &Introspection) -> u64 {
        let of_credential = self.credentials.of(&digest).max(self.everything);
        let Some(subject) = known else { return of_credential.max(self.dead) };
        let of_user = match &subject.credential {
            Credential::Session { user_id, .. } => self.users.of(user_id),
            Credential::ApiKey { .. } => 0,
        };
        of_credential.max(of_user).max(self.tenants.of(&subject.tenant_id))
    }

    fn len(&self) -> usize {
        self.credentials.0.len() + self.users.0.len() + self.tenants.0.len()
    }
}

impl<K: Hash + Eq> Against<K> {
    fn mark(&mut self, whom: K, number: u64, now: Instant) {
        self.0.insert(whom, (number, now));
    }

    fn of(&self, whom: &K) -> u64 {
        self.0.get(whom).map_or(0, |(number, _)| *number)
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, (_, made_at)| now < *made_at + KEPT);
    }
}

impl<K> Default for Against<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}
